"""Calls as users of tritonclient write them, and the texts that are asked."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from tritonclient import grpc as triton

LIMIT_S = 60.0  # of every call: nothing in the tests may hang
TEXTS = (
    "free prize",
    "we are on",
    "lunch tomorrow?",
    "WINNER!! claim your free prize now",
    "a",
    "call 09061701461 now, claim code KL341, valid 12 hours only",
    "Are we still on for lunch tomorrow?",
    "7",
)
DATATYPES = {"<i4": "INT32", "<i8": "INT64", "<f4": "FP32"}


def text_inputs(texts: Sequence[str]) -> list[Any]:
    values = np.array([text.encode() for text in texts], object).reshape(-1, 1)
    tensor = triton.InferInput("text", list(values.shape), "BYTES")
    tensor.set_data_from_numpy(values)
    return [tensor]


def tensor_inputs(**arrays: np.ndarray) -> list[Any]:
    tensors = []
    for name, array in arrays.items():
        tensor = triton.InferInput(name, list(array.shape), DATATYPES[array.dtype.str])
        tensor.set_data_from_numpy(array)
        tensors.append(tensor)
    return tensors


def slow_inputs(iterations: int, tag: int) -> list[Any]:
    """Of the model `slow`: how long to work, near a millisecond each, and what to give back."""
    return tensor_inputs(iterations=np.array([iterations]), tag=np.array([tag]))


def code_of(error: BaseException) -> str:
    """The status of a tritonclient exception without its prefix, "UNAVAILABLE"."""
    assert isinstance(error, triton.InferenceServerException), repr(error)
    return str(error.status()).removeprefix("StatusCode.")
