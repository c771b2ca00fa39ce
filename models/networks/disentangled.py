"""DeBERTa's disentangled attention: scores of tokens and of distances (He et al. 2021).

A distance is a vector. To the score of a query and a key are added the query's product with the
distance as a key, and the key's with the distance as a query; both are projected as tokens are, by
the layer's own maps. Near distances have a vector each, farther ones share vectors in buckets that
grow with the logarithm.

The products with all distances, [S, 2 S] of each head, become scores [S, S] without a lookup: row i
begins one place earlier than row i - 1, which is how the rows lie in memory if each is read as one
value shorter.

Knows nothing about padding or about where in a network it stands.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, S tokens, T = 2 S distances, H heads,
# Dh, D, R rows of the table

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.errors import check_range
from models.networks.attention import MultiHeadAttention


@dataclass(frozen=True, slots=True)
class Distances:
    """The table of distances: its size, and which row belongs to a distance."""

    num_buckets: int  # to each side
    max_distance: int  # tokens; what is farther is as far as this
    is_logarithmic: bool = True  # beyond half of the buckets
    is_normed: bool = True

    def __post_init__(self) -> None:
        check_range("distances.num_buckets", self.num_buckets, 2, 2**16)
        check_range("distances.max_distance", self.max_distance, 2, 2**24)

    def row_of(self, distance: Tensor) -> Tensor:
        """The row of each distance, int64: query minus key.

        Computed in float32 as the networks were trained: a distance at the edge of a bucket depends
        on how its logarithm is rounded.
        """
        bucket = self._bucket_of(distance) if self.is_logarithmic else distance
        return (bucket + self.num_buckets).clamp(0, 2 * self.num_buckets - 1)

    def _bucket_of(self, distance: Tensor) -> Tensor:
        middle = self.num_buckets // 2
        far = distance.abs().clamp(min=middle)
        longest = torch.tensor((self.max_distance - 1) / middle, device=distance.device)
        share = torch.log(far / middle) / torch.log(longest)
        bucket = torch.ceil(share * (middle - 1)).to(torch.int64) + middle
        return torch.where(distance.abs() <= middle, distance, bucket * distance.sign())


class DistanceVectors(nn.Module):
    """A vector for each bucket of distances; all layers share them."""

    row_of_distance: Tensor

    def __init__(
        self, distances: Distances, hidden_size: int, max_positions: int, norm_eps: float
    ) -> None:
        super().__init__()
        self.max_positions = max_positions
        self.table = nn.Embedding(2 * distances.num_buckets, hidden_size)
        self.norm = nn.LayerNorm(hidden_size, eps=norm_eps) if distances.is_normed else None
        # On the CPU: no checkpoint brings it to a module that is built on the meta device.
        every = torch.arange(-max_positions, max_positions + 1, device="cpu")
        self.register_buffer("row_of_distance", distances.row_of(every), persistent=False)

    def vectors(self) -> Tensor:
        """[R, D]."""
        table: Tensor = self.table.weight
        return table if self.norm is None else self.norm(table)

    def rows(self, num_tokens: int) -> Tensor:
        """[2, T] of the distances 1 - S .. S of what is asked: of keys, and of queries.

        The first row is for what a query asks, where the distance is key minus query.
        """
        device = self.table.weight.device
        distance_T = torch.arange(2 * num_tokens, device=device) - (num_tokens - 1)
        place_2T = torch.stack([-distance_T, distance_T]) + self.max_positions
        return F.embedding(place_2T, self.row_of_distance[:, None]).squeeze(-1)

    def forward(self, num_tokens: int) -> Tensor:
        """[2, T, D]: the vectors of `rows`."""
        return F.embedding(self.rows(num_tokens), self.vectors())


class DisentangledAttention(MultiHeadAttention):
    """Attention with products of distances in its scores."""

    def added_scores(self, query_BHSDh: Tensor, key_BHSDh: Tensor, relative: Tensor) -> Tensor:
        """[B, H, S, S] for the vectors [2, T, D] of distances."""
        keys_1HTDh = self.split_heads(self.key(relative[:1]))
        queries_1HTDh = self.split_heads(self.query(relative[1:]))
        scores = scores_of_distances(query_BHSDh, key_BHSDh, keys_1HTDh, queries_1HTDh)
        return scores / math.sqrt(self.head_size)


def scores_of_distances(
    query_BHSDh: Tensor, key_BHSDh: Tensor, keys_HTDh: Tensor, queries_HTDh: Tensor
) -> Tensor:
    """[B, H, S, S], not yet scaled, for distances 1 - S .. S as keys and as queries."""
    of_queries = shifted(query_BHSDh @ keys_HTDh.transpose(-1, -2))
    of_keys = shifted(key_BHSDh @ queries_HTDh.transpose(-1, -2))
    return of_queries + of_keys.transpose(-1, -2)


def first_scores_of_distances(
    query_BH1Dh: Tensor, key_BHSDh: Tensor, keys_HTDh: Tensor, queries_HTDh: Tensor
) -> Tensor:
    """[B, H, 1, S]: the same of the first token, whose distance to key s is s."""
    num_tokens = key_BHSDh.shape[2]
    ahead = keys_HTDh[..., num_tokens - 1 : 2 * num_tokens - 1, :]
    behind = queries_HTDh[..., :num_tokens, :].flip(-2)
    of_keys = (key_BHSDh * behind).sum(dim=-1).unsqueeze(2)
    return query_BH1Dh @ ahead.transpose(-1, -2) + of_keys


def shifted(products_BHST: Tensor) -> Tensor:
    """[B, H, S, S]: in row i, of the distances 1 - S .. S, those of 0 - i .. S - 1 - i."""
    num_tokens = products_BHST.shape[2]
    length = 2 * num_tokens - 1
    begin = num_tokens - 1
    flat = products_BHST.flatten(2)[..., begin : begin + num_tokens * length]
    return torch.unflatten(flat, 2, (num_tokens, length))[..., :num_tokens]
