"""Training a decoder of Llama's kind from nothing, on the corpus and by the loss of GPT.

Knows nothing about the loop; it is the `llama` of `models/recipes/kinds.py`. The recipe of today:
root mean square norms, rotary positions, a gated feed-forward layer, fewer heads of keys.
"""

from collections.abc import Callable
from dataclasses import replace

from tokenizers import Tokenizer

from models.data.byte_pairs import end_of_text_id, train_tokenizer
from models.errors import SettingError
from models.networks.llama import Llama, LlamaConfig
from models.networks.ropes import Rope
from models.recipes.gpt import next_token
from models.recipes.pretrain import Pretraining
from models.training.pretrain_settings import LlamaSettings

PRESETS: dict[str, Callable[[], LlamaConfig]] = {
    "tiny": LlamaConfig.tiny,
    "135m": LlamaConfig.smol,
}
GATE_MULTIPLE = 32  # of the gate's size, which is 8/3 of the hidden size: as many weights as 4


def config_of(settings: LlamaSettings, tokenizer: Tokenizer) -> LlamaConfig:
    """The size's configuration, with what the settings and the tokenizer give in its place.

    Raises `SettingError` for numbers of heads that do not fit.
    """
    preset = PRESETS[settings.size]()
    hidden_size = settings.hidden_size or preset.hidden_size
    num_layers = settings.num_layers or preset.num_layers
    num_heads = settings.num_heads or preset.num_heads
    intermediate_size = preset.intermediate_size
    if settings.hidden_size:
        intermediate_size = -(-8 * hidden_size // 3 // GATE_MULTIPLE) * GATE_MULTIPLE
    if hidden_size % num_heads:
        raise SettingError("num_heads", num_heads, f"a divisor of hidden_size {hidden_size}")
    head_size = hidden_size // num_heads
    return replace(
        preset,
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=settings.num_kv_heads or min(preset.num_kv_heads, num_heads),
        head_size=head_size,
        max_positions=settings.context or preset.max_positions,
        windows=(0,) * num_layers,
        ropes=(Rope.default(head_size, settings.rope_theta),),
        layer_ropes=(0,) * num_layers,
        dropout=settings.dropout,
        eos_token_ids=(end_of_text_id(tokenizer),),
    )


PRETRAINING = Pretraining(
    train_tokenizer=lambda documents, settings: train_tokenizer(documents, settings.vocab_size),
    config_of=config_of,
    build=lambda config, _: Llama(config),
    objective=next_token,
    is_byte_level=True,
)
