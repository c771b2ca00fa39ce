"""The form of ModernBERT (Warner et al. 2024) for an encoder that is trained from nothing.

Rotary positions, gated feed-forward layers, norms before a layer's parts, no biases, and in two
layers of three a token sees its neighbours only. What it learns is BERT's, in
`models/recipes/bert.py`. Knows nothing about tokenizers.
"""

from dataclasses import replace

from models.networks.encoder import EncoderConfig
from models.networks.ropes import Rope

PUBLISHED_LAYERS = {"base": 22, "large": 28}
PUBLISHED_GATES = {768: 1_152, 1_024: 2_624}  # by the hidden size
GATE_MULTIPLE = 32  # of the gate's size, which is 8/3 of the hidden size: as many weights as 4
GLOBAL_EVERY = 3  # layers: the first of three sees all tokens
WINDOW = 64  # tokens to each side, in the others
GLOBAL_THETA, LOCAL_THETA = 160_000.0, 10_000.0
NORM_EPS = 1e-5


def sized(preset: EncoderConfig, size: str) -> EncoderConfig:
    """BERT's size with ModernBERT's number of layers, where there is one of that name."""
    return replace(preset, num_layers=PUBLISHED_LAYERS.get(size, preset.num_layers))


def in_modern_form(config: EncoderConfig) -> EncoderConfig:
    """Configuration of the same sizes in ModernBERT's form; only the gate's is its own.

    A window that reaches past the longest text is left out, as it changes nothing.
    """
    size, num_layers = config.hidden_size, config.num_layers
    gate = PUBLISHED_GATES.get(size) or -(-8 * size // 3 // GATE_MULTIPLE) * GATE_MULTIPLE
    is_local = [bool(index % GLOBAL_EVERY) for index in range(num_layers)]
    window = WINDOW if config.max_positions > WINDOW + 1 else 0
    head_size = size // config.num_heads
    return replace(
        config,
        intermediate_size=gate,
        type_vocab_size=0,
        layer_norm_eps=NORM_EPS,
        norm_placement="pre",
        is_gated=True,
        attention_bias=False,
        feed_forward_bias=False,
        norm_bias=False,
        has_position_table=False,
        ropes=(Rope.default(head_size, GLOBAL_THETA), Rope.default(head_size, LOCAL_THETA)),
        layer_ropes=tuple(map(int, is_local)),
        windows=tuple(window if each else 0 for each in is_local),
    )
