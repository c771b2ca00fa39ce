"""Attention as one node of the exported graph.

Pattern fusion after the fact finds nothing on today's graphs, so the node is emitted:
before tracing, every `MultiHeadAttention` is replaced by a module that shares its
projections and calls the ONNX operator on [B, S, D] tensors, which the operator splits
into heads itself. How many nodes there must be is then known, and is checked.

Two operators compute the same thing. ONNX's own `Attention` (opset 23) measured faster
on the CPU, `com.microsoft.MultiHeadAttention` has the older CUDA kernels:
docs/benchmarks.md.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, S tokens, D hidden size

from typing import Literal

import torch
from torch import Tensor, nn

from models.attention import MultiHeadAttention

Operator = Literal["Attention", "MultiHeadAttention"]


def fuse_attention(model: nn.Module, operator: Operator) -> int:
    """Replace every `MultiHeadAttention` of `model` in place; returns how many there were."""
    count = 0
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, MultiHeadAttention):
                setattr(parent, name, _FusedAttention(child, operator))
                count += 1
    return count


class _FusedAttention(nn.Module):
    """Self-attention with a padding mask, as one ONNX operator."""

    def __init__(self, attention: MultiHeadAttention, operator: Operator) -> None:
        super().__init__()
        self.query, self.key, self.value = attention.query, attention.key, attention.value
        self.output = attention.output
        self.num_heads = attention.num_heads
        self.scale = attention.head_size**-0.5
        self.emit = self._onnx_attention if operator == "Attention" else self._microsoft_attention

    def forward(self, hidden_BSD: Tensor, padding_mask_BS: Tensor) -> Tensor:
        context_BSD = self.emit(
            self.query(hidden_BSD), self.key(hidden_BSD), self.value(hidden_BSD), padding_mask_BS
        )
        output_BSD: Tensor = self.output(context_BSD)
        return output_BSD

    def _onnx_attention(self, query: Tensor, key: Tensor, value: Tensor, mask_BS: Tensor) -> Tensor:
        """https://onnx.ai/onnx/operators/onnx__Attention.html, version 23.

        The specification lets the mask broadcast over queries; ONNX Runtime 1.31 wants them all.
        """
        num_rows, num_tokens = mask_BS.shape
        mask_B1SS = mask_BS[:, None, None, :].expand(num_rows, 1, num_tokens, num_tokens)
        return torch.onnx.ops.attention(
            query,
            key,
            value,
            mask_B1SS,
            q_num_heads=self.num_heads,
            kv_num_heads=self.num_heads,
            scale=self.scale,
        )[0]

    def _microsoft_attention(
        self, query: Tensor, key: Tensor, value: Tensor, mask_BS: Tensor
    ) -> Tensor:
        """Contrib operator: inputs query, key, value, no bias, int32 key padding mask."""
        return torch.onnx.ops.symbolic(
            "com.microsoft::MultiHeadAttention",
            [query, key, value, None, mask_BS.to(torch.int32)],
            {"num_heads": self.num_heads, "scale": self.scale},
            dtype=query.dtype,
            shape=query.shape,
        )
