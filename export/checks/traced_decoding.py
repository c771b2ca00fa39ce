"""The graph of a network of transformers beside the library's own pass over whole rows.

The reference is never `generate`, whose cache may drop tokens that a network does not. Prompts are
longer than each window and than the texts of before positions were stretched, and have the token id
0 and the ids of padding and of ends in them. Each kind of attention node is compared alone too, as
a cap on scores shows only where scores are large, which random prompts do not make them.
"""

# ruff: noqa: N806 - suffixes are array layouts: B rows, S tokens, H heads, Dh head size

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch.utils._pytree import tree_map

from export.checks.decoding import (
    CHUNK_TOKENS,
    NUM_STEPS,
    PROMPT_TOKENS,
    ROUNDINGS,
    DecoderParity,
    Row,
    compare_decoding,
    open_graph,
    random_rows,
)
from export.checks.rounding import InFloat64
from export.errors import ExportError
from export.graphs.cached_decoder import OPERATOR
from export.graphs.graph import OPSET, open_session
from export.graphs.traced.attention import asking, repeated
from export.graphs.traced.calls import Layer
from export.graphs.traced.decoder import looked
from export.graphs.traced.states import kernels_replaced
from models.networks.traced import EAGER, TracedDecoder

LIMIT = 1e-5  # of the largest logit, or as it is where that is below 1: float32 adds in any order
NEIGHBOUR_LIMIT = 1e-4
BEYOND = 9  # tokens of a prompt behind a window
CHUNKS_OF_STATES = (1, 7, CHUNK_TOKENS)  # tokens of pieces of a prompt, which carry states on
LONGEST_PROMPT = 2_048  # longer windows are compared in the node alone
IR_VERSION = 10  # of the graph of one node
CAPPED = 2.0  # largest score of the node alone, in caps
LARGEST_SCORE = 8.0  # where nothing is capped


def check_traced(decoder: TracedDecoder, graph: onnx.ModelProto) -> DecoderParity:
    """The differences of a float32 graph. Raises `ExportError` where it computes something else."""
    layers, states = looked(decoder)
    check_nodes(layers, graph)
    largest = [1.0]

    def recompute(num_prompt_tokens: int, row: Row) -> np.ndarray:
        with torch.inference_mode():
            logits_SV = decoder(torch.tensor([row]))[0].numpy()
        largest.append(float(np.abs(logits_SV).max()))
        return np.asarray(logits_SV[num_prompt_tokens - 1 : len(row) - 1])

    prompts = prompts_of(decoder, layers)
    room = min(decoder.config.max_positions, len(prompts[-1]) + NUM_STEPS)
    opened = open_graph(graph, room, len(prompts) + 2)
    chunks = CHUNKS_OF_STATES if states else (CHUNK_TOKENS,)
    parity = compare_decoding(opened, prompts, recompute, None, chunks)
    most = LIMIT * float(np.max(largest))
    if states and parity.max_abs_error > most:
        most = max(most, ROUNDINGS * _rounding(decoder, prompts[-1] * 2))
    for name, limit in (
        ("max_abs_error", most),
        ("changed_tokens", 0.0),
        ("max_neighbour_effect", NEIGHBOUR_LIMIT),
    ):
        value = getattr(parity, name)
        if not value <= limit:
            raise ExportError(
                f"the traced graph differs from transformers: {name} is {value:.1e}, the limit is "
                f"{limit:.1e}"
            )
    return parity


@torch.no_grad()
def _rounding(decoder: TracedDecoder, row: Row) -> float:
    """The largest error of transformers' own logits in float32."""
    ids = torch.tensor([row[: decoder.config.max_positions]])
    plain = decoder(ids)
    with _in_float64(decoder.network):
        return float((decoder(ids) - plain).abs().max())


@contextmanager
def _in_float64(network: Any) -> Iterator[None]:  # noqa: ANN401
    """While entered, transformers' computation of a network with states is in float64.

    In float32 it may be further from that than the limit: what a state remembers is steep, and
    the delta rule solves equations of 64 tokens, where the operator goes on by one token.
    """
    experts = asking(network.modules(), "_experts_implementation", EAGER)
    with InFloat64(), experts, kernels_replaced(network, _widened):  # type: ignore[no-untyped-call]
        yield


