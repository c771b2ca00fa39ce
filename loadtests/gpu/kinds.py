"""The kinds of models that are checked: one row each, with network, reference, cache and task.

Weights are random, the same everywhere, and larger than a fresh network's, so that different inputs
get clearly different outputs, and a mistake in one place is seen in them. Heads have 64 values in
full size, as in the published models: fused kernels are chosen by that. The sizes keep an export
within seconds. docs/how-to/cuda.md says what was verified on CUDA.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import torch
from torch import nn

from loadtests.compare.devices.shapes import ORIGIN, SPECIAL, bytes_tokenizer, word_pieces
from loadtests.gpu import references
from loadtests.gpu.references import Reference
from models.checkpoints.checkpoint import NO_TOKENIZER, Checkpoint
from models.data.pair_tokenizer import train_pair_tokenizer
from models.networks import kinds as networks
from models.networks.encoder import EncoderConfig
from models.networks.gpt import GPTConfig
from models.networks.layers import Config
from models.networks.llama import LlamaConfig
from models.networks.recurrent import RecurrentConfig
from models.networks.ropes import Rope
from models.networks.transformer import TransformerConfig
from models.networks.vit import ViTConfig
from service.contract.manifest import Precision

SEED = 3
WINDOW = 32  # tokens that a layer with a window sees
LABELS = tuple(f"label {index}" for index in range(5))
PAIR_TEXT = "on the 3rd of March, 2021"  # a vocabulary of pairs is learnt from it
PAIR_PIECES, BYTE_PIECES = 270, 257  # the second ends with what ends a text


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of all networks of a run."""

    hidden_size: int
    num_layers: int
    num_heads: int
    max_tokens: int
    context_tokens: int  # of a decoder's prompt and output
    image_pixels: int  # a side, of squares of an eighth

    @property
    def of_layers(self) -> dict[str, Any]:
        sizes = {name: getattr(self, name) for name in ("hidden_size", "num_layers", "num_heads")}
        return {**sizes, "intermediate_size": 4 * self.hidden_size}

    @property
    def of_decoder(self) -> dict[str, Any]:
        return {**self.of_layers, "vocab_size": BYTE_PIECES, "max_positions": self.context_tokens}

    def encoder(self) -> Config:
        num_pieces = word_pieces().get_vocab_size()
        return EncoderConfig(num_pieces, max_positions=self.max_tokens, **self.of_layers)

    def gpt(self) -> Config:
        return GPTConfig(eos_token_id=BYTE_PIECES - 1, **self.of_decoder)

    def llama(self, **others: Any) -> Config:
        """Two heads to one of keys, each head of queries and keys normalised, as Qwen3 has it."""
        heads: dict[str, Any] = {"num_kv_heads": self.num_heads // 2, "query_key_norm": "head"}
        heads["eos_token_ids"] = (BYTE_PIECES - 1,)
        return LlamaConfig.plain(**self.of_decoder, **heads, **others)

    def gemma(self) -> Config:
        """Windows in every other layer, with a rope of its own; norms on both sides; softcaps."""
        head_size, half = self.hidden_size // self.num_heads, self.num_layers // 2
        return self.llama(
            norm_placement="both",
            attention_softcap=50.0,
            final_softcap=30.0,
            windows=(WINDOW, 0) * half,
            ropes=(Rope.default(head_size), Rope.default(head_size, 1_000_000.0)),
            layer_ropes=(0, 1) * half,
            activation="gelu_tanh",
            embedding_scale=self.hidden_size**0.5,
        )

    def transformer(self) -> Config:
        return TransformerConfig(PAIR_PIECES, max_positions=self.max_tokens // 2, **self.of_layers)

    def recurrent(self) -> Config:
        return RecurrentConfig(PAIR_PIECES, self.hidden_size, "additive", max_positions=8)

    def vision(self) -> Config:
        pixels = self.image_pixels
        return ViTConfig(height=pixels, width=pixels, patch_size=pixels // 8, **self.of_layers)


TINY = Sizes(32, num_layers=2, num_heads=2, max_tokens=64, context_tokens=512, image_pixels=16)
FULL = Sizes(256, num_layers=4, num_heads=4, max_tokens=256, context_tokens=1_024, image_pixels=64)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of model."""

    network: str  # its name in models/networks/kinds.py
    reference: Reference = references.texts
    config: Callable[[Sizes], Config] = Sizes.encoder
    head: dict[str, Any] = field(default_factory=dict)  # as config.json has it
    has_cache: bool = False  # which GroupQueryAttention keeps
    task: str | None = None  # what it is exported for, where that is not its network's own

    def obstacle(self, device: str, precision: Precision) -> str:
        """Why a device cannot compute it in a precision; empty where it can."""
        if device == "cpu" and precision == "bf16":
            return "the CPU provider has no kernels for bfloat16"
        if device == "cuda" and precision == "fp32" and self.has_cache:
            return "CUDA's GroupQueryAttention has no float32"
        return ""


# The four most used come first.
KINDS = {
    "classification": Kind("encoder-classifier"),
    "embedding": Kind("encoder-embedder"),
    "decoder": Kind("gpt", references.decoder, Sizes.gpt, has_cache=True),
    "llama": Kind("llama", references.decoder, Sizes.llama, has_cache=True),
    "encoder-decoder": Kind(
        "transformer", references.encoder_decoder, Sizes.transformer, has_cache=True
    ),
    "gemma": Kind("llama", references.decoder, Sizes.gemma, has_cache=True),
    "pairs": Kind("encoder-pair-scorer"),
    "tokens": Kind("encoder-token-classifier"),
    "answers": Kind("encoder-answerer"),
    "fill-mask": Kind("encoder-masked-words", head={"mask_token_id": SPECIAL.index("[MASK]")}),
    "features": Kind("encoder-features"),
    "vision": Kind("vision-transformer", references.vision, Sizes.vision),
    "attention": Kind("encoder-classifier", references.attention, task="attention"),
    "recurrent": Kind("recurrent", references.recurrent, Sizes.recurrent),
}
MOST_USED = tuple(KINDS)[:4]
SERVED = MOST_USED[:3]  # by the server of section 3


@cache
def checkpoint_of(name: str, *, is_tiny: bool) -> Checkpoint:
    """The network of a kind with its tokenizer, the same each time; not to be changed."""
    row, sizes = KINDS[name], TINY if is_tiny else FULL
    config: Any = row.config(sizes)
    (kind,) = (each for each in networks.KINDS if each.name == row.network)
    torch.manual_seed(SEED)
    network = kind.build({config.section: config.to_dict(), "head": row.head}, len(LABELS))
    _randomise(row.network, network, sizes.hidden_size)
    labels, tokenizer = LABELS if kind.has_labels else (), NO_TOKENIZER
    if kind.has_tokenizer:
        known = {"encoder": word_pieces, "decoder": bytes_tokenizer}
        of_pairs = partial(train_pair_tokenizer, [PAIR_TEXT], PAIR_PIECES)
        tokenizer = known.get(config.section, of_pairs)()
    return Checkpoint(network.eval(), kind.task, labels, tokenizer, config.max_positions, ORIGIN)


def _randomise(network: str, model: nn.Module, hidden_size: int) -> None:
    """Weights with which a layer keeps the size of what goes through it; biases not zero."""
    generator, scales = torch.Generator().manual_seed(SEED), dict[str, float]()
    if network == "transformer":  # its decoder is not to repeat what it read last
        scales = {"feed_forward.contract.weight": 4.0, "cross_attention.output.weight": 0.3}
    if network == "encoder-masked-words":  # logits are products with embeddings
        scales = {"embeddings.weight": hidden_size**-0.5}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() == 1:
                is_scale = "norm" in name and name.endswith("weight")
                parameter.copy_(0.1 * noise + (1.0 if is_scale else 0.0))
            elif "embeddings" in name:
                parameter.copy_(noise * scales.get("embeddings.weight", 1.0))
            else:
                parameter.copy_(noise * 1.5 * parameter[0].numel() ** -0.5)
            for end, scale in scales.items():
                if name.startswith("decoder.") and name.endswith(end):
                    parameter.mul_(scale)
