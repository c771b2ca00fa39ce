"""Vectors of an embedder: of length 1, cut, and within a range that a manifest has."""

import numpy as np

from service.contract.embedder_use import EmbedderUse, unit, written_range


def test_vectors_are_made_as_long_as_1_and_one_without_direction_stays() -> None:
    vectors = unit(np.array([[3.0, 4.0], [0.0, 0.0]], np.float32))
    np.testing.assert_allclose(vectors, [[0.6, 0.8], [0.0, 0.0]], rtol=1e-6)


def test_the_first_values_have_length_1_again_where_the_model_normalises() -> None:
    vectors = np.array([[3.0, 4.0, 12.0]], np.float32)
    assert EmbedderUse().cut(vectors, 2).tolist() == [[3.0, 4.0]]
    np.testing.assert_allclose(EmbedderUse(is_normalized=True).cut(vectors, 2), [[0.6, 0.8]])
    assert EmbedderUse(is_normalized=True).cut(vectors, 3) is vectors


def test_a_range_that_was_written_is_read_again() -> None:
    vectors = np.array([[0.5, -2.0, 1.0], [-0.25, 3.0, 1.0]], np.float32)
    found = EmbedderUse(ranges={"3": written_range(vectors)}).range_of(3)
    assert found is not None
    assert found.tolist() == [[-0.25, -2.0, 1.0], [0.5, 3.0, 1.0]]
    assert EmbedderUse().range_of(3) is None
