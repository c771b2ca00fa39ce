"""Prompts from their beginning, as a graph of their own beside a decoder with an int8 cache.

The operator that reads such a cache works token by token: that is right for decoding, where memory
bounds, and slow for a prompt, where arithmetic does. Here the tokens of all prompts lie one after
the other, and attention is ONNX's, over the keys and values of this run, rounded as the decoder
will read them: keys after they were rotated. They are given back, and the server puts them into the
cache. Products are those of the decoder's own graph, so that the two graphs share their weights.
A single row may go on from what its slot has, of which attention reads the values that the steps
stand for: of each token it computes the same bits wherever the prompt is cut.

    input_ids, attention_mask [B, S]         int64, right-padded
    past [B, C * Hkv, P, Dh]                 int8, of all C caches; P is 0 where rows begin
    logits [B, V]                            float32, of each row's last token
    present.{i}.key and .value [1, N, E]     int8, of the N tokens of all rows
"""
# ruff: noqa: N803, N806 - suffixes are array layouts, see above; D hidden size, E = Hkv * Dh

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
import torch
from torch import Tensor, nn

from export.graphs.attention_nodes import rotated_where_packed
from export.graphs.cached_decoder import CachedAttention, CachedDecoder, DecoderNetwork, check_sizes
from export.graphs.graph import OPSET, check_fused, clean
from export.graphs.int8_cache import MAX_STEP, Largest, scales_of
from export.graphs.packing import Packing
from export.graphs.weightless import Weights, export_weightless, skeleton
from models.networks.gpt import DecoderLayer
from models.networks.llama import LlamaLayer
from service.generation.decoders.decoder import PAST, TEXT_INPUTS
from service.generation.decoders.shape import cache_names

OPERATOR = "Attention"
INPUTS = (*TEXT_INPUTS, PAST)


def trace_prefill(network: DecoderNetwork, largest: Largest) -> onnx.ModelProto:
    """The graph, or `ExportError` unless each layer's attention became one node."""
    check_sizes(network)
    num_layers = network.config.num_layers
    caches = [present for _, present in cache_names(num_layers)]
    scales = scales_of(largest)
    steps = [scales[cache] for cache in caches]
    weights = Weights.of(network, torch.float32)
    return exported(_Prefill(skeleton(network), steps), steps, weights)


def exported(prefill: nn.Module, steps: list[np.ndarray], weights: Weights) -> onnx.ModelProto:
    """The graph of a module over packed tokens, of as many layers as there are pairs of caches.

    Raises `ExportError` unless each layer's attention became one node.
    """
    num_layers = len(steps) // 2
    outputs = ("logits", *(present for _, present in cache_names(num_layers)))
    tensors, shapes = example(steps)
    model = clean(
        export_weightless(prefill, tensors, INPUTS, shapes, OPSET, weights), INPUTS, outputs
    )
    check_fused(model, OPERATOR, num_layers)
    name_presents(model)
    return model


def name_presents(model: onnx.ModelProto) -> None:
    """Name what attention has behind its past and nothing reads: ONNX Runtime 1.31 wants names."""
    for node in model.graph.node:
        if node.op_type == OPERATOR:
            context = node.output[0]
            node.output[:] = [context, f"{context}.keys", f"{context}.values"]


def example(scales: list[np.ndarray]) -> tuple[tuple[Tensor, ...], tuple[dict[int, Any], ...]]:
    """A run for the tracer: tensors by `INPUTS`, and the dimensions of each that vary."""
    num_rows, (num_heads, size) = 2, scales[0].shape
    texts = [torch.ones(num_rows, 8, dtype=torch.int64) for _ in TEXT_INPUTS]
    past = torch.zeros(num_rows, len(scales) * num_heads, 5, size, dtype=torch.int8)
    rows, tokens, cached = map(torch.export.Dim, ("batch", "sequence", "past"))
    return (*texts, past), ({0: rows, 1: tokens}, {0: rows, 1: tokens}, {0: rows, 2: cached})


