"""Nodes around attention that several graphs have: attention over lengths, and rotation.

Knows nothing about layers or weights.
"""

# ruff: noqa: N803 - suffixes are array layouts: B rows, S tokens, D hidden size, N real tokens

import torch
from torch import Tensor, nn

from export.graphs.packing import OneToken, Packing


def attention_by_length(
    inputs: tuple[Tensor, Tensor, Tensor],
    lengths_B: Tensor,
    *,
    scale: float,
    heads: tuple[int, int] | None = None,
    softcap: float = 0.0,
) -> Tensor:
    """ONNX's Attention, version 24, of query, key and value, over the first keys of each row.

    They are [B, S, D] with `heads`, of queries and of keys, or [B, H, S, Dh] without.
    """
    options = {} if heads is None else {"q_num_heads": heads[0], "kv_num_heads": heads[1]}
    capped = {"softcap": softcap} if softcap else {}
    return torch.onnx.ops.symbolic(
        "::Attention",
        [*inputs, None, None, None, lengths_B],
        {"scale": scale, **options, **capped},
        dtype=inputs[0].dtype,
        shape=inputs[0].shape,
    )


def rotated_where_packed(
    projected_1ND: Tensor,
    places_1N: Tensor,
    packing: Packing | OneToken,
    tables: nn.ParameterList,
    num_heads: int,
) -> Tensor:
    """Queries or keys, turned: https://onnx.ai/onnx/operators/onnx__RotaryEmbedding.html.

    Packed tokens are rows of one token each here: ONNX Runtime 1.31 refuses a row that is longer
    than the tables, and all texts together may be. `tables` are [positions, R / 2].
    """
    cos, sin = tables
    num_rotated = 2 * cos.shape[1]
    is_whole = num_rotated * num_heads == projected_1ND.shape[-1]
    rotated: Tensor = torch.onnx.ops.rotary_embedding(
        packing.rows_apart(projected_1ND),
        cos,
        sin,
        packing.rows_apart(places_1N),
        num_heads=num_heads,
        rotary_embedding_dim=0 if is_whole else num_rotated,  # 0: all of a head
    )
    return packing.rows_together(rotated)
