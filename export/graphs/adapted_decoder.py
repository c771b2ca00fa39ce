"""A decoder's graph that computes adapters beside its own weights: the places of each row's.

Beside the tensors of `export/graphs/cached_decoder.py`, P places of rank r:

    adapter_mask [B, P, r]                   bool: the place of each row's adapter, or none
    lora.{module}.A [D, P * r]               float32, of every adapted product of every layer
    lora.{module}.B [P * r, O]               float32

A product gives `x W + where(mask, x A, 0) B`. Choosing instead of multiplying by the mask keeps
rows apart also where an adapter's product overflows. A and B are inputs, so that adapters come and
go while the graph is served; see `service/generation/decoders/adapter_buffers.py`.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts, see above; C = P * r

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import onnx
import torch
from torch import Tensor, nn

from export.errors import ExportError
from export.graphs.cached_decoder import (
    INPUTS,
    NUM_CACHED,
    NUM_ROWS,
    OPERATOR,
    CachedAttention,
    CachedDecoder,
    DecoderNetwork,
    StepExample,
    check_sizes,
)
from export.graphs.gated_layers import PackedFeedForward
from export.graphs.graph import OPSET, check_fused, clean
from export.graphs.weightless import Weights, export_weightless, skeleton
from models.networks.layers import FeedForward
from service.contract.adapter import INPUT_SIDE, OUTPUT_SIDE
from service.generation.decoders.adapter_buffers import MASK, PREFIX
from service.generation.decoders.shape import cache_names


class AdapterPlan(NamedTuple):
    """The adapters that a graph has room for, and which products of a layer they change."""

    rank: int
    num_places: int
    targets: tuple[str, ...]  # as `query`, of `attention.query`


def trace_adapted(network: DecoderNetwork, plan: AdapterPlan) -> onnx.ModelProto:
    """The float32 graph, or `ExportError` where the network has no such target."""
    check_sizes(network)
    decoder, weights = _AdaptedDecoder(skeleton(network), plan), Weights.of(network, torch.float32)
    config = network.config
    pasts, presents = zip(*cache_names(config.num_layers), strict=True)
    size = (NUM_ROWS, config.num_kv_heads, NUM_CACHED, config.head_size)
    step, cached = StepExample.made(), torch.export.Dim("cache")
    names, adapters = decoder.places.inputs(plan)
    caches = [torch.zeros(size) for _ in pasts]
    tensors = (*step.tensors, *caches, *adapters)
    (of_ids, of_positions, *of_others), of_cache = step.shapes, {0: step.rows, 2: cached}
    of_adapters = ({0: step.rows}, *[{}] * len(adapters[1:]))
    shapes = (
        of_ids,
        of_positions,
        (*of_others, *[of_cache] * len(pasts), *of_adapters),
    )
    inputs, outputs = (*INPUTS, *pasts, *names), ("logits", *presents)
    traced = export_weightless(decoder, tensors, inputs, shapes, OPSET, weights)
    model = clean(traced, inputs, outputs)
    check_fused(model, OPERATOR, config.num_layers)
    return model


class AdapterPlaces:
    """Inputs of the adapted products of a run, and their sizes: no part of a module's state."""

    def __init__(self) -> None:
        self.mask: Tensor  # bool [B, 1, C]
        self.sides: Mapping[str, tuple[Tensor, Tensor]] = {}  # by module
        self.sizes: dict[str, tuple[int, int]] = {}  # of the targets, by module

    def inputs(self, plan: AdapterPlan) -> tuple[tuple[str, ...], tuple[Tensor, ...]]:
        """The names of the graph's inputs for adapters, and tensors for the tracer."""
        width = plan.num_places * plan.rank
        sides: dict[str, Tensor] = {}
        for module, (num_in, num_out) in self.sizes.items():
            sides[PREFIX + module + INPUT_SIDE] = torch.zeros(num_in, width)
            sides[PREFIX + module + OUTPUT_SIDE] = torch.zeros(width, num_out)
        mask = torch.zeros(NUM_ROWS, plan.num_places, plan.rank, dtype=torch.bool)
        return (MASK, *sides), (mask, *sides.values())

    def take(self, given: Sequence[Tensor]) -> None:
        """Set the inputs for one run; none where nothing is adapted."""
        if given:
            mask_BPr, *sides = given
            self.mask = mask_BPr.flatten(1).unsqueeze(1)
            pairs = zip(sides[::2], sides[1::2], strict=True)
            self.sides = dict(zip(self.sizes, pairs, strict=True))


