"""The kinds of models that are checked: one row each, with network, reference, cache and task.

Weights are random, the same everywhere, and larger than a fresh network's, so that different inputs
get clearly different outputs, and a mistake in one place is seen in them. Heads have 64 values in
full size, as in the published models: fused kernels are chosen by that. The sizes keep an export
within seconds. docs/how-to/cuda.md says what was verified on CUDA.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import nn

from loadtests.compare.devices.shapes import ORIGIN, SPECIAL, bytes_tokenizer, word_pieces
from loadtests.gpu import references
from loadtests.gpu.references import Reference
from models.checkpoints.checkpoint import NO_TOKENIZER, Checkpoint
from models.data.pair_tokenizer import train_pair_tokenizer
from models.networks.encoder import Encoder, EncoderConfig
from models.networks.features import TokenFeatures
from models.networks.gpt import GPT, GPTConfig
from models.networks.heads import ClassificationHead, PairScorer, SequenceClassifier, TextEmbedder
from models.networks.kinds import kind_of
from models.networks.llama import Llama, LlamaConfig
from models.networks.masked import MaskedLanguageModel
from models.networks.readers import QuestionAnswerer, TokenClassifier
from models.networks.recurrent import RecurrentConfig, RecurrentSeq2Seq
from models.networks.ropes import Rope
from models.networks.transformer import Transformer, TransformerConfig
from models.networks.vit import VisionTransformer, ViTConfig
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
        return {
            "hidden_size": self.hidden_size,
            "num_layers": self.num_layers,
            "num_heads": self.num_heads,
            "intermediate_size": 4 * self.hidden_size,
        }

    @property
    def of_decoder(self) -> dict[str, Any]:
        return {
            **self.of_layers,
            "vocab_size": BYTE_PIECES,
            "max_positions": self.context_tokens,
        }

    def encoder(self) -> Encoder:
        num_pieces = word_pieces().get_vocab_size()
        return Encoder(EncoderConfig(num_pieces, max_positions=self.max_tokens, **self.of_layers))

    def head(self, num_labels: int) -> ClassificationHead:
        return ClassificationHead(self.hidden_size, num_labels)

    def llama(self, **others: Any) -> Llama:
        """Two heads to one of keys, each head of queries and keys normalised, as Qwen3 has it."""
        heads: dict[str, Any] = {"num_kv_heads": self.num_heads // 2, "query_key_norm": "head"}
        heads["eos_token_ids"] = (BYTE_PIECES - 1,)
        return Llama(LlamaConfig.plain(**self.of_decoder, **heads, **others))

    def gemma(self) -> Llama:
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

    def vision(self) -> VisionTransformer:
        pixels = self.image_pixels
        config = ViTConfig(height=pixels, width=pixels, patch_size=pixels // 8, **self.of_layers)
        return VisionTransformer(config, len(LABELS))


TINY = Sizes(32, num_layers=2, num_heads=2, max_tokens=64, context_tokens=512, image_pixels=16)
FULL = Sizes(256, num_layers=4, num_heads=4, max_tokens=256, context_tokens=1_024, image_pixels=64)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of model."""

    make: Callable[[Sizes], nn.Module]
    reference: Reference
    has_cache: bool = False  # which GroupQueryAttention keeps
    task: str | None = None  # what it is exported for, where that is not its network's own

    def checkpoint(self, *, is_tiny: bool) -> Checkpoint:
        """The network with its tokenizer, the same each time; not to be changed."""
        return _checkpoint_of(self.make, is_tiny)

    def obstacle(self, device: str, precision: Precision) -> str:
        """Why a device cannot compute it in a precision; empty where it can."""
        if device == "cpu" and precision == "bf16":
            return "the CPU provider has no kernels for bfloat16"
        if device == "cuda" and precision == "fp32" and self.has_cache:
            return "CUDA's GroupQueryAttention has no float32"
        return ""


def _classifier(sizes: Sizes) -> SequenceClassifier:
    return SequenceClassifier(sizes.encoder(), sizes.head(len(LABELS)))


# The four most used come first.
KINDS = {
    "classification": Kind(_classifier, references.texts),
    "embedding": Kind(lambda sizes: TextEmbedder(sizes.encoder()), references.texts),
    "decoder": Kind(
        lambda sizes: GPT(GPTConfig(eos_token_id=BYTE_PIECES - 1, **sizes.of_decoder)),
        references.decoder,
        has_cache=True,
    ),
    "llama": Kind(Sizes.llama, references.decoder, has_cache=True),
    "encoder-decoder": Kind(
        lambda sizes: Transformer(
            TransformerConfig(PAIR_PIECES, max_positions=sizes.max_tokens // 2, **sizes.of_layers)
        ),
        references.encoder_decoder,
        has_cache=True,
    ),
    "gemma": Kind(Sizes.gemma, references.decoder, has_cache=True),
    "pairs": Kind(lambda sizes: PairScorer(sizes.encoder(), sizes.head(1)), references.texts),
    "tokens": Kind(lambda sizes: TokenClassifier(sizes.encoder(), len(LABELS)), references.texts),
    "answers": Kind(lambda sizes: QuestionAnswerer(sizes.encoder()), references.texts),
    "fill-mask": Kind(
        lambda sizes: MaskedLanguageModel(sizes.encoder(), SPECIAL.index("[MASK]")),
        references.texts,
    ),
    "features": Kind(lambda sizes: TokenFeatures(sizes.encoder()), references.texts),
    "vision": Kind(Sizes.vision, references.vision),
    "attention": Kind(_classifier, references.attention, task="attention"),
    "recurrent": Kind(
        lambda sizes: RecurrentSeq2Seq(
            RecurrentConfig(PAIR_PIECES, sizes.hidden_size, "additive", max_positions=8)
        ),
        references.recurrent,
    ),
}
MOST_USED = tuple(KINDS)[:4]
SERVED = MOST_USED[:3]  # by the server of section 3


@cache
def _checkpoint_of(make: Callable[[Sizes], nn.Module], is_tiny: bool) -> Checkpoint:
    torch.manual_seed(SEED)
    network: Any = make(TINY if is_tiny else FULL)
    randomise(network, SEED)
    kind, tokenizer = kind_of(network), NO_TOKENIZER
    if isinstance(network, GPT | Llama):
        tokenizer = bytes_tokenizer()
    elif isinstance(network, Transformer | RecurrentSeq2Seq):
        tokenizer = train_pair_tokenizer([PAIR_TEXT], PAIR_PIECES)
    elif kind.has_tokenizer:
        tokenizer = word_pieces()
    labels, max_tokens = LABELS if kind.has_labels else (), network.config.max_positions
    return Checkpoint(network.eval(), kind.task, labels, tokenizer, max_tokens, ORIGIN)


def randomise(model: nn.Module, seed: int) -> None:
    """Weights with which a layer keeps the size of what goes through it; biases not zero."""
    generator = torch.Generator().manual_seed(seed)
    scales = {}
    if isinstance(model, Transformer):  # its decoder is not to repeat what it read last
        scales = {"feed_forward.contract.weight": 4.0, "cross_attention.output.weight": 0.3}
    if isinstance(model, MaskedLanguageModel):  # logits are products with embeddings
        scales = {"embeddings.weight": model.config.hidden_size**-0.5}
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