def _widened(_: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel whose inputs are of one type: convolutions compare them before they compute."""

    def computed(*inputs: Any, **options: Any) -> Any:  # noqa: ANN401 - transformers'
        widened = partial(tree_map, lambda each: each.double() if torch.is_tensor(each) else each)
        return kernel(*widened(inputs), **widened(options))

    return computed


def prompts_of(decoder: TracedDecoder, layers: Sequence[Layer]) -> list[Row]:
    """Prompts of growing length, one longer than each window of up to `LONGEST_PROMPT` tokens."""
    config = decoder.config
    beyond = [layer.mask.window + BEYOND for layer in layers if layer.mask.window]
    lengths = {*PROMPT_TOKENS, *(each for each in beyond if each <= LONGEST_PROMPT)}
    longest = max(1, config.max_positions - NUM_STEPS // 2, config.max_positions // 3)
    prompts = random_rows(config.vocab_size, sorted(lengths), longest)
    stated = (config.values.get("pad_token_id"), *config.eos_token_ids)
    special = [0, *(each for each in stated if isinstance(each, int))]
    for prompt in prompts:
        for place, token_id in enumerate(special):
            if 2 * place < len(prompt) and 0 <= token_id < config.vocab_size:
                prompt[2 * place] = token_id
    return prompts


def check_nodes(layers: Sequence[Layer], graph: onnx.ModelProto) -> None:
    """Raise `ExportError` where a node alone differs from transformers' function for attention."""
    nodes = [node for node in graph.graph.node if node.op_type == OPERATOR]
    stored = {tensor.name: tensor for tensor in graph.graph.initializer}
    checked = set()
    for index, (node, layer) in enumerate(zip(nodes, layers, strict=True)):
        sinks = stored.get(node.input[11]) if len(node.input) > 11 else None
        kind = (
            (node.SerializeToString(deterministic=True), layer.mask)
            if sinks
            else _kind(node, layer)
        )
        if kind not in checked:
            checked.add(kind)
            _check_node(index, node, layer, sinks)


def _kind(node: onnx.NodeProto, layer: Layer) -> tuple[object, ...]:
    attributes = sorted((each.name, helper.get_attribute_value(each)) for each in node.attribute)
    return (*attributes, layer.mask, layer.softcap, layer.key_size, layer.value_size)


def _check_node(index: int, node: onnx.NodeProto, layer: Layer, sinks: Any) -> None:  # noqa: ANN401
    generator = torch.Generator().manual_seed(index)
    num_keys = max(PROMPT_TOKENS) if not layer.mask.window else layer.mask.window + BEYOND
    shape_q = (1, layer.num_heads, 1, layer.key_size)
    query = torch.randn(shape_q, generator=generator)
    key = torch.randn(1, layer.num_kv_heads, num_keys, layer.key_size, generator=generator)
    value = torch.randn(1, layer.num_kv_heads, num_keys, layer.value_size, generator=generator)
    repeated = key.repeat_interleave(layer.num_heads // layer.num_kv_heads, dim=1)
    largest = float((query @ repeated.transpose(-1, -2)).abs().max()) * layer.scale
    query = query * ((CAPPED * layer.softcap if layer.softcap else LARGEST_SCORE) / largest)
    seen = layer.mask.seen(torch.tensor([num_keys - 1]), num_keys)
    mask = torch.zeros(1, 1, 1, num_keys).masked_fill(~seen, torch.finfo(torch.float32).min)
    with torch.inference_mode():
        expected = layer.eager(query, key, value, mask)
    made = _run_node(node, layer, (query, key, value), sinks)
    difference = float(np.abs(made - expected.reshape(made.shape).numpy()).max())
    limit = LIMIT * max(1.0, float(expected.abs().max()))
    if not difference <= limit:
        raise ExportError(
            f"attention of layer {index}, alone, differs from transformers' by {difference:.1e} "
            f"with scores as large as trained ones, the limit is {limit:.1e}"
        )


def _run_node(
    node: onnx.NodeProto,
    layer: Layer,
    inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    sinks: Any,  # noqa: ANN401 - an initializer, or none
) -> np.ndarray:
    """The node's output for one query behind all keys but the last, which come from a cache."""
    size, num_keys = layer.head_size, inputs[1].shape[2]
    num_cached = int(helper.get_node_attr_value(node, "kv_num_heads"))
    query, key, value = (
        np.pad(each.numpy(), ((0, 0), (0, 0), (0, 0), (0, size - each.shape[-1])))
        for each in (inputs[0], *(repeated(each, num_cached) for each in inputs[1:]))
    )
    feeds = {
        "query": query.transpose(0, 2, 1, 3).reshape(1, 1, -1),
        "key": key[:, :, -1:].transpose(0, 2, 1, 3).reshape(1, 1, -1),
        "value": value[:, :, -1:].transpose(0, 2, 1, 3).reshape(1, 1, -1),
        "past_key": np.ascontiguousarray(key[:, :, :-1]),
        "past_value": np.ascontiguousarray(value[:, :, :-1]),
        "seqlens_k": np.array([num_keys - 1], np.int32),
        "total": np.array(num_keys, np.int32),
    }
    names = [*feeds, *([""] * 4 + ["sinks"] if sinks is not None else [])]
    copied = helper.make_node(OPERATOR, names, ["out", "k", "v"], domain="com.microsoft")
    copied.attribute.extend(node.attribute)
    stored = [numpy_helper.from_array(numpy_helper.to_array(sinks), "sinks")] if sinks else []
    ends = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in feeds.items()
    ]
    outputs = [helper.make_tensor_value_info("out", TensorProto.FLOAT, feeds["query"].shape)]
    graph = helper.make_graph([copied], "attention", ends, outputs, stored)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
    session = open_session(model)
    (made,) = session.run(feeds, ["out"])
    made = made.reshape(1, 1, layer.num_heads, size)
    return np.asarray(made[..., : layer.value_size])
