"""Scores of distances are those of a lookup for each pair of tokens, in transformers' buckets."""

import math

import pytest
import torch
from torch import Tensor
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

from models.errors import SettingError
from models.networks.disentangled import (
    DisentangledAttention,
    Distances,
    DistanceVectors,
    first_scores_of_distances,
)

HIDDEN, HEADS = 24, 4


@pytest.mark.parametrize(("num_buckets", "furthest"), [(4, 24), (8, 64), (256, 512), (256, 2_048)])
def test_distances_are_in_the_buckets_of_transformers(num_buckets: int, furthest: int) -> None:
    """Of every distance: the edges of buckets depend on how a logarithm is rounded."""
    distance = torch.arange(1 - furthest, furthest)
    bucket = make_log_bucket_position(distance, num_buckets, furthest).long()
    expected = (bucket + num_buckets).clamp(0, 2 * num_buckets - 1)
    assert torch.equal(Distances(num_buckets, furthest).row_of(distance), expected)


def test_without_buckets_each_distance_has_a_vector() -> None:
    distances = Distances(4, 4, is_logarithmic=False)
    assert distances.row_of(torch.arange(-6, 7)).tolist() == [0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 7, 7, 7]


@pytest.mark.parametrize("num_tokens", [1, 2, 5, 17])
def test_scores_are_those_of_a_lookup_for_each_pair(num_tokens: int) -> None:
    torch.manual_seed(1)
    distances = Distances(8, 32)
    attention = DisentangledAttention(HIDDEN, HEADS)
    relative = DistanceVectors(distances, HIDDEN, 32, 1e-5)
    hidden = torch.randn(2, num_tokens, HIDDEN)
    query, key = (attention.split_heads(part(hidden)) for part in (attention.query, attention.key))
    place = torch.arange(num_tokens)
    rows = distances.row_of(place[:, None] - place)
    keys, queries = (
        attention.split_heads(part(relative.vectors())[None])[0][:, rows]
        for part in (attention.key, attention.query)
    )
    expected = torch.einsum("bhqd,hqkd->bhqk", query, keys)
    expected += torch.einsum("bhkd,hqkd->bhqk", key, queries)

    vectors = relative(num_tokens)
    found = attention.added_scores(query, key, vectors) * math.sqrt(HIDDEN / HEADS)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    projected = _projected(attention, vectors)
    first = first_scores_of_distances(query[:, :, :1], key, *projected)
    torch.testing.assert_close(first, expected[:, :, :1], rtol=0, atol=1e-5)


def _projected(attention: DisentangledAttention, vectors: Tensor) -> tuple[Tensor, Tensor]:
    keys = attention.split_heads(attention.key(vectors[:1]))
    queries = attention.split_heads(attention.query(vectors[1:]))
    return keys, queries


def test_a_table_outside_its_limits_is_refused() -> None:
    with pytest.raises(SettingError, match=r"distances\.num_buckets is 1, but must be from 2"):
        Distances(1, 8)
