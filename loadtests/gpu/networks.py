"""Networks of every kind that is exported, with random weights that are the same everywhere.

Weights are larger than a fresh network's, so that different inputs get clearly different outputs,
and a mistake in one place is seen in them. Heads have 64 values in full size, as in the published
models: fused kernels are chosen by that. The sizes keep an export within seconds.
"""

import string
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import BPE, WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer, ByteLevel
from tokenizers.processors import TemplateProcessing
from torch import nn

from models.checkpoints.checkpoint import NO_TOKENIZER, Checkpoint
from models.data.pair_tokenizer import train_pair_tokenizer
from models.data.tokenizer import END_OF_TEXT, byte_level
from models.networks.encoder import Encoder, EncoderConfig
from models.networks.features import TokenFeatures
from models.networks.gpt import GPT, GPTConfig
from models.networks.heads import ClassificationHead, PairScorer, SequenceClassifier, TextEmbedder
from models.networks.kinds import Task, kind_of
from models.networks.llama import Llama, LlamaConfig
from models.networks.masked import MaskedLanguageModel
from models.networks.readers import QuestionAnswerer, TokenClassifier
from models.networks.recurrent import RecurrentConfig, RecurrentSeq2Seq
from models.networks.ropes import Rope
from models.networks.transformer import Transformer, TransformerConfig
from models.networks.vit import VisionTransformer, ViTConfig

SEED = 3
ORIGIN = "random weights"
WINDOW = 32  # tokens that a layer with a window sees
UNKNOWN = "[UNK]"
SPECIAL = ("[PAD]", UNKNOWN, "[CLS]", "[SEP]", "[MASK]")
WORDS = ("free", "prize", "winner", "claim", "now", "call", "lunch", "tomorrow", "we", "are", "on")
LABELS = tuple(f"label {index}" for index in range(5))
PAIR_TEXT = "on the 3rd of March, 2021"  # a vocabulary of pairs is learnt from it
PAIR_PIECES = 270


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


TINY = Sizes(32, num_layers=2, num_heads=2, max_tokens=64, context_tokens=512, image_pixels=16)
FULL = Sizes(256, num_layers=4, num_heads=4, max_tokens=256, context_tokens=1_024, image_pixels=64)
Make = Callable[[Sizes], Checkpoint]


@cache
def checkpoint_of(make: Make, *, is_tiny: bool) -> Checkpoint:
    """A network with its tokenizer, the same each time; not to be changed."""
    torch.manual_seed(SEED)
    checkpoint = make(TINY if is_tiny else FULL)
    randomise(checkpoint.model, SEED)
    checkpoint.model.eval()
    return checkpoint


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


def _checkpoint(
    model: nn.Module, tokenizer: Tokenizer, max_tokens: int, labels: tuple[str, ...] = ()
) -> Checkpoint:
    task: Task = kind_of(model).task
    return Checkpoint(model, task, labels, tokenizer, max_tokens, ORIGIN)


def on_encoder(head: Callable[[Encoder], nn.Module], labels: tuple[str, ...] = ()) -> Make:
    """A way to make an encoder with a head."""

    def make(sizes: Sizes) -> Checkpoint:
        tokenizer = word_pieces()
        config = EncoderConfig(
            tokenizer.get_vocab_size(), max_positions=sizes.max_tokens, **sizes.of_layers
        )
        return _checkpoint(head(Encoder(config)), tokenizer, sizes.max_tokens, labels)

    return make


def _head(encoder: Encoder, num_labels: int) -> ClassificationHead:
    return ClassificationHead(encoder.config.hidden_size, num_labels)


classifier = on_encoder(lambda each: SequenceClassifier(each, _head(each, len(LABELS))), LABELS)
embedder = on_encoder(TextEmbedder)
word_filler = on_encoder(lambda each: MaskedLanguageModel(each, SPECIAL.index("[MASK]")))
tagger = on_encoder(lambda each: TokenClassifier(each, len(LABELS)), LABELS)
answerer = on_encoder(QuestionAnswerer)
pair_scorer = on_encoder(lambda each: PairScorer(each, _head(each, 1)))
features = on_encoder(TokenFeatures)


