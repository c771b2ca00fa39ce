"""The smallest encoder and decoder that attend: graphs made by hand, and the same in numpy.

Every vector depends on its token and its place; a source's also on the mean of the whole source, so
that padding which is not masked gives another answer. Tokens are bytes, and `END_ID` ends a text.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: S tokens, D vector, H heads, h head size, V vocabulary

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from service.contract.manifest import Manifest
from service.generation.decoders.decoder import INPUTS, POSITIONS
from service.generation.decoders.encoder_decoder import EncoderDecoder, SourceLimits
from service.runtime.device_memory import DeviceMemory
from service.runtime.session import OnnxSession, SessionOptions
from tests.fakes.sessions import END_ID, generator_manifest, write_byte_tokenizer

NUM_HEADS, HEAD_SIZE = 2, 8
SIZE = NUM_HEADS * HEAD_SIZE
VOCAB_SIZE = END_ID + 1
START_ID = END_ID
MAX_SOURCE, MAX_OUTPUT = 12, 8
MAX_TOKENS = MAX_SOURCE + MAX_OUTPUT
PASTS = ("past_key_values.0.key", "past_key_values.0.value")
PRESENTS = ("present.0.key", "present.0.value")
CROSS = ("cross.0.key", "cross.0.value")
SLOT_BYTES = 2 * SIZE * 4 * MAX_TOKENS
Shape = Sequence[str | int]

_RANDOM = np.random.default_rng(0)
WORDS = _RANDOM.normal(size=(VOCAB_SIZE, SIZE)).astype(np.float32)
PLACES = _RANDOM.normal(size=(MAX_TOKENS, SIZE)).astype(np.float32)
OUTPUTS = _RANDOM.normal(size=(SIZE, VOCAB_SIZE)).astype(np.float32)


def encoder_graph(names: Sequence[str] = CROSS, kind: int = TensorProto.FLOAT) -> bytes:
    """Keys are a token's vector, its place's and the source's mean; values their opposite."""
    nodes = [
        helper.make_node("Shape", ["input_ids"], ["num_tokens"], start=1, end=2),
        helper.make_node("Squeeze", ["num_tokens"], ["limit"]),
        helper.make_node("Range", ["zero", "limit", "one"], ["range"]),
        helper.make_node("Gather", ["words", "input_ids"], ["word"]),
        helper.make_node("Gather", ["places", "range"], ["place"]),
        helper.make_node("Add", ["word", "place"], ["both"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last"], ["weights"]),
        helper.make_node("Mul", ["both", "weights"], ["counted"]),
        helper.make_node("ReduceSum", ["counted", "first"], ["sums"]),
        helper.make_node("ReduceSum", ["weights", "first"], ["counts"]),
        helper.make_node("Div", ["sums", "counts"], ["mean"]),
        helper.make_node("Add", ["both", "mean"], ["hidden"]),
        *_in_heads("hidden", "heads"),
        helper.make_node("Cast", ["heads"], [names[0]], to=kind),
        helper.make_node("Neg", ["heads"], ["opposite"]),
        helper.make_node("Cast", ["opposite"], [names[1]], to=kind),
    ]
    inputs = [
        _tensor(name, TensorProto.INT64, ["batch", "source"])
        for name in ("input_ids", "attention_mask")
    ]
    cross: Shape = ["batch", NUM_HEADS, "source", HEAD_SIZE]
    outputs = [_tensor(name, kind, cross) for name in names]
    constants = {"zero": np.array(0), "one": np.array(1), "last": np.array([2])}
    return _made("encoder", nodes, inputs, outputs, {**constants, "first": np.array([1])})


def decoder_graph() -> bytes:
    """Attention to itself with a cache, plus attention to the source, times the output matrix."""
    taken = ["hidden", "hidden", "hidden", *PASTS, "seqlens_k", "total_sequence_length"]
    nodes = [
        helper.make_node("Gather", ["words", "input_ids"], ["word"]),
        helper.make_node("Gather", ["places", "position_ids"], ["place"]),
        helper.make_node("Add", ["word", "place"], ["hidden"]),
        helper.make_node(
            "GroupQueryAttention",
            taken,
            ["itself", *PRESENTS],
            domain="com.microsoft",
            num_heads=NUM_HEADS,
            kv_num_heads=NUM_HEADS,
        ),
        *_in_heads("hidden", "queries"),
        helper.make_node("Transpose", [CROSS[0]], ["keys"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["queries", "keys"], ["products"]),
        helper.make_node("Mul", ["products", "scale"], ["scores"]),
        helper.make_node("Shape", [CROSS[0]], ["num_tokens"], start=2, end=3),
        helper.make_node("Squeeze", ["num_tokens"], ["limit"]),
        helper.make_node("Range", ["zero", "limit", "one"], ["range"]),
        helper.make_node("Unsqueeze", ["source_lengths", "after"], ["lengths"]),
        helper.make_node("Less", ["range", "lengths"], ["is_there"]),
        helper.make_node("Where", ["is_there", "scores", "nothing"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", CROSS[1]], ["attended"]),
        helper.make_node("Transpose", ["attended"], ["by_token"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["by_token", "flat"], ["source"]),
        helper.make_node("Reshape", ["itself", "flat"], ["own"]),
        helper.make_node("Add", ["own", "source"], ["all"]),
        helper.make_node("Gather", ["all", POSITIONS], ["wanted"]),
        helper.make_node("MatMul", ["wanted", "outputs"], ["logits"]),
    ]
    past: Shape = ["batch", NUM_HEADS, "cache", HEAD_SIZE]
    cross: Shape = ["batch", NUM_HEADS, "source", HEAD_SIZE]
    inputs = [
        *(_tensor(name, TensorProto.INT64, ["batch", "tokens"]) for name in INPUTS[:2]),
        _tensor("seqlens_k", TensorProto.INT32, ["batch"]),
        _tensor("total_sequence_length", TensorProto.INT32, []),
        _tensor(POSITIONS, TensorProto.INT64, ["wanted"]),
        _tensor("source_lengths", TensorProto.INT64, ["batch"]),
        *(_tensor(name, TensorProto.FLOAT, past) for name in PASTS),
        *(_tensor(name, TensorProto.FLOAT, cross) for name in CROSS),
    ]
    outputs = [
        _tensor("logits", TensorProto.FLOAT, ["wanted", VOCAB_SIZE]),
        *(_tensor(name, TensorProto.FLOAT, past) for name in PRESENTS),
    ]
    constants = {
        "zero": np.array(0),
        "one": np.array(1),
        "after": np.array([1, 2, 3]),
        "flat": np.array([-1, SIZE]),
        "scale": np.array(HEAD_SIZE**-0.5, np.float32),
        "nothing": np.array(-np.inf, np.float32),
        "outputs": OUTPUTS,
    }
    return _made("decoder", nodes, inputs, outputs, constants)


def _in_heads(name: str, result: str) -> list[onnx.NodeProto]:
    """[B, S, D] to [B, H, S, h]."""
    return [
        helper.make_node("Reshape", [name, "split"], [f"{result}_split"]),
        helper.make_node("Transpose", [f"{result}_split"], [result], perm=[0, 2, 1, 3]),
    ]


def _made(
    name: str,
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    constants: dict[str, np.ndarray],
) -> bytes:
    shared = {"words": WORDS, "places": PLACES, "split": np.array([0, 0, NUM_HEADS, HEAD_SIZE])}
    arrays = [numpy_helper.from_array(a, key) for key, a in (shared | constants).items()]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_graph(nodes, name, inputs, outputs, arrays)
    return helper.make_model(made, opset_imports=opsets, ir_version=10).SerializeToString()


def _tensor(name: str, kind: int, shape: Shape) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def logits_after(source: Sequence[int], output: Sequence[int] = ()) -> np.ndarray:
    """[V] after a source and what was said of its output, recomputed from scratch."""
    source_SD = WORDS[list(source)] + PLACES[: len(source)]
    source_SD = source_SD + source_SD.mean(axis=0)
    own_SD = WORDS[[START_ID, *output]] + PLACES[: 1 + len(output)]
    attended_D = _attended(own_SD[-1], own_SD, own_SD)
    attended_D += _attended(own_SD[-1], source_SD, -source_SD)
    logits_V: np.ndarray = attended_D @ OUTPUTS
    return logits_V


def _attended(query_D: np.ndarray, keys_SD: np.ndarray, values_SD: np.ndarray) -> np.ndarray:
    query_Hh = query_D.reshape(NUM_HEADS, HEAD_SIZE)
    keys, values = (each.reshape(-1, NUM_HEADS, HEAD_SIZE) for each in (keys_SD, values_SD))
    scores_HS = np.einsum("shd,hd->hs", keys, query_Hh) / np.sqrt(HEAD_SIZE)
    weights_HS = np.exp(scores_HS - scores_HS.max(axis=1, keepdims=True))
    weights_HS /= weights_HS.sum(axis=1, keepdims=True)
    attended_D: np.ndarray = np.einsum("hs,shd->hd", weights_HS, values).reshape(-1)
    return attended_D


def greedy_output(source: Sequence[int], num_tokens: int) -> list[int]:
    """Its most likely tokens, the end included."""
    output: list[int] = []
    while len(output) < num_tokens and END_ID not in output:
        output.append(int(logits_after(source, output).argmax()))
    return output


def make_encoder_decoder(num_slots: int = 6, memory: DeviceMemory | None = None) -> EncoderDecoder:
    return EncoderDecoder(
        OnnxSession(encoder_graph(), SessionOptions()),
        OnnxSession(decoder_graph(), SessionOptions()),
        SourceLimits(MAX_SOURCE, END_ID, START_ID),
        num_slots=num_slots,
        max_tokens=MAX_TOKENS,
        max_rows=num_slots,
        memory=memory,
    )


def source_manifest(**changes: Any) -> Manifest:
    fields: dict[str, Any] = {
        "network": "encoder-decoder",
        "max_tokens": MAX_TOKENS,
        "max_source_tokens": MAX_SOURCE,
        "decoder_start_token_id": START_ID,
        "pad_token_id": END_ID,
    }
    return generator_manifest(**fields | changes)


def write_encoder_decoder(
    repository: Path,
    name: str,
    manifest: Manifest | None = None,
    config: str = "",
    graphs: dict[str, bytes] | None = None,
) -> Path:
    """A model's folder; its tokenizer ends a source with the end of text."""
    version = repository / name / "1"
    version.mkdir(parents=True)
    if config:
        (version.parent / "config.pbtxt").write_text(config)
    (version / "manifest.json").write_text((manifest or source_manifest()).to_json())
    made = {"encoder.onnx": encoder_graph, "model.onnx": decoder_graph}
    for filename, make in made.items():
        graph = (graphs or {}).get(filename)
        (version / filename).write_bytes(make() if graph is None else graph)
    path = version / "tokenizer.json"
    write_byte_tokenizer(path)
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.post_processor = TemplateProcessing(
        single="$A <|endoftext|>", special_tokens=[("<|endoftext|>", END_ID)]
    )
    tokenizer.save(str(path))
    return version.parent
