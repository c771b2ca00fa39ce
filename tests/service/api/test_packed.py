"""Rows of numbers are the same in a message as if it had been given a list of them."""

from types import SimpleNamespace

import numpy as np
import pytest
from attendant.v1 import text_pb2

from service.api.packed import packed, values_of, writer_of

RESULTS = text_pb2.EmbedResponse.DESCRIPTOR.fields_by_name["results"]
ROWS = np.array([[0.1, -0.0, np.inf], [1e-45, 3.4e38, np.nan]], np.float32)


def fields_of(rows: list[object]) -> dict[str, object]:
    results = ({"values": row, "num_tokens": 4, "is_truncated": True} for row in rows)
    timings = {"queue_seconds": 0.5}
    return {"model": "m", "version": "1", "num_tokens": 8, "timings": timings, "results": results}


@pytest.mark.parametrize("rows", [ROWS, ROWS[:, ::2], ROWS[:0], np.zeros((2, 0), np.float32)])
def test_arrays_and_lists_make_the_same_message(rows: np.ndarray) -> None:
    written = writer_of(text_pb2.EmbedResponse, RESULTS)(fields_of(list(rows)))
    expected = text_pb2.EmbedResponse(**fields_of([row.tolist() for row in rows]))  # type: ignore[arg-type]
    assert written.SerializeToString() == expected.SerializeToString()
    assert len(expected.results) == len(rows)


def test_lists_and_rows_without_values_are_taken_too() -> None:
    fields = {"model": "m", "results": [{"values": [1.0, 2.0]}, {"num_tokens": 3}]}
    written = writer_of(text_pb2.EmbedResponse, RESULTS)(fields)
    assert written == text_pb2.EmbedResponse(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [0, 1, 31, 32, 384, 5_000])
def test_values_come_out_of_a_message_as_they_went_in(count: int) -> None:
    """Sizes around those whose prefix is longer by a byte: 128 bytes are 32 values."""
    values = np.random.default_rng(count).standard_normal(count).astype(np.float32)
    message = text_pb2.Embedding.FromString(packed(1, values))
    message.num_tokens = 7
    assert list(message.values) == values.tolist()
    assert values_of(message).tolist() == values.tolist()
    assert values_of(message).dtype == "<f4"


def test_values_behind_another_field_come_out_too() -> None:
    """As a message may be written in any order, and then not begin with its values."""
    raw = text_pb2.Embedding(num_tokens=3).SerializeToString()
    late = SimpleNamespace(
        DESCRIPTOR=text_pb2.Embedding.DESCRIPTOR, values=(0.5, 0.25), SerializeToString=lambda: raw
    )
    assert values_of(late).tolist() == [0.5, 0.25]


def test_answers_without_rows_of_numbers_are_made_of_their_fields() -> None:
    kind = text_pb2.ClassifyResponse
    results = kind.DESCRIPTOR.fields_by_name["results"]
    for rows in (results, None):
        assert writer_of(kind, rows)({"model": "m"}) == kind(model="m")