def gpt(sizes: Sizes) -> Checkpoint:
    tokenizer = bytes_tokenizer()
    num_pieces = tokenizer.get_vocab_size()
    config = GPTConfig(
        vocab_size=num_pieces,
        max_positions=sizes.context_tokens,
        eos_token_id=num_pieces - 1,
        **sizes.of_layers,
    )
    return _checkpoint(GPT(config), tokenizer, sizes.context_tokens)


def llama(sizes: Sizes, **others: Any) -> Checkpoint:
    """Two heads to one of keys, each head of queries and keys normalised, as Qwen3 has it."""
    tokenizer = bytes_tokenizer()
    num_pieces = tokenizer.get_vocab_size()
    config = LlamaConfig.plain(
        num_pieces,
        num_kv_heads=sizes.num_heads // 2,
        max_positions=sizes.context_tokens,
        eos_token_ids=(num_pieces - 1,),
        query_key_norm="head",
        **sizes.of_layers,
        **others,
    )
    return _checkpoint(Llama(config), tokenizer, sizes.context_tokens)


def gemma(sizes: Sizes) -> Checkpoint:
    """Windows in every other layer, which has a rope of its own; norms on both sides; softcaps."""
    head_size, half = sizes.hidden_size // sizes.num_heads, sizes.num_layers // 2
    return llama(
        sizes,
        norm_placement="both",
        attention_softcap=50.0,
        final_softcap=30.0,
        windows=(WINDOW, 0) * half,
        ropes=(Rope.default(head_size), Rope.default(head_size, 1_000_000.0)),
        layer_ropes=(0, 1) * half,
        activation="gelu_tanh",
        embedding_scale=sizes.hidden_size**0.5,
    )


def encoder_decoder(sizes: Sizes) -> Checkpoint:
    tokenizer, max_tokens = train_pair_tokenizer([PAIR_TEXT], PAIR_PIECES), sizes.max_tokens // 2
    config = TransformerConfig(PAIR_PIECES, max_positions=max_tokens, **sizes.of_layers)
    return _checkpoint(Transformer(config), tokenizer, max_tokens)


def recurrent(sizes: Sizes) -> Checkpoint:
    tokenizer = train_pair_tokenizer([PAIR_TEXT], PAIR_PIECES)
    config = RecurrentConfig(PAIR_PIECES, sizes.hidden_size, "additive", max_positions=8)
    return _checkpoint(RecurrentSeq2Seq(config), tokenizer, config.max_positions)


def vision(sizes: Sizes) -> Checkpoint:
    pixels = sizes.image_pixels
    config = ViTConfig(height=pixels, width=pixels, patch_size=pixels // 8, **sizes.of_layers)
    network = VisionTransformer(config, len(LABELS))
    return _checkpoint(network, NO_TOKENIZER, config.max_positions, LABELS)


def bytes_tokenizer() -> Tokenizer:
    """A token for each byte, and one that ends a text."""
    pieces = {character: token for token, character in enumerate(sorted(ByteLevel.alphabet()))}
    tokenizer = byte_level(BPE(pieces, []))
    tokenizer.add_special_tokens([END_OF_TEXT])
    return tokenizer


def word_pieces(words: tuple[str, ...] = WORDS) -> Tokenizer:
    """WordPiece over a few words and every ASCII character, for texts and pairs."""
    characters = string.ascii_lowercase + string.digits + string.punctuation
    pieces = (*SPECIAL, *words, *characters, *(f"##{character}" for character in characters))
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token=UNKNOWN))
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")],
    )
    tokenizer.add_special_tokens(["[MASK]"])
    return tokenizer
