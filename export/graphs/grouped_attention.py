"""A Llama's attention over packed tokens, as one node of the graph of a network that reads texts.

ONNX's Attention shares a head of keys and values among several of queries, and caps scores;
com.microsoft's MultiHeadAttention is given the shared heads once for each, and cannot cap. Queries
and keys are normalised and rotated where tokens are packed. A window of causal attention is a mask;
without one, what pads a row comes after all that its tokens see.

Decoders that write texts have a graph of their own kind, `export/graphs/cached_decoder.py`.
"""

# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, S tokens, D hidden size, N real tokens

from typing import Any

import torch
from torch import Tensor, nn

from export.errors import ExportError
from export.graphs.attention_nodes import attention_by_length, rotated_where_packed
from export.graphs.gated_layers import RopeTables
from export.graphs.packing import OneToken, Packing
from export.settings import Operator
from models.networks.llama import GroupedAttention, GroupedAttentionCore


def attention_of_rows(
    inputs: tuple[Tensor, Tensor, Tensor],
    seen: Tensor | None,
    *,
    heads: tuple[int, int],
    scale: float,
    softcap: float,
    is_causal: bool,
) -> Tensor:
    """https://onnx.ai/onnx/operators/onnx__Attention.html of query, key and value, [B, S, D].

    `heads` are those of queries and of keys; `seen` is as `Packing.seen` has it.
    """
    if seen is not None and seen.dim() == 1:
        return attention_by_length(inputs, seen, scale=scale, heads=heads, softcap=softcap)
    return torch.onnx.ops.attention(
        *inputs,
        seen,
        q_num_heads=heads[0],
        kv_num_heads=heads[1],
        scale=scale,
        softcap=softcap,
        is_causal=is_causal and seen is None,
    )[0]


class FusedGroupedAttention(nn.Module):
    """Self-attention over packed tokens, H heads over Hkv, as one ONNX operator."""

    def __init__(self, attention: GroupedAttention, operator: Operator, tables: RopeTables) -> None:
        super().__init__()
        core = attention.core
        assert isinstance(core, GroupedAttentionCore)
        if core.softcap and operator != "Attention":
            raise ExportError(
                f"attention is {operator}, which cannot cap scores as this decoder does: use "
                "Attention"
            )
        self.query, self.key, self.value = attention.query, attention.key, attention.value
        self.output = attention.output
        self.query_norm, self.key_norm = attention.query_norm, attention.key_norm
        self.tables = tables.of(core.rope)
        self.head_size, self.scale, self.softcap = attention.head_size, core.scale, core.softcap
        self.window, self.is_causal = core.window, core.is_causal
        self.num_heads = attention.query.out_features // attention.head_size
        self.num_kv_heads = attention.key.out_features // attention.head_size
        self.emit = self._onnx_attention if operator == "Attention" else self._microsoft_attention

    def forward(self, hidden_1ND: Tensor, packing: Packing | OneToken) -> Tensor:
        source_1ND = packing.keys_from(hidden_1ND)
        query_1ND, key_1ND = self.query(hidden_1ND), self.key(source_1ND)
        if self.query_norm is not None and self.key_norm is not None:
            query_1ND, key_1ND = self.query_norm(query_1ND), self.key_norm(key_1ND)
        if len(self.tables):
            places_1N = packing.places(query_1ND)
            query_1ND = rotated_where_packed(
                query_1ND, places_1N, packing, self.tables, self.num_heads
            )
            key_1ND = rotated_where_packed(
                key_1ND, packing.token_places, packing, self.tables, self.num_kv_heads
            )
        inputs = (
            packing.unpack_queries(query_1ND),
            packing.unpack(key_1ND),
            packing.unpack(self.value(source_1ND)),
        )
        seen = packing.seen(self.window, self.is_causal)
        output_1ND: Tensor = self.output(packing.pack(self.emit(inputs, seen)))
        return output_1ND

    def _onnx_attention(self, inputs: tuple[Tensor, Tensor, Tensor], seen: Tensor | None) -> Tensor:
        return attention_of_rows(
            inputs,
            seen,
            heads=(self.num_heads, self.num_kv_heads),
            scale=self.scale,
            softcap=self.softcap,
            is_causal=self.is_causal,
        )

    def _microsoft_attention(
        self, inputs: tuple[Tensor, Tensor, Tensor], seen: Tensor | None
    ) -> Tensor:
        """Contrib operator: query, key, value, and what is added to scores."""
        query, *keys_values = inputs
        groups = self.num_heads // self.num_kv_heads
        repeated = [
            torch.unflatten(each, -1, (self.num_kv_heads, self.head_size))
            .repeat_interleave(groups, dim=-2)
            .flatten(-2)
            for each in keys_values
        ]
        options: dict[str, Any] = {"num_heads": self.num_heads, "scale": self.scale}
        scores = None
        if seen is None:
            options["unidirectional"] = 1
        else:
            lowest = torch.finfo(query.dtype).min
            scores = torch.zeros_like(seen, dtype=query.dtype).masked_fill(~seen, lowest)
            scores = scores[None, None] if scores.dim() == 2 else scores
        return torch.onnx.ops.symbolic(
            "com.microsoft::MultiHeadAttention",
            [query, *repeated, None, None, *([] if scores is None else [scores])],
            options,
            dtype=query.dtype,
            shape=query.shape,
        )
