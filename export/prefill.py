"""Prompts from their beginning, as a graph of their own beside a decoder with an int8 cache.

The operator that reads such a cache works token by token: that is right for decoding, where memory
bounds, and half as fast for a prompt, where arithmetic does. Here prompts lie one after the other,
and attention is ONNX's, over the keys and values of this run: after rounding, as the decoder will
read them. They are given back, and the server puts them into the cache.

    input_ids, attention_mask [B, S]         int64, right-padded
    logits [B, V]                            float32, of each row's last token
    present.{i}.key and .value [1, N, D]     int8, of the N tokens of all rows, one after the other
"""
# ruff: noqa: N803, N806 - suffixes are array layouts, see above; D = H * Dh hidden size

import copy
from collections.abc import Mapping

import numpy as np
import onnx
import torch
from torch import Tensor, nn

from export.cached_decoder import CachedAttention
from export.fused_attention import Packing
from export.graph import check_fused, clean, export_program
from export.int8_cache import Largest, scales_of
from models.gpt import GPT, DecoderLayer

INPUTS = ("input_ids", "attention_mask")
OPERATOR = "Attention"


def trace_prefill(network: GPT, largest: Largest) -> onnx.ModelProto:
    """The graph, or `ExportError` unless each layer's attention became one node."""
    prefill = _Prefill(copy.deepcopy(network).eval(), scales_of(largest))
    example = tuple(torch.ones(2, 8, dtype=torch.int64) for _ in INPUTS)
    rows, tokens = torch.export.Dim("batch"), torch.export.Dim("sequence")
    program = export_program(prefill, example, INPUTS, ({0: rows, 1: tokens},) * len(INPUTS))
    model = clean(program, INPUTS, ("logits", *largest))
    check_fused(model, OPERATOR, network.config.num_layers)
    return model


class _Prefill(nn.Module):
    """The network's own weights and layers over packed tokens; what is cached is given back."""

    def __init__(self, network: GPT, scales: Mapping[str, np.ndarray]) -> None:
        super().__init__()
        self.network = network
        self.attentions = nn.ModuleList()
        for index, layer in enumerate(network.layers):
            assert isinstance(layer, DecoderLayer)
            key, value = (scales[f"present.{index}.{part}"] for part in ("key", "value"))
            self.attentions.append(_RoundedAttention(CachedAttention(layer.attention), key, value))

    def forward(self, input_ids_BS: Tensor, attention_mask_BS: Tensor) -> tuple[Tensor, ...]:
        network, packing = self.network, Packing(attention_mask_BS)
        hidden_BSD = network.words(input_ids_BS) + network.positions(input_ids_BS.shape[1])
        hidden_1ND = packing.pack(hidden_BSD)
        presents: list[Tensor] = []
        for layer, attention in zip(network.layers, self.attentions, strict=True):
            assert isinstance(layer, DecoderLayer)
            attended_1ND, *present = attention(layer.attention_norm(hidden_1ND), packing)
            hidden_1ND = hidden_1ND + attended_1ND
            hidden_1ND = hidden_1ND + layer.feed_forward(layer.feed_forward_norm(hidden_1ND))
            presents += present
        last_BD = hidden_1ND.squeeze(0).index_select(0, packing.token_BS[:, -1])
        return network.logits(network.norm(last_BD)), *presents


class _RoundedAttention(nn.Module):
    """Self-attention over packed tokens, with keys and values as the cache will have them."""

    def __init__(self, attention: CachedAttention, key: np.ndarray, value: np.ndarray) -> None:
        super().__init__()
        self.attention = attention
        self.key_D, self.value_D = (
            nn.Parameter(torch.from_numpy(scale.reshape(-1))) for scale in (key, value)
        )

    def forward(self, hidden_1ND: Tensor, packing: Packing) -> tuple[Tensor, Tensor, Tensor]:
        """The output [1, N, D], and what is cached."""
        query, key, value = self.attention.query_key_value(hidden_1ND).chunk(3, dim=-1)
        rounded = [
            (part / scale_D).round().clamp(-128, 127).to(torch.int8)
            for part, scale_D in ((key, self.key_D), (value, self.value_D))
        ]
        read = [
            part.to(torch.float32) * scale_D
            for part, scale_D in zip(rounded, (self.key_D, self.value_D), strict=True)
        ]
        num_heads = self.attention.num_heads
        context_BSD = torch.onnx.ops.attention(
            *(packing.unpack(part) for part in (query, *read)),
            q_num_heads=num_heads,
            kv_num_heads=num_heads,
            scale=self.attention.scale,
            is_causal=True,
        )[0]
        return self.attention.output(packing.pack(context_BSD)), *rounded
