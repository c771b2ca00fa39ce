"""The classification extension: an output as its best classes, each `value:index[:label]`."""

import math
from collections.abc import Sequence

import numpy as np
from tritonclient.grpc import service_pb2 as pb

from service.contract.tensors import BF16, BYTES, Datatype
from service.errors import InvalidArgument

PARAMETER = "classification"
MAX_ELEMENTS = 1_000_000  # of one output, all rows together: sorting them blocks the event loop
_UNSUPPORTED = ("BOOL", "FP16", BF16, BYTES)


def class_count(output: pb.ModelInferRequest.InferRequestedOutputTensor) -> int | None:
    """The number of classes requested of an output; None for the plain output."""
    if PARAMETER not in output.parameters:
        return None
    parameter = output.parameters[PARAMETER]
    if parameter.WhichOneof("parameter_choice") != "int64_param":
        raise InvalidArgument(
            f"invalid value type for '{PARAMETER}' parameter, expected int64_param"
        )
    count: int = parameter.int64_param
    if count <= 0:
        raise InvalidArgument(f"invalid value for '{PARAMETER}' parameter, expected >= 0")
    return count


def check_classes(datatype: Datatype) -> None:
    """Refuse outputs whose elements are no classes' values."""
    if datatype.name in _UNSUPPORTED:
        raise InvalidArgument(
            f"class result not available for output due to unsupported type '{datatype.name}'"
        )


def classify(
    values: np.ndarray, count: int, labels: Sequence[str], *, has_rows: bool
) -> np.ndarray:
    """The best `count` classes as BYTES [rows, k], or [k] where there are no rows."""
    if values.size > MAX_ELEMENTS:
        raise InvalidArgument("classification output tensor too large")
    shape = values.shape if has_rows else (1, *values.shape)
    rows = values.reshape(shape[0], math.prod(shape[1:]))
    best = _descending(rows)[:, :count]
    classes = np.empty(best.shape, object)
    chosen = np.take_along_axis(rows, best, axis=1)
    for row, indices, numbers in zip(classes, best.tolist(), chosen.tolist(), strict=True):
        row[:] = [
            f"{_written(number)}:{index}{_label(labels, index)}".encode()
            for index, number in zip(indices, numbers, strict=True)
        ]
    return classes if has_rows else classes[0]


def _descending(rows: np.ndarray) -> np.ndarray:
    """Indices [rows, n] from the largest value to the smallest, equal ones in their order.

    NaN counts as the smallest.
    """
    if rows.dtype.kind == "f":
        rows = np.where(np.isnan(rows), -np.inf, rows)
    ascending = np.argsort(rows[:, ::-1], axis=1, kind="stable")  # of the values from behind
    descending: np.ndarray = rows.shape[1] - 1 - ascending[:, ::-1]
    return descending


def _label(labels: Sequence[str], index: int) -> str:
    return f":{labels[index]}" if index < len(labels) else ""


def _written(value: float | int) -> str:
    """Numbers as C++ writes them: six decimals, or none for whole types."""
    return f"{value:f}" if isinstance(value, float) else str(value)
