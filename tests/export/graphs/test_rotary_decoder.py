"""Decoders of Llama's kind: the cached graph equals PyTorch in each of the families' forms."""

from collections import Counter
from typing import Any

import onnx
import pytest

from export.checks.decoding import logits_rounding, measure_parity
from export.checks.norms_apart import with_norms_apart
from export.checks.paged_decoding import check_paged
from export.checks.provider_support import unsupported_nodes
from export.errors import ExportError
from export.graphs.cached_decoder import trace_decoder
from export.graphs.graph import fused_ops
from export.graphs.paged_decoder import trace_paged_decoder
from export.precision.blockwise import quantize_blocks
from export.precision.per_token import quantize_rows
from export.recipes.decoders import LIMITS
from models.networks.llama import Llama
from models.networks.ropes import NO_ROPE, Rope
from service.contract.manifest import Precision
from tests.fakes.processor import in_blocks
from tests.fakes.tiny_llama import tiny_llama

MAX_ABS_ERROR = 1e-4
WIDE, LOCAL = Rope.default(16), Rope.default(16, 100.0)
FORMS: dict[str, dict[str, Any]] = {
    "llama": {},
    "one head of keys": {"num_kv_heads": 1},
    "qwen2": {"query_key_value_bias": True},
    "qwen3": {"query_key_norm": "head", "head_size": 32, "ropes": (Rope.default(32),)},
    "gemma2": {
        "norm_placement": "both",
        "attention_softcap": 5.0,
        "final_softcap": 3.0,
        "windows": (8, 0, 8),
        "activation": "gelu_tanh",
        "embedding_scale": 8.0,
    },
    "gemma3": {
        "norm_placement": "both",
        "query_key_norm": "head",
        "windows": (8, 8, 0),
        "ropes": (WIDE, LOCAL),
        "layer_ropes": (1, 1, 0),
    },
    "phi-4-mini": {"head_size": 32, "ropes": (Rope(WIDE.inverse_frequencies, 1.2),)},
    "smollm3": {"layer_ropes": (0, NO_ROPE, 0)},
    "olmo2": {"norm_placement": "post", "query_key_norm": "all", "is_tied": False},
    "llama with biases": {
        "query_key_value_bias": True,
        "output_bias": True,
        "feed_forward_bias": True,
        "attention_scale": 0.1,
    },
}


def check_exact(network: Llama, graph: onnx.ModelProto) -> None:
    """As an export in float32 does."""
    parity = measure_parity(network, graph, is_exact=True)
    LIMITS["fp32"].check(parity, lambda: logits_rounding(network))


@pytest.mark.parametrize("form", FORMS)
def test_decoding_from_the_cache_equals_the_network(form: str) -> None:
    network = tiny_llama(**FORMS[form])
    graph = trace_decoder(network)
    assert fused_ops(graph)["GroupQueryAttention"] == network.config.num_layers
    check_exact(network, graph)


@pytest.mark.parametrize("form", FORMS)
def test_decoding_over_blocks_equals_the_network(form: str) -> None:
    """With the operator in NumPy, and the weights as bfloat16 rounds them."""
    network = tiny_llama(**FORMS[form])
    graph = trace_paged_decoder(network, precision="bf16")
    assert fused_ops(graph)["PagedAttention"] == network.config.num_layers
    assert unsupported_nodes(graph) == ()
    assert check_paged(network, graph, "bf16")["max_abs_error"] < MAX_ABS_ERROR


@pytest.mark.parametrize("form", ["qwen3", "gemma3"])
def test_norms_inside_the_operator_are_those_before_it(form: str) -> None:
    """The graph for CUDA has no nodes for them; taken out again, the CPU computes them."""
    network = tiny_llama(**FORMS[form])
    inside = trace_decoder(network, has_norms_inside=True)
    apart = trace_decoder(network)
    num_norms = Counter(node.op_type for node in inside.graph.node)["RMSNormalization"]
    assert Counter(node.op_type for node in apart.graph.node)["RMSNormalization"] == num_norms + 6
    check_exact(network, with_norms_apart(inside))


def test_a_wrong_weight_inside_the_operator_is_found() -> None:
    network = tiny_llama(**FORMS["qwen3"])
    graph = trace_decoder(network, has_norms_inside=True)
    for node in graph.graph.node:
        if node.op_type == "GroupQueryAttention":
            node.input[14], node.input[15] = node.input[15], node.input[14]
    with pytest.raises(ExportError, match="max_abs_error is"):
        check_exact(network, with_norms_apart(graph))


def test_layers_with_one_rope_share_its_tables() -> None:
    graph = trace_decoder(tiny_llama(**FORMS["gemma3"]))
    tables = {node.input[7] for node in graph.graph.node if node.op_type == "GroupQueryAttention"}
    assert len(tables) == 2


@pytest.mark.parametrize("precision", ["int8", in_blocks("int4-weights")])
def test_quantised_graphs_decode_as_they_read_prompts(precision: Precision) -> None:
    network = tiny_llama(query_key_norm="head")
    graph = trace_decoder(network)
    rounded = quantize_rows(graph) if precision == "int8" else quantize_blocks(graph, bits=4)
    LIMITS[precision].check(measure_parity(network, rounded, is_exact=False))


def test_heads_that_cannot_be_rotated_are_refused_by_name() -> None:
    with pytest.raises(ExportError, match="head_size is 8, but rotated heads must be multiples"):
        trace_decoder(tiny_llama(head_size=8, ropes=(Rope.default(8),)))
