"""The adapters that a graph computes beside its own weights: fixed places in bound matrices.

A graph with adapters has further inputs. For every adapted product there are A [inputs, P * r] and
B [P * r, outputs], in which P places of r columns and rows belong to one adapter each; ranks below
r are padded with zeros. `adapter_mask` [B, P, r] says which of them a row uses: none, or those of
one place. So rows of different adapters share every product, and no weights are gathered.

One thread only: the engine writes a place between two runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from service.contract.adapter import INPUT_SIDE, OUTPUT_SIDE, Adapter
from service.contract.tensors import Signature
from service.errors import LoadError

ADAPTERS_SUFFIX = ".adapters.onnx"  # of the graph: beside model.onnx, model.adapters.onnx
MASK = "adapter_mask"
PREFIX = "lora."  # of the inputs, then the module's name and the side


@dataclass(frozen=True, slots=True)
class AdapterShape:
    """The places of a graph, and the products that it adapts."""

    num_places: int
    rank: int  # at most, of an adapter
    modules: dict[str, tuple[int, int]]  # the values in and out of each product

    @classmethod
    def of(cls, signature: Signature) -> Self:
        """Read from a graph's tensors, or `LoadError` for one that takes no adapters."""
        dims = {spec.name: spec.dims for spec in signature.inputs}
        mask = dims.get(MASK, ())
        names = [name for name in dims if name.startswith(PREFIX) and name.endswith(INPUT_SIDE)]
        if len(mask) != 3 or min(mask[1:]) < 1 or not names:
            raise LoadError(
                f"a graph with adapters takes {MASK} [-1, places, rank] and {PREFIX}*; "
                f"this one takes {sorted(dims)}"
            )
        _, num_places, rank = mask
        modules: dict[str, tuple[int, int]] = {}
        for name in names:
            module = name.removeprefix(PREFIX).removesuffix(INPUT_SIDE)
            a, b = dims[name], dims.get(PREFIX + module + OUTPUT_SIDE, ())
            if len(a) != 2 or len(b) != 2 or (a[1], b[0]) != (num_places * rank,) * 2:
                raise LoadError(
                    f"'{module}' has A {list(a)} and B {list(b)}, expected "
                    f"{num_places * rank} columns and rows"
                )
            modules[module] = a[0], b[1]
        return cls(num_places, rank, modules)

    @property
    def input_names(self) -> list[str]:
        sides = (INPUT_SIDE, OUTPUT_SIDE)
        return [MASK, *(PREFIX + module + side for module in self.modules for side in sides)]

    @property
    def num_bytes(self) -> int:
        """The matrices of all places."""
        return 4 * self.num_places * self.rank * sum(map(sum, self.modules.values()))

    def check(self, adapter: Adapter) -> None:
        """Raise `LoadError` for an adapter that does not fit."""
        for module, factors in adapter.factors.items():
            if module not in self.modules:
                targets = sorted({name.rsplit(".", 1)[-1] for name in self.modules})
                raise LoadError(
                    f"the adapter changes '{module}', and '{adapter.base}' was exported with "
                    f"adapters for {', '.join(targets)}: export it with --lora-targets"
                )
            if factors.rank > self.rank:
                raise LoadError(
                    f"the adapter has rank {factors.rank} at '{module}', and '{adapter.base}' was "
                    f"exported for at most {self.rank}: export it with --lora-rank {adapter.rank}"
                )
            size = len(factors.a), factors.b.shape[1]
            if size != self.modules[module]:
                raise LoadError(
                    f"the adapter's '{module}' takes {size[0]} values and gives {size[1]}, that "
                    f"of '{adapter.base}' {self.modules[module][0]} and {self.modules[module][1]}"
                )


class AdapterBuffers:
    """The matrices of all places, which runs read where they are."""

    def __init__(self, shape: AdapterShape) -> None:
        self.shape = shape
        self.arrays: dict[str, np.ndarray] = {}  # by input
        width = shape.num_places * shape.rank
        for module, (num_in, num_out) in shape.modules.items():
            self.arrays[PREFIX + module + INPUT_SIDE] = np.zeros((num_in, width), np.float32)
            self.arrays[PREFIX + module + OUTPUT_SIDE] = np.zeros((width, num_out), np.float32)

    def write(self, place: int, adapter: Adapter) -> None:
        """Give a place, counted from 1, to an adapter that fits."""
        start, end = (place - 1) * self.shape.rank, place * self.shape.rank
        for module in self.shape.modules:
            a = self.arrays[PREFIX + module + INPUT_SIDE][:, start:end]
            b = self.arrays[PREFIX + module + OUTPUT_SIDE][start:end]
            factors = adapter.factors.get(module)
            rank = 0 if factors is None else factors.rank
            if factors is not None:
                a[:, :rank], b[:rank] = factors.a, factors.b
            a[:, rank:], b[rank:] = 0.0, 0.0

    def empty_mask(self, num_rows: int) -> np.ndarray:
        return np.zeros((num_rows, self.shape.num_places, self.shape.rank), bool)


def fill_mask(mask: np.ndarray, places: Sequence[int]) -> None:
    """Let each row use its place, or none where that is 0."""
    mask[:] = False
    for row, place in enumerate(places):
        if place:
            mask[row, place - 1] = True
