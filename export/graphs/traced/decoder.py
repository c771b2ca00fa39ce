"""A decoder of transformers as the graph that `export/graphs/cached_decoder.py` describes.

Nothing is written anew: the library's own forward pass is traced, with our functions for attention,
experts and kernels with states, and without its cache. States come behind the caches, as
`past_state.{i}` and `present_state.{i}`, [B, sizes]. The output layer is given the wanted tokens
alone, so that what follows it (scales, caps) stays transformers'.
"""

# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, S tokens, N wanted, D hidden size

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import onnx
import torch
from torch import Tensor, nn

from export.errors import ExportError
from export.graphs.adapted_decoder import (
    AdaptedProduct,
    AdapterPlaces,
    AdapterPlan,
    check_targets,
)
from export.graphs.cached_decoder import INPUTS, NUM_CACHED, NUM_ROWS, OPERATOR, StepExample
from export.graphs.graph import DTYPES, OPSET, check_fused, clean
from export.graphs.traced.attention import (
    Emit,
    OwnAttentionError,
    answered,
    asking,
    looked_at,
)
from export.graphs.traced.calls import NAME, SDPA, Layer
from export.graphs.traced.experts import with_experts
from export.graphs.traced.norms import with_norms
from export.graphs.traced.products import layers_of_products
from export.graphs.traced.states import (
    CONVOLUTION,
    RECURRENCE,
    EmitStates,
    LookStates,
    kernels_answered,
)
from export.graphs.weightless import Weights, export_weightless, skeleton
from export.settings import TARGETS_BY_PEFT
from models.errors import reason
from models.networks.traced import EAGER, TracedDecoder
from service.contract.manifest import Precision
from service.generation.decoders.shape import cache_names, state_names

NUM_LOOKED = 3  # tokens of the pass that looks at layers
NUM_COMPARED = 12  # tokens of the pass that compares transformers' ways of attention
TOLERANCE = 1e-4
WHOLE = 1  # dimensions of weights that are in memory while a graph is traced: norms and biases


def trace_traced(
    decoder: TracedDecoder, plan: AdapterPlan | None = None, *, precision: Precision = "fp32"
) -> onnx.ModelProto:
    """The graph, or `ExportError` unless each layer's attention became one node.

    `precision` is of weights and caches, as `trace_decoder` has it. With a plan, products have
    places for adapters, as `export/graphs/adapted_decoder.py` has them.
    """
    layers, states = looked(decoder)
    if precision in DTYPES and any(each.slopes is not None for each in layers):
        raise ExportError(
            f"precision is {precision}, and the network adds places to scores, which the cache "
            "would have rounded: choose fp32 or int8"
        )
    tensors_of = cache_names(len(layers)) + state_names(len(states))
    pasts, presents = zip(*tensors_of, strict=True)
    size = (
        NUM_ROWS,
        max((each.num_kv_heads for each in layers), default=0),
        NUM_CACHED,
        max((each.head_size for each in layers), default=0),
    )
    sizes = [size] * 2 * len(layers) + [(NUM_ROWS, *state) for state in states]
    step, cached = StepExample.made(), torch.export.Dim("cache")
    dtype = DTYPES.get(precision, torch.float32)
    tensors = (*step.tensors, *(torch.zeros(each, dtype=dtype) for each in sizes))
    (of_ids, of_positions, *of_others), of_cache = step.shapes, {0: step.rows, 2: cached}
    of_pasts = [of_cache] * 2 * len(layers) + [{0: step.rows}] * len(states)
    shapes = of_ids, of_positions, (*of_others, *of_pasts)
    inputs, outputs = (*INPUTS, *pasts), ("logits", *presents)
    with (
        bare(decoder, dtype) as (network, weights, num_experts),
        with_places(network.network, plan) as places,
    ):
        if plan is not None:
            names, given = places.inputs(plan)
            inputs, tensors = (*inputs, *names), (*tensors, *given)
            shapes = of_ids, of_positions, (*shapes[2], {0: step.rows}, *[{}] * len(given[1:]))
        traced = TracedStep(network, layers, places, len(states))
        try:
            program = export_weightless(traced, tensors, inputs, shapes, OPSET, weights)
        except ExportError:
            raise
        except Exception as error:
            raise ExportError(
                f"{type(decoder.network).__name__} cannot be traced: {reason(error)}"
            ) from error
    model = clean(program, inputs, outputs)
    check_fused(model, OPERATOR, len(layers))
    num_states = sum(node.op_type in (CONVOLUTION, RECURRENCE) for node in model.graph.node)
    if num_states != len(states):
        raise ExportError(f"the graph has {num_states} nodes with states for {len(states)} states")
    num_emitted = sum(node.op_type == "MoE" for node in model.graph.node)
    if num_emitted != num_experts:
        raise ExportError(f"the graph has {num_emitted} MoE nodes for {num_experts} experts")
    return model


