"""Builds the models whose speed is measured, each in a process of its own.

A graph is traced and written without the comparisons of an export, which take minutes for large
networks on a processor: `gpu-check` compares every kind of export elsewhere, and what is timed with
PyTorch again. Processes, so that models are built side by side while the GPU is measured.
docs/cuda.md says what was verified on CUDA.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import torch
from tokenizers import Tokenizer
from tokenizers.models import BPE, WordLevel
from tokenizers.pre_tokenizers import ByteLevel, Whitespace
from tokenizers.processors import TemplateProcessing

from export.graphs.cached_decoder import DecoderNetwork, trace_decoder
from export.graphs.candidates import with_candidates
from export.graphs.graph import fused_ops, trace
from export.graphs.paged_decoder import trace_paged_decoder
from export.writer import Built, BuiltGraphs, ExportedModel, write_model
from loadtests.gpu.shapes import DECODERS, SEED, DecoderConfig, config_of
from loadtests.load.lengths import WORDS
from models.data.tokenizer import END_OF_TEXT, byte_level
from models.networks.encoder import Encoder, EncoderConfig
from models.networks.gpt import GPT
from models.networks.heads import ClassificationHead, SequenceClassifier
from models.networks.llama import Llama, LlamaConfig
from service.contract.manifest import GraphDevice, Layout, Manifest, Precision, Variant

LABELS = ("no", "yes")
MAX_BATCH_SIZE = 64
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
Kind = tuple[Precision, Layout]


def encoder_kinds(device: str) -> list[Kind]:
    """The graphs of an encoder that are timed on a device, `model.onnx` first."""
    if device == "cpu":
        return [("fp32", ""), ("fp32", "padded")]
    return [("fp16", ""), ("fp16", "padded"), ("bf16", ""), ("bf16", "padded")]


def decoder_kinds(name: str, device: str) -> list[Kind]:
    """The graphs of a decoder: a CPU has no kernel for the paged one, a GPU takes it by default.

    Over slots only the first decoder is timed: the others' graphs are large.
    """
    if device == "cpu":
        return [("fp32", "")]
    return (
        [("fp16", "paged"), ("fp16", "")] if name == next(iter(DECODERS)) else [("fp16", "paged")]
    )


def encoder_network(config: EncoderConfig) -> SequenceClassifier:
    """A classifier with random weights, the same each time."""
    torch.manual_seed(SEED)
    head = ClassificationHead(config.hidden_size, len(LABELS))
    return SequenceClassifier(Encoder(config), head).eval()


def decoder_network(config: DecoderConfig) -> DecoderNetwork:
    torch.manual_seed(SEED)
    network = Llama(config) if isinstance(config, LlamaConfig) else GPT(config)
    return network.eval()


def build(repository: Path, name: str, device: str) -> None:
    """Write a version of the shape `name` into the repository, whole or not at all."""
    torch.set_num_threads(1)  # there are others beside this one
    config = config_of(name)
    if isinstance(config, EncoderConfig):
        exported = _encoder(config, encoder_kinds(device))
    else:
        exported = _decoder(config, decoder_kinds(name, device))
    write_model(exported, repository, name, 1, MAX_BATCH_SIZE)


def _encoder(config: EncoderConfig, kinds: Sequence[Kind]) -> ExportedModel:
    network = encoder_network(config)
    graphs = [_built(_encoder_graph(network, kind), kind) for kind in kinds]
    manifest = Manifest(
        task="text-classification",
        max_tokens=config.max_positions,
        pad_token_id=network.pad_token_id,
        labels=LABELS,
        **_fields(graphs),
    )
    return ExportedModel(graphs[0].graph, words_tokenizer(), manifest, tuple(graphs[1:]))


def _decoder(config: DecoderConfig, kinds: Sequence[Kind]) -> ExportedModel:
    network = decoder_network(config)
    graphs = [_built(_decoder_graph(network, kind), kind) for kind in kinds]
    manifest = Manifest(
        task="text-generation",
        max_tokens=config.max_positions,
        pad_token_id=config.eos_token_ids[0],
        eos_token_ids=config.eos_token_ids,
        **_fields(graphs),
    )
    return ExportedModel(graphs[0].graph, bytes_tokenizer(), manifest, tuple(graphs[1:]))


def _encoder_graph(network: SequenceClassifier, kind: Kind) -> onnx.ModelProto:
    precision, layout = kind
    return trace(network, "Attention", precision=precision, is_padded=layout == "padded")


def _decoder_graph(network: DecoderNetwork, kind: Kind) -> onnx.ModelProto:
    precision, layout = kind
    if precision == "fp32":
        return trace_decoder(network)
    if layout == "paged":
        return with_candidates(trace_paged_decoder(network, precision=precision))
    return with_candidates(trace_decoder(network, precision=precision, has_norms_inside=True))


def _built(graph: onnx.ModelProto, kind: Kind) -> Built:
    precision, layout = kind
    device: GraphDevice = "any" if precision == "fp32" else "cuda"
    return Built(graph, Variant(precision, fused_ops(graph), device=device, layout=layout))


def _fields(graphs: Sequence[Built]) -> dict[str, Any]:
    return BuiltGraphs(graphs[0], tuple(graphs[1:])).manifest_fields() | {
        "origin": "random weights"
    }


def words_tokenizer() -> Tokenizer:
    """A token for each of the words that texts of loads consist of."""
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
    ids = {word: number for number, word in enumerate(dict.fromkeys((*special, *WORDS)))}
    tokenizer = Tokenizer(WordLevel(ids, unk_token="[UNK]"))  # noqa: S106 - no secret
    tokenizer.pre_tokenizer = Whitespace()
    ends = [(token, ids[token]) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    return tokenizer


def bytes_tokenizer() -> Tokenizer:
    """A token for each byte, and one that ends a text."""
    alphabet = {character: number for number, character in enumerate(sorted(ByteLevel.alphabet()))}
    tokenizer = byte_level(BPE(alphabet, []))
    tokenizer.add_special_tokens([END_OF_TEXT])
    return tokenizer
