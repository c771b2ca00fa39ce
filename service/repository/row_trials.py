"""Made-up rows that a graph of unknown meaning can be tried with, and runs of them.

What a graph accepts is known by its types and fixed dims only, so several shapes and kinds of
values are tried, the likeliest first. Whole numbers may be ids of a small vocabulary or indices.
Runs on the thread that loads. Knows no configuration.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from threading import Timer
from types import TracebackType
from typing import Literal, Self, TypeAlias

import numpy as np

from service.contract.tensors import BF16, BYTES, Arrays, Signature, TensorSpec
from service.errors import ModelFailed
from service.runtime.session import RunStop, Session

# Kinds of values; under "still" whole numbers are 0, and under the last three rows may be equal.
Values: TypeAlias = Literal["wide", "small", "still", "zeros", "high", "low"]
Dims: TypeAlias = Mapping[str, tuple[int, ...]]  # of one row, by input

NUM_ROWS = 3  # that are told apart
FREE_SIZES = (8, 1, 32, 224)  # of free axes, all of one size
IMAGE_DIMS = ((3, 32, 32), (32, 32, 3), (3, 224, 224), (224, 224, 3))
MAX_ELEMENTS = 2**22  # of one row; larger ones are not made up
ANY_WHOLE = 128  # wide whole numbers are less: ids that most vocabularies have
EXTREME = 100.0  # a number that thresholds of detectors are below, or above with a minus
SEED = 0


class TrialStop(RunStop):
    """Ends the runs of trials when their time is over."""

    def __init__(self, max_s: float) -> None:
        super().__init__()
        self.max_s = max_s
        self._began_s = time.monotonic()
        self._alarm = Timer(max_s, self.stop)
        self._alarm.daemon = True

    @property
    def passed_share(self) -> float:
        """The share of the time that is over."""
        return (time.monotonic() - self._began_s) / self.max_s

    def __enter__(self) -> Self:
        self._alarm.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._alarm.cancel()


@dataclass(frozen=True, slots=True)
class Trials:
    """A graph's runs of made-up rows, each input having one row per row."""

    session: Session
    stopping: TrialStop

    @property
    def signature(self) -> Signature:
        return self.session.signature

    def run(self, rows: Sequence[Arrays]) -> dict[str, np.ndarray]:
        """The outputs of these rows in one run. Raises `ModelFailed`."""
        names = [spec.name for spec in self.signature.outputs]
        inputs = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
        try:
            outputs = self.session.run(inputs, names, self.stopping)
        except ModelFailed:
            raise
        except Exception as error:  # what a graph's odd output makes of a library
            raise ModelFailed(f"{type(error).__name__}: {error}") from error
        return {
            spec.name: numbers_of(output, spec)
            for spec, output in zip(self.signature.outputs, outputs, strict=True)
        }

    def rows(self, dims: Dims, values: Values) -> list[Arrays]:
        """Rows that differ, as far as the kind of values allows."""
        random = np.random.default_rng(SEED)
        return [
            {
                spec.name: _values(spec, (1, *dims[spec.name]), values, random)
                for spec in self.signature.inputs
            }
            for _ in range(NUM_ROWS)
        ]


def dims_to_try(signature: Signature, stated: Dims) -> Iterator[Dims]:
    """Dims of a row for all inputs; where the configuration states free ones, these are taken."""
    specs = [(spec.name, _row_dims(spec, stated.get(spec.name, ()))) for spec in signature.inputs]
    seen = [_filled(specs, size, ()) for size in FREE_SIZES]
    seen += [_filled(specs, 1, image) for image in IMAGE_DIMS]
    for place, dims in enumerate(seen):
        is_small = all(prod(each) <= MAX_ELEMENTS for each in dims.values())
        if is_small and dims not in seen[:place]:
            yield dims


def numbers_of(output: np.ndarray, spec: TensorSpec) -> np.ndarray:
    """An output as numbers that can be compared: bfloat16 comes as bits."""
    output = np.asarray(output)
    if spec.datatype.name == BF16:
        return (output.astype(np.uint32) << 16).view(np.float32)
    return output


def _row_dims(spec: TensorSpec, stated: Sequence[int]) -> tuple[int, ...]:
    own = spec.dims[1:]
    if len(stated) != len(own):
        return own
    return tuple(said if dim == -1 else dim for dim, said in zip(own, stated, strict=True))


def _filled(
    specs: Sequence[tuple[str, tuple[int, ...]]], size: int, image: tuple[int, ...]
) -> Dims:
    """Free axes of a size, or those of an image where an input has as many axes."""
    filled: dict[str, tuple[int, ...]] = {}
    for name, dims in specs:
        sizes = image if len(dims) == len(image) else (size,) * len(dims)
        filled[name] = tuple(
            free if dim == -1 else dim for dim, free in zip(dims, sizes, strict=True)
        )
    return filled


def _values(
    spec: TensorSpec, shape: tuple[int, ...], values: Values, random: np.random.Generator
) -> np.ndarray:
    if spec.datatype.name == BYTES:  # digits: strings may be read as numbers
        digits = random.integers(10, size=shape).astype(str)
        return np.full(shape, "0", object) if values == "zeros" else digits.astype(object)
    kind, dtype = spec.datatype.dtype.kind, spec.datatype.dtype
    if kind == "b":
        return random.integers(2, size=shape).astype(dtype)
    if spec.datatype.name == BF16:
        floats = _floats(shape, values, random).astype(np.float32)
        return (floats.view(np.uint32) >> 16).astype(np.uint16)
    if kind == "f":
        return _floats(shape, values, random).astype(dtype)
    below = {"zeros": 1, "still": 1, "small": 2}.get(values, ANY_WHOLE)
    return random.integers(below, size=shape).astype(dtype)


def _floats(shape: tuple[int, ...], values: Values, random: np.random.Generator) -> np.ndarray:
    if values == "zeros":
        return np.zeros(shape)
    if values in ("small", "still"):
        return random.uniform(0.1, 1.0, shape)
    factors = {"wide": 1.0, "high": EXTREME, "low": -EXTREME}
    drawn = random.standard_normal(shape)
    return drawn if values == "wide" else factors[values] * (1.0 + np.abs(drawn))
