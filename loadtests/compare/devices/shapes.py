"""The networks whose speed is measured: sizes as config.json of Hugging Face has them.

transformers makes its model of them, and our import reads ours from the same fields. Weights are
random; speed does not depend on them. Graphs are traced and written without the comparisons of an
export, which take minutes for large networks on a processor.
docs/how-to/cuda.md says what was verified on CUDA.
"""

import string
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import BPE, WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer, ByteLevel
from tokenizers.processors import TemplateProcessing

from export.graphs.cached_decoder import trace_decoder
from export.graphs.candidates import with_candidates
from export.graphs.graph import fused_ops, trace
from export.graphs.paged_decoder import trace_paged_decoder
from export.writer import Built, BuiltGraphs, ExportedModel, write_model
from loadtests.load.lengths import WORDS
from models.checkpoints.family import bert_config
from models.checkpoints.gpt2 import GPT2, gpt2_config
from models.checkpoints.llama import decoder_config
from models.data.tokenizer import END_OF_TEXT, byte_level
from models.networks.encoder import Encoder, EncoderConfig
from models.networks.gpt import GPT
from models.networks.heads import ClassificationHead, SequenceClassifier
from models.networks.llama import Llama, LlamaConfig
from service.contract.manifest import Layout, Manifest, Precision, Variant

SEED, MAX_BATCH_SIZE = 1, 64
ORIGIN = "random weights"
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
FUSED = ("Attention", "MultiHeadAttention", "GroupQueryAttention", "PagedAttention", "LSTM")
ENDS = {"bos_token_id": 0, "eos_token_id": 0}
BERT_KEYS = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
GPT2_KEYS = ("n_embd", "n_layer", "n_head")
LLAMA_KEYS = (*BERT_KEYS, "num_key_value_heads", "rope_theta")


def _bert(vocab_size: int, *sizes: int, longest: int = 512) -> dict[str, Any]:
    both = {"vocab_size": vocab_size, "max_position_embeddings": longest}
    return {"model_type": "bert", **both, **dict(zip(BERT_KEYS, sizes, strict=True))}


def _gpt2(vocab_size: int, *sizes: int, longest: int = 1_024) -> dict[str, Any]:
    both = {"vocab_size": vocab_size, "n_positions": longest}
    return {"model_type": GPT2, **both, **ENDS, **dict(zip(GPT2_KEYS, sizes, strict=True))}


def _llama(vocab_size: int, *sizes: float, longest: int) -> dict[str, Any]:
    both = {"vocab_size": vocab_size, "max_position_embeddings": longest, "rms_norm_eps": 1e-5}
    fields = {**both, **ENDS, **dict(zip(LLAMA_KEYS, sizes, strict=True))}
    return {"model_type": "llama", "tie_word_embeddings": True, **fields}


SHAPES = {
    "bert-base": _bert(30_522, 768, 12, 12, 3_072),
    "bert-large": _bert(30_522, 1_024, 24, 16, 4_096),
    "gpt2": _gpt2(50_257, 768, 12, 12),
    "gpt2-xl": _gpt2(50_257, 1_600, 48, 25),
    "smollm2-360m": _llama(49_152, 960, 32, 15, 2_560, 5, 1e5, longest=8_192),
    "llama-1b": _llama(128_256, 2_048, 16, 32, 8_192, 8, 5e5, longest=8_192),
    "tiny-encoder": _bert(512, 32, 2, 4, 64, longest=128),
    "tiny-decoder": _gpt2(512, 32, 2, 4, longest=256),
    "tiny-llama": _llama(512, 32, 2, 2, 64, 1, 1e4, longest=256),
}


def config_of(shape: str) -> Any:
    """The sizes as our networks have them."""
    fields = SHAPES[shape]
    if fields["model_type"] == "bert":
        return bert_config(fields)
    if fields["model_type"] == GPT2:
        return gpt2_config(fields)
    return decoder_config(fields, (fields["eos_token_id"],), None, Path("config.json"))


