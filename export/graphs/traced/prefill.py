"""Prompts of a traced decoder as a graph of their own, beside a cache in int8.

The graph is that of `export/graphs/prefill.py`, and the network's code is transformers': its
modules read the tokens of all rows one after the other, and attention alone sees rows apart.
"""

# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, S tokens, N real tokens, V vocabulary

import numpy as np
import onnx
import torch
from torch import Tensor, nn

from export.errors import ExportError
from export.graphs.int8_cache import Largest, scales_of
from export.graphs.prefill import PromptRows, attend, exported, stepped
from export.graphs.traced.attention import answered, joined, options_of, repeated
from export.graphs.traced.calls import Call, Layer
from export.graphs.traced.decoder import at_head, bare, layers_of
from models.networks.traced import TracedDecoder
from service.generation.decoders.shape import cache_names


def trace_traced_prefill(decoder: TracedDecoder, largest: Largest) -> onnx.ModelProto:
    """The graph, or `ExportError` unless each layer's attention became one node."""
    layers = layers_of(decoder)
    if any(layer.has_sinks for layer in layers):
        raise ExportError(
            "kv_cache is int8, whose prompts have a graph of their own, and ONNX's attention in it "
            "has no sinks: take the cache in float"
        )
    if any(layer.slopes is not None for layer in layers):
        raise ExportError(
            "kv_cache is int8, and the network adds places to scores, which are whole numbers of "
            "the cache and would be rounded: take the cache in float"
        )
    caches = [present for _, present in cache_names(len(layers))]
    scales = scales_of(largest)
    steps = [scales[cache] for cache in caches]
    with bare(decoder) as (network, weights, _):
        return exported(_Prefill(network, layers, steps), steps, weights)


class _Prefill(nn.Module):
    """One pass over packed tokens; what is cached is given back."""

    def __init__(
        self, decoder: TracedDecoder, layers: list[Layer], scales: list[np.ndarray]
    ) -> None:
        super().__init__()
        self.network = decoder
        self.layers = layers
        self.num_heads, self.size = scales[0].shape
        self.scales_E = nn.ParameterList(
            nn.Parameter(torch.from_numpy(each.reshape(-1)), requires_grad=False) for each in scales
        )

    def forward(
        self, input_ids_BS: Tensor, attention_mask_BS: Tensor, past: Tensor
    ) -> tuple[Tensor, ...]:
        rows = PromptRows(attention_mask_BS, past, 2 * len(self.layers))
        presents: list[Tensor] = []

        def attention(call: Call) -> Tensor:
            return self._attended(rows, presents, call)

        def last(hidden_1ND: Tensor) -> Tensor:
            return rows.packing.one_each(hidden_1ND, place=-1).squeeze(0)

        decoder = self.network
        with (
            at_head(decoder.network, last),
            answered(decoder.network, attention, self.layers[0].way),
        ):
            logits_BV = decoder.step(rows.packed(input_ids_BS), rows.places_1N)
        return logits_BV.float(), *presents

    def _attended(self, rows: PromptRows, presents: list[Tensor], call: Call) -> Tensor:
        place = len(presents)
        layer, padded = self.layers[place // 2], []
        scales = list(self.scales_E)[place : place + 2]
        for states, scale_E in zip((call.key, call.value), scales, strict=True):
            states_1NE = joined(repeated(states, self.num_heads), self.size)
            steps_1NE = stepped(states_1NE, scale_E)
            presents.append(steps_1NE.to(torch.int8))
            padded.append(rows.packing.unpack(steps_1NE * scale_E))
        query_BSQ = rows.packing.unpack(joined(call.query, self.size))
        options = options_of(layer, self.num_heads)
        mask, past = rows.within(layer.mask.window), rows.past(place, scales)
        key_BSE, value_BSE = padded
        context_BSQ = attend(query_BSQ, key_BSE, value_BSE, mask, past, options)
        context_1NQ = rows.packing.pack(context_BSQ)
        output = context_1NQ.view(*context_1NQ.shape[:-1], layer.num_heads, self.size)
        return output[..., : layer.value_size]
