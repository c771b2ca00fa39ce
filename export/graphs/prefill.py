"""Prompts from their beginning, as a graph of their own beside a decoder with an int8 cache.

The operator that reads such a cache works token by token: that is right for decoding, where memory
bounds, and slow for a prompt, where arithmetic does. Here the tokens of all prompts lie one after
the other, and attention is ONNX's, over the keys and values of this run, rounded as the decoder
will read them. They are given back, and the server puts them into the cache.

    input_ids, attention_mask [B, S]         int64, right-padded
    logits [B, V]                            float32, of each row's last token
    present.{i}.key and .value [1, N, D]     int8, of the N tokens of all rows
"""
# ruff: noqa: N803, N806 - suffixes are array layouts, see above; D = H * Dh hidden size

import copy

import numpy as np
import onnx
import torch
from torch import Tensor, nn

from export.graphs.fused_attention import FusedAttention, OneToken, Packing
from export.graphs.graph import check_fused, trace_texts
from export.graphs.int8_cache import MAX_STEP, Largest, scales_of
from export.settings import Operator
from models.networks.gpt import GPT, DecoderLayer
from service.generation.decoder import TEXT_INPUTS, cache_names

OPERATOR: Operator = "Attention"


def trace_prefill(network: GPT, largest: Largest) -> onnx.ModelProto:
    """The graph, or `ExportError` unless each layer's attention became one node."""
    num_layers = network.config.num_layers
    caches = [present for _, present in cache_names(num_layers)]
    scales = scales_of(largest)
    prefill = _Prefill(copy.deepcopy(network).eval(), [scales[cache] for cache in caches])
    model = trace_texts(prefill, TEXT_INPUTS, ("logits", *caches))
    check_fused(model, OPERATOR, num_layers)
    return model


class _Prefill(nn.Module):
    """The network's own weights and layers over packed tokens; what is cached is given back.

    Of the last layer only keys and values are computed for all tokens: only last ones are read.
    """

    def __init__(self, network: GPT, scales: list[np.ndarray]) -> None:
        super().__init__()
        self.network = network
        self.attentions = nn.ModuleList()
        for index, layer in enumerate(network.layers):
            assert isinstance(layer, DecoderLayer)
            self.attentions.append(_RoundedAttention(layer, *scales[2 * index : 2 * index + 2]))

    def forward(self, input_ids_BS: Tensor, attention_mask_BS: Tensor) -> tuple[Tensor, ...]:
        network, packing = self.network, Packing(attention_mask_BS)
        hidden_BSD = network.words(input_ids_BS) + network.positions(input_ids_BS.shape[1])
        hidden_1ND = packing.pack(hidden_BSD)
        presents: list[Tensor] = []
        place: Packing | OneToken = packing
        last = len(self.attentions) - 1
        for index, (layer, attention) in enumerate(
            zip(network.layers, self.attentions, strict=True)
        ):
            assert isinstance(layer, DecoderLayer)
            if index == last:
                keys_1ND = layer.attention_norm(hidden_1ND)
                place = OneToken(packing, hidden_1ND, place=-1, keys_1ND=keys_1ND)
                hidden_1ND = place.hidden_1BD
            attended_1ND, *present = attention(layer.attention_norm(hidden_1ND), place)
            hidden_1ND = hidden_1ND + attended_1ND
            hidden_1ND = hidden_1ND + layer.feed_forward(layer.feed_forward_norm(hidden_1ND))
            presents += present
        return network.logits(network.norm(hidden_1ND.squeeze(0))), *presents


class _RoundedAttention(FusedAttention):
    """A layer's attention, with keys and values as the cache will have them."""

    def __init__(self, layer: DecoderLayer, key: np.ndarray, value: np.ndarray) -> None:
        super().__init__(layer.attention, OPERATOR)
        self.scales_D = nn.ParameterList(
            nn.Parameter(torch.from_numpy(scale.reshape(-1))) for scale in (key, value)
        )

    def forward(  # type: ignore[override]
        self, hidden_1ND: Tensor, packing: Packing | OneToken, is_causal: bool = True
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The output [1, N, D], or [1, B, D] of last tokens; and what is cached, [1, N, D]."""
        query = packing.unpack_queries(self.query(hidden_1ND))
        source_1ND = packing.keys_from(hidden_1ND)
        rounded = [
            (project(source_1ND) * (1 / scale_D)).round().clamp(-MAX_STEP - 1, MAX_STEP)
            for project, scale_D in zip((self.key, self.value), self.scales_D, strict=True)
        ]
        key, value = (
            packing.unpack(steps_1ND * scale_D)
            for steps_1ND, scale_D in zip(rounded, self.scales_D, strict=True)
        )
        context_BSD = self.emit(query, key, value, packing.mask(is_causal))
        output_1ND: Tensor = self.output(packing.pack(context_BSD))
        return output_1ND, *(steps_1ND.to(torch.int8) for steps_1ND in rounded)
