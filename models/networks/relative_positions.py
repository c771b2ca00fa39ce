"""Relative positions: what is added to a score for the distance of two tokens (Raffel et al. 2020).

Each head has a number for each bucket of distances: near distances have a bucket each, farther ones
share buckets that grow with the logarithm, and all beyond `max_distance` are in the last. Sequences
of any length have positions of this kind.

Knows nothing about padding or about where in a network it stands.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, S queries, T keys, H heads

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def bucket_of(distance: Tensor, num_buckets: int, max_distance: int, *, is_two_way: bool) -> Tensor:
    """The bucket of each distance, int64: key minus query. One-way, keys lie at or before 0.

    Computed in float32 as the networks were trained: a distance at the edge of a bucket depends
    on how its logarithm is rounded.
    """
    first = torch.zeros_like(distance)
    if is_two_way:
        num_buckets //= 2
        first = (distance > 0) * num_buckets
        distance = distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    num_near = num_buckets // 2
    share = torch.log(distance.float() / num_near) / math.log(max_distance / num_near)
    far = num_near + (share * (num_buckets - num_near)).clamp(min=0.0).to(torch.int64)
    return first + torch.where(distance < num_near, distance, far.clamp(max=num_buckets - 1))


class RelativePositions(nn.Module):
    """A number per bucket and head; `is_two_way` where tokens look ahead too."""

    bucket_of_distance: Tensor

    def __init__(
        self, num_buckets: int, max_distance: int, num_heads: int, *, is_two_way: bool
    ) -> None:
        super().__init__()
        self.max_distance = max_distance
        self.buckets = nn.Embedding(num_buckets, num_heads)
        # On the CPU: no checkpoint brings it to a module that is built on the meta device.
        distances = torch.arange(-max_distance, max_distance + 1, device="cpu")
        buckets = bucket_of(distances, num_buckets, max_distance, is_two_way=is_two_way)
        self.register_buffer("bucket_of_distance", buckets, persistent=False)

    def forward(self, queries_BS: Tensor, keys_T: Tensor) -> Tensor:
        """[B, H, S, T] for int64 positions; one row of queries serves a whole batch."""
        distance_BST = keys_T - queries_BS[..., None]
        place_BST = distance_BST.clamp(-self.max_distance, self.max_distance) + self.max_distance
        # Two lookups, of which the larger has one number per pair of tokens and head.
        by_distance = F.embedding(self.bucket_of_distance, self.buckets.weight)
        return F.embedding(place_BST, by_distance).permute(0, 3, 1, 2)