def is_encoder(shape: str) -> bool:
    return bool(SHAPES[shape]["model_type"] == "bert")


def network_of(shape: str) -> Any:
    """The network of a shape with random weights, the same each time."""
    config = config_of(shape)
    torch.manual_seed(SEED)
    if isinstance(config, EncoderConfig):
        head = ClassificationHead(config.hidden_size, 2)
        return SequenceClassifier(Encoder(config), head).eval()
    return (Llama(config) if isinstance(config, LlamaConfig) else GPT(config)).eval()


def timed_graphs(shape: str, device: str) -> list[tuple[Precision, Layout]]:
    """The graphs of a shape that are timed on a device, `model.onnx` first."""
    if is_encoder(shape):
        each: list[Precision] = ["fp32"] if device == "cpu" else ["fp16", "bf16"]
        return [(precision, layout) for precision in each for layout in ("", "padded")]
    return [("fp32", "")] if device == "cpu" else [("fp16", "paged"), ("fp16", "")]


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph of a model."""

    precision: Precision
    layout: str
    path: Path
    num_fused: int  # attentions and LSTMs, as the manifest says


def graphs_of(folder: Path) -> list[Graph]:
    """The graphs of a version."""
    text = (folder / "manifest.json").read_text(encoding="utf-8")
    return [
        Graph(
            *(each.precision, each.layout, folder / name),
            num_fused=sum(each.fused.get(operator, 0) for operator in FUSED),
        )
        for name, each in Manifest.from_json(text).graphs.items()
    ]


def build(repository: Path, shape: str, device: str) -> None:
    """Write a version of a shape into the repository, whole or not at all."""
    network, graphs = network_of(shape), []
    for precision, layout in timed_graphs(shape, device):
        graph = _traced(network, precision, layout)
        place: Any = "any" if precision == "fp32" else "cuda"
        graphs.append(Built(graph, Variant(precision, fused_ops(graph), place, layout=layout)))
    fields = BuiltGraphs(graphs[0], tuple(graphs[1:])).manifest_fields() | {"origin": ORIGIN}
    if is_encoder(shape):
        fields |= {"task": "text-classification", "labels": ("no", "yes")}
        tokenizer, pad = word_pieces(), network.pad_token_id
    else:
        fields |= {"task": "text-generation", "eos_token_ids": network.config.eos_token_ids}
        tokenizer, pad = bytes_tokenizer(), 0
    manifest = Manifest(max_tokens=network.config.max_positions, pad_token_id=pad, **fields)
    exported = ExportedModel(graphs[0].graph, tokenizer, manifest, tuple(graphs[1:]))
    write_model(exported, repository, shape, 1, MAX_BATCH_SIZE)


def _traced(network: Any, precision: Precision, layout: Layout) -> Any:
    if isinstance(network, SequenceClassifier):
        return trace(network, "Attention", precision=precision, is_padded=layout == "padded")
    if precision == "fp32":
        return trace_decoder(network)
    if layout == "paged":
        return with_candidates(trace_paged_decoder(network, precision=precision))
    return with_candidates(trace_decoder(network, precision=precision, has_norms_inside=True))


def bytes_tokenizer() -> Tokenizer:
    """A token for each byte, and one that ends a text."""
    pieces = {character: token for token, character in enumerate(sorted(ByteLevel.alphabet()))}
    tokenizer = byte_level(BPE(pieces, []))
    tokenizer.add_special_tokens([END_OF_TEXT])
    return tokenizer


def word_pieces() -> Tokenizer:
    """WordPiece over common words and every ASCII character, for texts and pairs."""
    characters = string.ascii_lowercase + string.digits + string.punctuation
    pieces = (*SPECIAL, *WORDS, *characters, *(f"##{character}" for character in characters))
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))  # noqa: S106 - no secret
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")],
    )
    tokenizer.add_special_tokens(["[MASK]"])
    return tokenizer
