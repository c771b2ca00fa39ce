"""The graph of a network of transformers that reads texts, beside the library's own whole rows.

Rows are longer than each window, and have the token id 0 and those of padding and of ends in them.
A cap on scores, which shows only where scores are large, is compared in the operator alone.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper
from torch import nn

from export.checks.parity import Parity, compare_batch, pad, run_network
from export.checks.traced_decoding import (
    BEYOND,
    CAPPED,
    IR_VERSION,
    LARGEST_SCORE,
    LIMIT,
    LONGEST_PROMPT,
    NEIGHBOUR_LIMIT,
)
from export.errors import ExportError
from export.graphs.graph import OPSET, open_session
from export.graphs.traced.calls import Layer
from export.graphs.traced.rows import NODE, layers_of_reader
from models.networks.traced_readers import TracedReader, network_of

ROW_TOKENS = (1, 2, 7, 40)
NUM_ALONE = 24  # tokens of the operator alone


def check_reader(reader: TracedReader, graph: onnx.ModelProto) -> dict[str, Parity]:
    """The differences of a float32 graph. Raises `ExportError` where it computes something else."""
    layers = layers_of_reader(reader)
    if not layers:
        check_longest(reader)
    check_alone(layers, graph)
    rows = rows_of(reader, layers)
    halves = [[0] * (len(row) - len(row) // 2) + [1] * (len(row) // 2) for row in rows]
    batch = pad(rows, reader.pad_token_id, halves if reader.has_token_types else ())
    largest = max(float(np.abs(each).max()) for each in run_network(reader, batch).values())
    try:
        parities = compare_batch(reader, graph, batch, LIMIT * max(1.0, largest))
    except ExportError as error:
        raise ExportError(f"the traced graph differs from transformers: {error}") from error
    for name, parity in parities.items():
        if not parity.max_neighbour_effect <= NEIGHBOUR_LIMIT:
            raise ExportError(
                f"the traced graph differs from transformers: neighbours move {name} by "
                f"{parity.max_neighbour_effect:.1e}, the limit is {NEIGHBOUR_LIMIT:.0e}"
            )
    return parities


def rows_of(reader: TracedReader, layers: Sequence[Layer]) -> list[list[int]]:
    """Rows of growing length, one longer than each window, with tokens that are special."""
    config, generator = reader.config, np.random.default_rng(0)
    beyond = {2 * layer.mask.window + BEYOND for layer in layers if layer.mask.window}
    longest = min(config.max_positions, LONGEST_PROMPT)
    own = () if layers else (longest,)  # code of its own may choose by the length of a text
    lengths = {min(each, longest) for each in (*ROW_TOKENS, *beyond, *own)}
    special = [0, config.pad_token_id, config.values.get("eos_token_id")]
    rows = []
    for length in sorted(lengths, reverse=True):
        row = reader.as_sample(generator.integers(reader.vocab_size, size=length).tolist())
        for place, token in enumerate(special):
            if 2 * place + 2 < length and isinstance(token, int) and token < reader.vocab_size:
                row[2 * place + 2] = token
        rows.append(row)
    return rows


def check_longest(reader: TracedReader) -> None:
    """Raise `ExportError` where attention of a network's own is another for the longest texts.

    It may choose by the length of each text, which rows of up to `LONGEST_PROMPT` tokens tell. Or
    it changes its modules for the first short text: then all that came after it, the reference
    too, was computed by those.
    """
    most = reader.config.max_positions
    if most > LONGEST_PROMPT:
        raise ExportError(
            f"texts have up to {most} tokens, and attention of a network's own is compared for at "
            f"most {LONGEST_PROMPT}: choose a --context of {LONGEST_PROMPT} or fewer"
        )
    fresh, own = network_of(reader.config).eval(), _kinds(reader.network)
    if own.items() <= _kinds(fresh).items():
        return
    ids = torch.zeros(1, most, dtype=torch.int64)
    with torch.inference_mode(), suppress(Exception):  # what fails here is not as short texts are
        fresh(**reader.inputs(ids, torch.ones_like(ids), None))
    if not own.items() <= _kinds(fresh).items():
        raise ExportError(
            f"texts of {most} tokens are computed by other modules of "
            f"{type(reader.network).__name__} than short ones: choose a shorter --context"
        )


def _kinds(network: nn.Module) -> dict[str, type[nn.Module]]:
    return {name: type(module) for name, module in network.named_modules()}


def check_alone(layers: Sequence[Layer], graph: onnx.ModelProto) -> None:
    """Raise `ExportError` where an operator alone differs from transformers' function."""
    nodes = [node for node in graph.graph.node if node.op_type == NODE]
    checked = set()
    for index, (node, layer) in enumerate(zip(nodes, layers, strict=True)):
        options = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        kind = (*sorted(options.items()), layer.softcap, layer.scale, layer.key_size)
        if kind not in checked:
            checked.add(kind)
            _check_alone(index, options, layer)


def _check_alone(index: int, options: dict[str, Any], layer: Layer) -> None:
    """Compare one row without a window, with scores as large as trained ones."""
    generator = torch.Generator().manual_seed(index)
    num_heads = layer.num_heads, layer.num_kv_heads, layer.num_kv_heads
    sizes = layer.key_size, layer.key_size, layer.value_size
    query, key, value = (
        torch.randn(1, heads, NUM_ALONE, size, generator=generator)
        for heads, size in zip(num_heads, sizes, strict=True)
    )
    repeated = key.repeat_interleave(layer.num_heads // layer.num_kv_heads, dim=1)
    largest = float((query @ repeated.transpose(-1, -2)).abs().max()) * layer.scale
    query = query * ((CAPPED * layer.softcap if layer.softcap else LARGEST_SCORE) / largest)
    mask = torch.zeros(1, 1, NUM_ALONE, NUM_ALONE)
    if options.get("is_causal"):
        lowest = torch.finfo(torch.float32).min
        mask = mask.masked_fill(torch.ones(NUM_ALONE, NUM_ALONE).triu(1) > 0, lowest)
    with torch.inference_mode():
        expected = layer.eager(query, key, value, mask).flatten(2).numpy()
    feeds = {
        name: each.transpose(1, 2).flatten(2).numpy()
        for name, each in zip("qkv", (query, key, value), strict=True)
    }
    made = _run_alone(options, feeds, expected.shape)
    difference = float(np.abs(made - expected).max())
    limit = LIMIT * max(1.0, float(np.abs(expected).max()))
    if not difference <= limit:
        raise ExportError(
            f"attention of layer {index}, alone, differs from transformers' by {difference:.1e} "
            f"with scores as large as trained ones, the limit is {limit:.1e}"
        )


def _run_alone(
    options: dict[str, Any], feeds: dict[str, np.ndarray], shape: tuple[int, ...]
) -> np.ndarray:
    node = helper.make_node(NODE, [*feeds], ["out"], **options)
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name, x in feeds.items()
    ]
    outputs = [helper.make_tensor_value_info("out", TensorProto.FLOAT, shape)]
    model = helper.make_model(
        helper.make_graph([node], "attention", ends, outputs),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    (made,) = open_session(model).run(feeds, ["out"])
    return np.asarray(made)