def check_targets(plan: AdapterPlan, adapted: Collection[str]) -> None:
    """Raise `ExportError` for a product that no layer has."""
    if unknown := sorted(set(plan.targets) - set(adapted)):
        raise ExportError(f"lora_targets has {unknown[0]}, which this network does not have")


class AdaptedProduct(nn.Module):
    """A linear map, or several of the same input as one, with what adapters add to its parts."""

    def __init__(
        self,
        linear: nn.Module,
        sizes: Mapping[str, tuple[int, int]],
        places: AdapterPlaces,
        targets: Collection[str] | None = None,
    ) -> None:
        """`sizes` are of the parts, by module; those in `targets` are adapted, without it all."""
        super().__init__()
        self.linear = linear
        self.parts, self.sizes = list(sizes), [num_out for _, num_out in sizes.values()]
        self.bound = places
        chosen = sizes if targets is None else targets
        places.sizes |= {name: size for name, size in sizes.items() if name in chosen}

    def forward(self, hidden_BSD: Tensor) -> Tensor:
        output: Tensor = self.linear(hidden_BSD)
        if len(self.parts) == 1:
            return output + self._added(self.parts[0], hidden_BSD)
        outputs = [
            part + self._added(name, hidden_BSD) if name in self.bound.sides else part
            for name, part in zip(self.parts, torch.split(output, self.sizes, dim=-1), strict=True)
        ]
        return torch.cat(outputs, dim=-1)

    def _added(self, name: str, hidden_BSD: Tensor) -> Tensor:
        side_DC, side_CO = self.bound.sides[name]
        product_BSC = hidden_BSD @ side_DC
        return torch.where(self.bound.mask, product_BSC, 0.0) @ side_CO


class _AdaptedDecoder(CachedDecoder):
    """The decoder with an `AdaptedProduct` in the place of each product that adapters change."""

    def __init__(self, network: DecoderNetwork, plan: AdapterPlan) -> None:
        super().__init__(network, CachedAttention)
        self.places = AdapterPlaces()
        self.num_pasts = 2 * network.config.num_layers
        for index, (layer, attention) in enumerate(
            zip(network.layers, self.attentions, strict=True)
        ):
            assert isinstance(attention, CachedAttention)
            place, forward = f"layers.{index}.attention", f"layers.{index}.feed_forward"
            query_key_value = [f"{place}.{part}" for part in ("query", "key", "value")]
            self._adapt(plan, attention, "query_key_value", query_key_value, attention.sizes)
            self._adapt(plan, attention, "output", [f"{place}.output"])
            feed_forward = layer.feed_forward
            assert isinstance(feed_forward, PackedFeedForward | FeedForward)
            if isinstance(feed_forward, PackedFeedForward):
                names = [f"{forward}.gate", f"{forward}.expand"]
                self._adapt(plan, feed_forward, "gate_expand", names)
            else:
                self._adapt(plan, feed_forward, "expand", [f"{forward}.expand"])
            self._adapt(plan, feed_forward, "contract", [f"{forward}.contract"])
        check_targets(plan, {module.rsplit(".", 1)[-1] for module in self.places.sizes})

    def forward(
        self, input_ids_BS: Tensor, position_ids_BS: Tensor, *others: Tensor
    ) -> tuple[Tensor, ...]:
        num_own = self.num_lengths + 1 + self.num_pasts
        own = others[:num_own]
        self.places.take(others[num_own:])
        return super().forward(input_ids_BS, position_ids_BS, *own)

    def _adapt(
        self,
        plan: AdapterPlan,
        owner: nn.Module,
        name: str,
        modules: Sequence[str],
        sizes: Sequence[int] = (),
    ) -> None:
        """Put an adapted product into the place of `owner`'s, if one of its parts is a target."""
        linear = getattr(owner, name)
        assert isinstance(linear, nn.Linear)
        sizes = sizes or [linear.out_features // len(modules)] * len(modules)
        of_parts = {
            module: (linear.in_features, size) for module, size in zip(modules, sizes, strict=True)
        }
        chosen = [module for module in modules if module.rsplit(".", 1)[-1] in plan.targets]
        if chosen:
            setattr(owner, name, AdaptedProduct(linear, of_parts, self.places, chosen))
