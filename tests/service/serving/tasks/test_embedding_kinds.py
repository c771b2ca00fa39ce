"""Sparse vectors: which weights of a text they have, and the largest of them."""

import numpy as np

from service.serving.tasks.embedding_kinds import TokenWeights, of_terms, of_tokens


def found(vector: TokenWeights) -> dict[int, float]:
    """Weights by token id, which are in the order of the ids."""
    ids: list[int] = vector.ids.tolist()
    assert ids == sorted(set(ids))
    return dict(zip(ids, vector.weights.tolist(), strict=True))


def test_of_a_vocabulary_s_weights_those_above_0_are_kept() -> None:
    weights = np.array([0, 0.5, -1, 2], np.float32)
    assert found(of_terms(weights)) == {1: 0.5, 3: 2.0}


def test_a_token_has_the_largest_of_its_weights_and_some_have_none() -> None:
    """Token 7 stands twice, 5 has no weight, and 9 is one that has none in any text."""
    ids, weights = np.array([7, 5, 9, 7, 3]), np.array([1, 0, 4, 2, 0.5], np.float32)
    assert found(of_tokens(ids, weights, np.array([9]))) == {3: 0.5, 7: 2.0}
    assert found(of_tokens(ids, weights, np.array([], np.int64))) == {3: 0.5, 7: 2.0, 9: 4.0}


def test_the_largest_weights_are_kept_and_of_equal_ones_the_first() -> None:
    vector = TokenWeights(np.array([2, 4, 6, 8]), np.array([1, 3, 1, 2], np.float32))
    assert found(vector.heaviest(2)) == {4: 3.0, 8: 2.0}
    assert found(vector.heaviest(3)) == {2: 1.0, 4: 3.0, 8: 2.0}
    assert vector.heaviest(4) is vector
    assert vector.heaviest(5) is vector