class _Prefill(CachedDecoder):
    """The decoder's own layers over packed tokens; what is cached is given back.

    Of the last layer only keys and values are computed for all tokens: only last ones are read.
    """

    def __init__(self, network: DecoderNetwork, scales: list[np.ndarray]) -> None:
        super().__init__(network, _PromptAttention)
        for index, attention in enumerate(self.attentions):
            assert isinstance(attention, _PromptAttention)
            attention.round_to(*scales[2 * index : 2 * index + 2])

    def forward(  # type: ignore[override]
        self, input_ids_BS: Tensor, attention_mask_BS: Tensor, past: Tensor
    ) -> tuple[Tensor, ...]:
        network, rows = self.network, PromptRows(attention_mask_BS, past, 2 * len(self.attentions))
        hidden_1ND = network.embedded(rows.packed(input_ids_BS), rows.places_1N)
        presents: list[Tensor] = []
        last = len(self.attentions) - 1
        for index, (layer, attention) in enumerate(
            zip(network.layers, self.attentions, strict=True)
        ):
            assert isinstance(layer, DecoderLayer | LlamaLayer)
            assert isinstance(attention, _PromptAttention)
            if index < last:
                attend = partial(attention.over, rows, presents)
                hidden_1ND = layer.around(attend, hidden_1ND)
            else:
                norm = layer.attention_norm
                source_1ND = hidden_1ND if norm is None else norm(hidden_1ND)
                attend = partial(attention.of_last, rows, presents, source_1ND)
                hidden_1ND = layer.around(attend, rows.packing.one_each(hidden_1ND, place=-1))
        return network.logits(network.norm(hidden_1ND.squeeze(0))).float(), *presents


class PromptRows:
    """The places of a batch's tokens, what each may look at, and what the slots have of each cache.

    A row that goes on from a past has no padding: it is the only one.
    """

    def __init__(self, attention_mask_BS: Tensor, past: Tensor, num_caches: int) -> None:
        self.packing = Packing(attention_mask_BS)
        num_tokens = self.packing.position_N.shape[0]
        torch._check(num_tokens > 1)  # type: ignore[no-untyped-call]  # noqa: SLF001 - documented
        self.mask_BS = attention_mask_BS
        self.pasts = past.chunk(num_caches, dim=1)
        self.num_past = past.shape[2]
        self.key_places = torch.arange(self.num_past + attention_mask_BS.shape[1])
        self.places_S = self.num_past + torch.arange(attention_mask_BS.shape[1])
        self.places_1N = self.packed(self.places_S.expand_as(attention_mask_BS))

    def packed(self, values_BS: Tensor) -> Tensor:
        """[1, N]."""
        return values_BS.flatten().index_select(0, self.packing.position_N).unsqueeze(0)

    def within(self, window: int) -> Tensor | None:
        """Bool [S, P + S]: whether a query sees a key; None where it sees all before it."""
        if not window:
            return None
        behind = self.places_S[:, None] - self.key_places[None, :]
        return (behind >= 0) & (behind < window)

    def of_last(self, window: int) -> Tensor:
        """Bool [B, 1, 1, P + S]: the keys that each row's last token sees."""
        ends_B1 = self.num_past + self.mask_BS.sum(dim=1, keepdim=True)
        seen = self.key_places < ends_B1
        if window:
            seen = seen & (self.key_places >= ends_B1 - window)
        return seen[:, None, None, :]

    def past(self, place: int, scales: Iterable[Tensor]) -> list[Tensor]:
        """Keys and values [B, Hkv, P, Dh] of the layer whose caches begin at a place."""
        pasts = self.pasts[place : place + 2]
        return [steps_of(each, scale_E) for each, scale_E in zip(pasts, scales, strict=True)]