@contextmanager
def bare(
    decoder: TracedDecoder, dtype: torch.dtype = torch.float32
) -> Iterator[tuple[TracedDecoder, Weights, int]]:
    """A copy to trace, whose matrices have no numbers; these by name; the number of experts."""
    with prepared(decoder) as num_experts:
        yield skeleton(decoder, WHOLE), Weights.of(decoder, dtype), num_experts


@contextmanager
def prepared(decoder: TracedDecoder) -> Iterator[int]:
    """While entered, norms and experts are one node each; gives the number of the experts."""
    with with_norms(decoder.network), with_experts(decoder.network) as num_experts:
        yield num_experts


@contextmanager
def at_head(network: Any, wanted: Callable[[Tensor], Tensor]) -> Iterator[None]:  # noqa: ANN401
    """While entered, the output layer reads the tokens that `wanted` takes of all."""

    def change(_: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        hidden, *rest = given
        return wanted(hidden), *rest

    hook = network.get_output_embeddings().register_forward_pre_hook(change)
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def with_places(network: nn.Module, plan: AdapterPlan | None) -> Iterator[AdapterPlaces]:
    """While entered, products that the plan names have places for adapters."""
    places = AdapterPlaces()
    found = [
        (network.get_submodule(name.rpartition(".")[0]), name, module)
        for name, module in network.named_modules()
        if plan and isinstance(module, nn.Linear) and _target(name) in plan.targets
    ]
    if plan is not None:
        check_targets(plan, {_target(name) for _, name, _ in found})
    try:
        for parent, name, module in found:
            sizes = {f"network.{name}": (module.in_features, module.out_features)}
            setattr(parent, name.rpartition(".")[2], AdaptedProduct(module, sizes, places))
        yield places
    finally:
        for parent, name, module in found:
            setattr(parent, name.rpartition(".")[2], module)


def _target(name: str) -> str:
    last = name.rpartition(".")[2]
    return TARGETS_BY_PEFT.get(last, last)


def layers_of(decoder: TracedDecoder) -> list[Layer]:
    """The layers of a decoder that compute attention. Raises `ExportError`."""
    return looked(decoder)[0]


def looked(decoder: TracedDecoder) -> tuple[list[Layer], list[tuple[int, ...]]]:
    """The layers of a decoder that compute attention, and the states of the others.

    Raises `ExportError` for layers that neither a cache nor states hold.
    """
    network, config = decoder.network, decoder.config
    most = config.max_positions
    look = LookStates()

    def forward(num_tokens: int = min(NUM_LOOKED, most)) -> None:
        look.states.clear()
        with kernels_answered(network, look):
            decoder(torch.zeros(1, num_tokens, dtype=torch.int64))

    no_places = f"{type(network).__name__} takes no position_ids, so it cannot go on from a cache"
    try:
        layers = _by_any_way(decoder, forward)
    except ExportError as error:
        if decoder.takes_positions or look.states:
            raise
        raise ExportError(no_places) from error
    are_placed = bool(layers) and all(each.slopes is not None for each in layers)
    if not decoder.takes_positions and not are_placed and (layers or not look.states):
        raise ExportError(no_places)
    if len(layers) != config.num_layers and not look.states:
        raise ExportError(
            f"{len(layers)} of {config.num_layers} layers of {type(network).__name__} compute "
            "attention by transformers' interface, and all of them must"
        )
    most = max((each.num_kv_heads for each in layers), default=0)
    if any(most % each.num_kv_heads or each.num_heads % most for each in layers):
        heads = sorted({each.num_kv_heads for each in layers})
        raise ExportError(
            f"layers have {heads} heads of keys, of which the largest must be a multiple of each, "
            "and part each layer's heads evenly"
        )
    return layers, look.states


def _by_any_way(decoder: TracedDecoder, forward: Callable[..., object]) -> list[Layer]:
    """The layers that ask for attention by transformers' register, else by PyTorch's function.

    Of a network that does neither, those that multiply by themselves.
    """
    network, context = decoder.network, decoder.config.max_positions
    has_sdpa = getattr(network, "_supports_sdpa", False)
    try:
        return looked_at(network, forward, context)
    except ExportError as error:
        by_itself = isinstance(error, OwnAttentionError)
        try:
            if not has_sdpa:
                raise
            return looked_at(network, forward, context, SDPA)
        except ExportError:
            if not by_itself or not (layers := layers_of_products(network, forward, context)):
                raise
            if has_sdpa:
                _check_one_answer(decoder)
            return layers


@torch.inference_mode()
def _check_one_answer(decoder: TracedDecoder) -> None:
    """Raise `ExportError` where transformers' own ways of attention differ from each other."""
    ids = torch.arange(min(NUM_COMPARED, decoder.config.max_positions))[None]
    ids %= decoder.config.vocab_size
    eager = decoder(ids)
    with asking(decoder.network.modules(), "_attn_implementation", SDPA):
        difference = float((decoder(ids) - eager).abs().max())
    if difference > TOLERANCE * max(1.0, float(eager.abs().max())):
        raise ExportError(
            f"{type(decoder.network).__name__} has other logits by transformers' attention "
            f"{EAGER} than by {SDPA}: they differ by {difference:.1e}, so neither is known to be "
            "right"
        )


class TracedStep(nn.Module):
    """One pass over tokens that go on from a cache: inputs and outputs are the graph's."""

    def __init__(
        self,
        decoder: TracedDecoder,
        layers: list[Layer],
        places: AdapterPlaces,
        num_states: int,
    ) -> None:
        super().__init__()
        self.num_states = num_states
        self.network = decoder
        self.layers = layers
        self.places = places

    def forward(
        self, input_ids_BS: Tensor, position_ids_BS: Tensor, *others: Tensor
    ) -> tuple[Tensor, ...]:
        """`others` are two lengths, the positions of logits, the caches, states, and adapters."""
        seqlens, total, logit_positions_N, *rest = others
        ends = 2 * len(self.layers), 2 * len(self.layers) + self.num_states
        pasts, states, adapters = rest[: ends[0]], rest[ends[0] : ends[1]], rest[ends[1] :]
        self.places.take(adapters)
        decoder = self.network

        def wanted(hidden_BSD: Tensor) -> Tensor:
            return hidden_BSD.flatten(0, -2).index_select(0, logit_positions_N)

        emit = Emit(self.layers, (seqlens, total), tuple(pasts), position_ids_BS)
        emit_states = EmitStates(tuple(states))
        way = self.layers[0].way if self.layers else NAME
        with (
            at_head(decoder.network, wanted),
            answered(decoder.network, emit, way),
            kernels_answered(decoder.network, emit_states),
        ):
            logits_NV = decoder.step(input_ids_BS, position_ids_BS)
        if logits_NV.dim() != 2:
            raise ExportError(f"the output layer gave logits of {logits_NV.dim()} dimensions")
        return logits_NV.float(), *emit.presents, *emit_states.presents
