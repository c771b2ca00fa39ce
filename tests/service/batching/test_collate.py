"""Batches put together from the items that run together."""

import numpy as np

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


def test_texts_are_padded_on_the_right_to_the_longest() -> None:
    """Token ids with the padding token, types with 0, and the mask is 1 on tokens only."""
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    one, other = text(2, input_ids=5, token_type_ids=1), text(3, input_ids=6, token_type_ids=1)
    batch = padded(inputs, one, other)
    assert set(batch) == set(inputs)
    assert batch["input_ids"].tolist() == [[5, 5, PAD_ID], [6, 6, 6]]
    assert batch["token_type_ids"].tolist() == [[1, 1, 0], [1, 1, 1]]
    assert batch["attention_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]


def test_what_a_decoder_said_so_far_is_padded_with_the_padding_token() -> None:
    batch = padded(["target_ids"], text(1, target_ids=5), text(2, target_ids=6))
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
