"""Batches put together from the items that run together."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from service.batching.collate import concatenate_rows, pad_rows
from service.batching.request import Item, Request
from service.contract.tensors import Arrays
from service.records import Timings

PAD_ID = 7


def item(num_tokens: int = 1, **inputs: np.ndarray) -> Item:
    return Item(Request(Timings(0.0)), inputs, num_tokens=num_tokens)


def text(num_tokens: int, **numbers: int) -> Item:
    """A text whose inputs consist of one number each."""
    inputs = {name: np.full((1, num_tokens), number) for name, number in numbers.items()}
    return item(num_tokens, **inputs)


def padded(graph_inputs: list[str], *items: Item) -> Arrays:
    batch = pad_rows(PAD_ID, graph_inputs)(items)
    assert all(array.dtype == np.int64 for array in batch.values())
    return batch


@given(st.lists(st.lists(st.integers(5, 99), min_size=1, max_size=9), min_size=1, max_size=6))
def test_texts_are_padded_on_the_right_to_the_longest(rows: list[list[int]]) -> None:
    """Token ids with the padding token, types with 0, and the mask is 1 on tokens only."""
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    texts = [
        item(len(ids), input_ids=np.array([ids]), token_type_ids=np.ones((1, len(ids)), np.int64))
        for ids in rows
    ]
    batch = padded(inputs, *texts)
    longest = max(map(len, rows))
    assert set(batch) == set(inputs)
    for place, ids in enumerate(rows):
        ones, padding = [1] * len(ids), longest - len(ids)
        assert batch["input_ids"][place].tolist() == ids + [PAD_ID] * padding
        assert batch["attention_mask"][place].tolist() == ones + [0] * padding
        assert batch["token_type_ids"][place].tolist() == ones + [0] * padding


def test_what_a_decoder_said_so_far_is_padded_with_the_padding_token() -> None:
    """Inputs that the graph does not take are left out."""
    one, other = text(1, target_ids=5, token_type_ids=1), text(2, target_ids=6, token_type_ids=1)
    batch = padded(["target_ids"], one, other)
    assert {name: array.tolist() for name, array in batch.items()} == {
        "target_ids": [[5, PAD_ID], [6, 6]]
    }


def test_rows_of_tensors_follow_one_another() -> None:
    one = item(x=np.zeros((2, 3), np.float32), y=np.array([[1], [2]]))
    other = item(x=np.ones((1, 3), np.float32), y=np.array([[3]]))
    batch = concatenate_rows([one, other])
    assert batch["x"].tolist() == [[0, 0, 0], [0, 0, 0], [1, 1, 1]]
    assert batch["y"].tolist() == [[1], [2], [3]]
    assert concatenate_rows([one]) is one.inputs, "a single item is not copied"
