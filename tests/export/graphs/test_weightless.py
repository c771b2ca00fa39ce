"""A graph that is traced without weights is the graph that is traced with them, to the bit."""

import copy
import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from export.graphs.adapted_decoder import AdapterPlan, trace_adapted
from export.graphs.cached_decoder import DecoderNetwork, trace_decoder
from export.graphs.graph import export_program
from export.graphs.int8_cache import Largest
from export.graphs.paged_decoder import trace_paged_decoder
from export.graphs.prefill import trace_prefill
from export.graphs.tensors import array_of, key_of, made_later
from models.checkpoints.lazy import LazyTensor
from models.networks.gpt import GPT, GPTConfig
from models.networks.llama import Llama, LlamaConfig


def gpt(num_layers: int) -> GPT:
    sizes = GPTConfig(
        vocab_size=64,
        hidden_size=32,
        num_layers=num_layers,
        num_heads=2,
        intermediate_size=64,
        max_positions=32,
        eos_token_id=0,
    )
    return GPT(sizes)


def llama(**fields: Any) -> Callable[[int], DecoderNetwork]:
    return lambda num_layers: Llama(LlamaConfig.plain(64, 64, num_layers, 4, 2, 96, 32, **fields))


NETWORKS: Mapping[str, Callable[[int], DecoderNetwork]] = {
    "gpt": gpt,
    "llama": llama(is_tied=False),
    "all kinds of weights": llama(
        query_key_value_bias=True,
        output_bias=True,
        feed_forward_bias=True,
        query_key_norm="head",
        norm_placement="both",
        activation="gelu_tanh",
        final_softcap=30.0,
    ),
}


def network_of(name: str, num_layers: int, *, is_lazy: bool = False) -> DecoderNetwork:
    """Random in every weight, so that no two are the same."""
    torch.manual_seed(3)
    network = NETWORKS[name](num_layers)
    for weight in network.parameters():
        nn.init.normal_(weight, std=0.3)
    for each in network.modules() if is_lazy else ():
        for own, held in each._parameters.items():
            if held is not None:
                each._parameters[own] = nn.Parameter(LazyTensor.of_mapped(held.detach()))
    return network.eval()


def traced_with_weights(name: str, tracer: str, num_layers: int) -> onnx.ModelProto:
    """The graph by the tracer that sees the weights, and whose own optimiser has them."""

    def whole(network: nn.Module) -> nn.Module:
        return copy.deepcopy(network).eval()

    def trace(module: nn.Module, *given: Any) -> onnx.ModelProto:
        *others, weights = given
        return export_program(module.to(weights.dtype), *others)

    with pytest.MonkeyPatch.context() as patch:
        for place in ("cached_decoder", "paged_decoder", "adapted_decoder", "prefill"):
            patch.setattr(f"export.graphs.{place}.skeleton", whole)
        for place in ("cached_decoder", "paged_decoder", "adapted_decoder", "graph"):
            patch.setattr(f"export.graphs.{place}.export_weightless", trace)
        return TRACERS[tracer](network_of(name, num_layers))


def contents(model: onnx.ModelProto) -> list[object]:
    """Nodes in their order, with values by their places and weights by their bytes."""
    names: dict[str, str] = {"": ""}
    for tensor in model.graph.initializer:
        array = array_of(tensor)
        digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
        names[tensor.name] = f"{array.dtype} {array.shape} {digest}"
    names |= {given.name: given.name for given in model.graph.input}
    described: list[object] = [model.graph.input, model.graph.output]
    for place, node in enumerate(model.graph.node):
        described.append(
            (
                node.op_type,
                node.domain,
                sorted(str(each) for each in node.attribute),
                [names[name] for name in node.input],
                len(node.output),
            )
        )
        names |= {name: f"{place}.{index}" for index, name in enumerate(node.output)}
    return [*described, [names[output.name] for output in model.graph.output]]


def largest_of(network: DecoderNetwork) -> Largest:
    size = network.config.num_kv_heads, network.config.head_size
    layers = range(network.config.num_layers)
    names = [f"present.{i}.{what}" for i in layers for what in ("key", "value")]
    return {name: np.ones(size) for name in names}


TRACERS: Mapping[str, Callable[[DecoderNetwork], onnx.ModelProto]] = {
    "fp32": trace_decoder,
    "fp16": lambda network: trace_decoder(network, precision="fp16", has_norms_inside=True),
    "bf16": lambda network: trace_decoder(network, precision="bf16"),
    "paged": lambda network: trace_paged_decoder(network, precision="fp16"),
    "adapted": lambda network: trace_adapted(network, AdapterPlan(4, 2, ("query", "expand"))),
    "prefill": lambda network: trace_prefill(network, largest_of(network)),
}
EACH = [
    *((name, "fp32") for name in NETWORKS),
    *(("all kinds of weights", tracer) for tracer in TRACERS if tracer != "fp32"),
    *(("gpt", tracer) for tracer in ("adapted", "prefill")),
]


@pytest.mark.parametrize(("name", "tracer"), EACH)
def test_a_graph_without_weights_gets_those_that_it_would_have_been_traced_with(
    name: str, tracer: str
) -> None:
    """Lazy weights are not read before the graph is.

    Of two layers in float32, which each tracer puts in by the same function; else of one.
    """
    num_layers = 2 if tracer == "fp32" else 1
    expected = contents(traced_with_weights(name, tracer, num_layers))
    with made_later():
        graph = TRACERS[tracer](network_of(name, num_layers, is_lazy=True))
        assert any(map(key_of, graph.graph.initializer))
        assert contents(graph) == expected
