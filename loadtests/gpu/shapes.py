"""The networks whose speed is measured: sizes of models that people serve, with random weights.

Speed does not depend on what weights are, and nothing has to be downloaded. To measure a further
model, give it a line here; one of a new family also needs its `Sizes.of` in `counts.py` and its
branch in `build.py`.
"""

from dataclasses import replace
from itertools import zip_longest
from typing import TypeAlias

from models.networks.encoder import EncoderConfig
from models.networks.gpt import GPTConfig
from models.networks.llama import LlamaConfig
from models.networks.ropes import Rope

DecoderConfig: TypeAlias = GPTConfig | LlamaConfig
Config: TypeAlias = EncoderConfig | DecoderConfig

SEED = 1  # of all weights, so that PyTorch and the exported graphs have the same
ENCODERS = {"bert-base": EncoderConfig.base(), "bert-large": EncoderConfig.large()}
SMOLLM2 = LlamaConfig.plain(
    *(49_152, 960, 32, 15, 5, 2_560, 8_192), ropes=(Rope.default(64, 100_000.0),)
)
DECODERS: dict[str, DecoderConfig] = {
    "gpt2": GPTConfig.small(),
    "smollm2-360m": SMOLLM2,
    "gpt2-xl": GPTConfig.xl(),
}
# Shapes that are to be measured once they can be built.
MISSING = {
    "SmolLM2-1.7B": "its graph is larger than the 2 GiB of one file",
    "Llama-3.2-1B": "its graph is larger than the 2 GiB of one file",
}
TINY_ENCODERS = {
    "tiny-encoder": EncoderConfig(
        vocab_size=512,
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        intermediate_size=64,
        max_positions=128,
    )
}
TINY_DECODERS: dict[str, DecoderConfig] = {
    "tiny-decoder": replace(
        GPTConfig.tiny(),
        vocab_size=512,
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        intermediate_size=64,
        max_positions=256,
    ),
    "tiny-llama": LlamaConfig.plain(512, 32, 2, 2, 1, 64, 256),
}
TITLES = {
    "bert-base": "BERT-base",
    "bert-large": "BERT-large",
    "gpt2": "GPT-2",
    "smollm2-360m": "SmolLM2-360M",
    "gpt2-xl": "GPT-2 XL",
    "tiny-encoder": "A tiny encoder",
    "tiny-decoder": "A tiny decoder",
    "tiny-llama": "A tiny Llama",
}


def encoders(*, is_tiny: bool) -> dict[str, EncoderConfig]:
    """Encoders by name, the first one the most important."""
    return TINY_ENCODERS if is_tiny else ENCODERS


def decoders(*, is_tiny: bool) -> dict[str, DecoderConfig]:
    """Decoders by name, the first one the most important."""
    return TINY_DECODERS if is_tiny else DECODERS


def names_of(*, is_tiny: bool) -> list[str]:
    """All shapes, encoders and decoders in turn, the most important first."""
    pairs = zip_longest(encoders(is_tiny=is_tiny), decoders(is_tiny=is_tiny))
    return [name for pair in pairs for name in pair if name is not None]


def config_of(name: str) -> Config:
    """The sizes of a shape by its name."""
    known: dict[str, Config] = {**ENCODERS, **DECODERS, **TINY_ENCODERS, **TINY_DECODERS}
    return known[name]
