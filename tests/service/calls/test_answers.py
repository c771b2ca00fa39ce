"""Numbers of answers: as JSON has them, and how many there are."""

import numpy as np

from service.calls.answers import Row, Timings, numbers_of, single
from service.calls.texts import Embedding, Embeddings, EncodedVector, SparseVector


def test_numbers_of_an_array_are_a_list_of_python_s() -> None:
    values = np.array([0.5, 2], np.float32)
    assert numbers_of(values) == [0.5, 2.0]
    assert numbers_of(()) == []
    assert Row(values).numbers == Embedding(values).numbers == [0.5, 2.0]
    assert SparseVector([7, 9], values).numbers == [0.5, 2.0]
    assert isinstance(numbers_of(values)[0], float)


def test_a_number_is_one_of_float32() -> None:
    assert single(0.1) == float(np.float32(0.1)) != 0.1


def test_all_kinds_of_a_text_s_vectors_count() -> None:
    """4 values, 3 of another encoding, an id and a weight for each of 2, and 5 rows of 6."""
    rows = [Row(np.zeros(6))] * 5
    encoded = (EncodedVector("int8", bytes(3)),)
    whole = Embedding(np.zeros(4), 1, False, encoded, SparseVector([7, 9], np.ones(2)), rows)
    both = Embeddings(
        model="m", version="1", timings=Timings(), num_tokens=2, results=[whole, Embedding()]
    )
    assert both.num_values == 4 + 3 + 2 * 2 + 5 * 6
