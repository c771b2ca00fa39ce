"""Two decoders of Llama's kind as Hugging Face folders, and what transformers makes of prompts.

The shapes of SmolLM2-135M and Qwen2.5-0.5B with random weights, as `models.py` has GPT-2. Greedy
text varies: the last norm has random signs, or the tied table would repeat each word. The context
is shorter than theirs, as no traffic is longer. The tokenizers have bytes and made-up pieces: all
engines are given tokens.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtests.compare.models import (
    enlarge,
    greedy_reference,
    reference_path,
)
from loadtests.load.byte_pairs import write_byte_pairs

SMOLLM2, QWEN2 = "smollm2", "qwen2"
CONTEXT = 2_048
ADDING = ("o_proj.weight", "down_proj.weight")
CHECK_PROMPTS, CHECK_TOKENS = 8, 8
LIKELY = 64  # first tokens of a prompt that an engine with rounded weights may choose
SPREAD = 1.5  # times as large as fresh weights
# Of what each layer adds: that all layers together weigh about as much as the word does. With more,
# the error of four bits grows from layer to layer until nothing is left of the logits.
ADDED = 0.015


@dataclass(frozen=True, slots=True)
class Shape:
    """What config.json of a decoder says, and what it is called."""

    title: str
    model_type: str
    fields: dict[str, Any]

    @property
    def vocab_size(self) -> int:
        return int(self.fields["vocab_size"])


SHAPES = {
    SMOLLM2: Shape(
        "SmolLM2-135M",
        "llama",
        {
            "vocab_size": 49_152,
            "hidden_size": 576,
            "intermediate_size": 1_536,
            "num_hidden_layers": 30,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "rms_norm_eps": 1e-5,
            "rope_theta": 100_000.0,
        },
    ),
    QWEN2: Shape(
        "Qwen2.5-0.5B",
        "qwen2",
        {
            "vocab_size": 151_936,
            "hidden_size": 896,
            "intermediate_size": 4_864,
            "num_hidden_layers": 24,
            "num_attention_heads": 14,
            "num_key_value_heads": 2,
            "rms_norm_eps": 1e-6,
            "rope_theta": 1_000_000.0,
        },
    ),
}


def write_llama(folder: Path, name: str) -> None:
    """`{name}/` and, when it is whole, its reference."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    shape, target = SHAPES[name], folder / name
    torch.manual_seed(1)
    config = AutoConfig.for_model(
        shape.model_type,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
        **shape.fields,
    )
    model = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
        config, dtype=torch.float32
    )
    enlarge(model, lambda key: SPREAD * (ADDED if key.endswith(ADDING) else 1.0))
    with torch.no_grad():
        norm = model.model.norm.weight
        norm.copy_(torch.where(torch.rand_like(norm) < 0.5, -1.0, 1.0))
    model.save_pretrained(target)
    write_byte_pairs(target, shape.vocab_size, CONTEXT)
    reference = greedy_reference(target, CHECK_PROMPTS, CHECK_TOKENS, 64, LIKELY)
    reference.write(reference_path(folder, name))