class _PromptAttention(CachedAttention):
    """A layer's attention, with keys and values as the cache will have them."""

    def round_to(self, key_HDh: np.ndarray, value_HDh: np.ndarray) -> None:
        """Take the value of a step of each channel."""
        self.scales_E = nn.ParameterList(
            nn.Parameter(torch.from_numpy(scale_HDh.reshape(-1)))
            for scale_HDh in (key_HDh, value_HDh)
        )

    def over(self, rows: PromptRows, presents: list[Tensor], hidden_1ND: Tensor) -> Tensor:
        """[1, N, D]; what is cached goes to the end of `presents`."""
        past = rows.past(len(presents), self.scales_E)
        query_1NQ, key_BSE, value_BSE = self._projected(rows, presents, hidden_1ND)
        mask = rows.within(self.options.get("local_window_size", 0))
        query_BSQ = rows.packing.unpack(query_1NQ)
        context_BSQ = attend(query_BSQ, key_BSE, value_BSE, mask, past, self.options)
        output_1ND: Tensor = self.output(rows.packing.pack(context_BSQ))
        return output_1ND

    def of_last(
        self, rows: PromptRows, presents: list[Tensor], source_1ND: Tensor, _: Tensor
    ) -> Tensor:
        """[1, B, D], of each row's last token, which looks back at all of its row."""
        past = rows.past(len(presents), self.scales_E)
        query_1NQ, key_BSE, value_BSE = self._projected(rows, presents, source_1ND)
        packing = rows.packing
        query_B1Q = packing.rows_apart(packing.one_each(query_1NQ, place=-1))
        mask = rows.of_last(self.options.get("local_window_size", 0))
        context_B1Q = attend(query_B1Q, key_BSE, value_BSE, mask, past, self.options)
        output_1BD: Tensor = self.output(packing.rows_together(context_B1Q))
        return output_1BD

    def _projected(
        self, rows: PromptRows, presents: list[Tensor], hidden_1ND: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries packed, and keys and values padded, as they are after rounding."""
        packed_1NE = self.query_key_value(hidden_1ND)
        num_queries, num_keys, num_values = self.sizes
        heads = self.options["num_heads"], self.options["kv_num_heads"]
        if self.norms:
            of_queries, of_keys = self.norms
            query_1NQ, key_1NE, value_1NE = torch.split(packed_1NE, self.sizes, dim=-1)
            query_1NQ = self._rotated(of_queries(query_1NQ), rows, heads[0])
            key_1NE = self._rotated(of_keys(key_1NE), rows, heads[1])
        else:  # of queries and keys at once
            sizes = [num_queries + num_keys, num_values]
            both_1NE, value_1NE = torch.split(packed_1NE, sizes, dim=-1)
            both_1NE = self._rotated(both_1NE, rows, sum(heads))
            query_1NQ, key_1NE = torch.split(both_1NE, [num_queries, num_keys], dim=-1)
        padded = []
        for states_1NE, scale_E in zip((key_1NE, value_1NE), self.scales_E, strict=True):
            steps_1NE = stepped(states_1NE, scale_E)
            presents.append(steps_1NE.to(torch.int8))
            padded.append(rows.packing.unpack(steps_1NE * scale_E))
        key_BSE, value_BSE = padded
        return query_1NQ, key_BSE, value_BSE

    def _rotated(self, states_1NE: Tensor, rows: PromptRows, num_heads: int) -> Tensor:
        if not self.tables:
            return states_1NE
        return rotated_where_packed(
            states_1NE, rows.places_1N, rows.packing, self.tables, num_heads
        )


def stepped(states: Tensor, scale: Tensor) -> Tensor:
    """Keys or values as numbers of steps of their channels."""
    return (states * (1 / scale)).round().clamp(-MAX_STEP - 1, MAX_STEP)


def steps_of(steps: Tensor, scale_E: Tensor) -> Tensor:
    """The values [B, Hkv, P, Dh] that a cache's steps stand for."""
    _, num_heads, _, size = steps.shape
    return steps.to(scale_E.dtype) * scale_E.view(1, num_heads, 1, size)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    past: Sequence[Tensor],
    options: Mapping[str, Any],
) -> Tensor:
    """Attention over what the slots have and the tokens of this run; causal without a mask."""
    return torch.onnx.ops.attention(
        query,
        key,
        value,
        mask,
        *past,
        q_num_heads=options["num_heads"],
        kv_num_heads=options["kv_num_heads"],
        scale=options["scale"],
        softcap=options.get("softcap", 0.0),
        is_causal=mask is None,
    )[0]
