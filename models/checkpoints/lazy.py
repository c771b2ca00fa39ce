"""Tensors that stay in their files: read where they are computed with, and forgotten after.

A `LazyTensor` has a shape and no numbers. Some operations on it, as to split it or to add one, give
another that is lazy. All others read it for as long as they take. So a network with such weights is
built, compared, run and written by the same code as any other, in the memory of its largest weight;
of a table of words only the rows that a text needs are read, and a large product is computed in
slices.

Knows nothing about networks, and of files only that something reads them.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, Self, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

aten = torch.ops.aten
COPIED, UNSAFE_VIEW = torch.ops.aten._to_copy.default, torch.ops.aten._unsafe_view.default  # noqa: SLF001
Operation: TypeAlias = Any  # of torch, its arguments and its results, which have no type
SLICE_NUMBERS = 2**22  # of a weight that are made floating point numbers at once: 16 MiB
CPU = torch.device("cpu")
Index = slice | Tensor  # of rows
Read = Callable[[Index | None], Tensor]  # some rows, or the whole

# Operations of each row by itself, with at most numbers beside the tensor.
BY_ROWS = frozenset(
    (
        *(COPIED, aten.clone.default, aten.detach.default, aten.alias.default),
        *(aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor),
    )
)
KEEPS_VALUES = frozenset(
    (
        *(aten.t.default, aten.transpose.int, aten.permute.default, aten.view.default),
        *(aten.slice.Tensor, aten.split.Tensor, aten.split_with_sizes.default),
        *(aten.select.int, aten.unsqueeze.default, aten.squeeze.dim, aten.clone.default),
        *(aten.detach.default, aten.alias.default, UNSAFE_VIEW),
    )
)
DEFERRED = BY_ROWS | KEEPS_VALUES


class LazyTensor(Tensor):
    """A tensor whose numbers are read when an operation needs them; never changed in place."""

    _read: Read
    reads_rows: bool  # whether some rows are read without the others
    stored_dtype: torch.dtype  # that holds its numbers exactly
    transposed: Self | None  # what this is the transpose of
    in_file: Tensor | None  # the tensor as its file has it, where that has the same numbers

    def __new__(
        cls,
        like: Tensor,
        read: Read,
        stored_dtype: torch.dtype | None = None,
    ) -> Self:
        with torch.inference_mode(mode=False):  # as a view of a weight may be made in it
            made: Self = cls._make_wrapper_subclass(
                cls, like.shape, strides=like.stride(), dtype=like.dtype, device=CPU
            )
        made._read, made.transposed, made.in_file = read, None, None
        made.stored_dtype, made.reads_rows = stored_dtype or like.dtype, True
        return made

    @classmethod
    def of(
        cls,
        shape: tuple[int, ...],
        read: Callable[[], Tensor],
    ) -> "LazyTensor":
        """A tensor in float32 that is read as a whole."""

        def rows(index: Index | None) -> Tensor:
            return read() if index is None else read()[index]

        made = cls(torch.empty(shape, device="meta"), rows)
        made.reads_rows = False
        return made

    @classmethod
    def of_mapped(cls, mapped: Tensor) -> "LazyTensor":
        """A tensor in float32, of one that is mapped from its file in any floating point type."""

        def rows(index: Index | None) -> Tensor:
            return (mapped if index is None else mapped[index]).float()

        like = torch.empty(mapped.shape, dtype=torch.float32, device="meta")
        made = cls(like, rows, stored_dtype=mapped.dtype)
        made.in_file = mapped
        return made

    def rows(self, index: Index | None = None) -> Tensor:
        """The numbers of some rows, or of all."""
        return self._read(index)

    def changed(self, change: Callable[[Tensor], Tensor]) -> "LazyTensor":
        """A tensor of the same shape, which `change` makes of this one whenever it is read."""
        return LazyTensor.of(tuple(self.shape), lambda: change(self.rows()))

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __repr__(self, *, tensor_contents: Operation = None) -> str:  # type: ignore[override]
        return f"LazyTensor({list(self.shape)}, {self.dtype})"

    @classmethod
    def __torch_function__(
        cls, func: Operation, _types: Operation, args: Operation = (), kwargs: Operation = None
    ) -> Operation:
        given = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        # What is made of weights alone may be several views of one, which inference mode refuses.
        is_of_weights = all(isinstance(each, LazyTensor) for each in given)
        mode = torch.inference_mode(mode=False) if is_of_weights else nullcontext()
        with torch._C.DisableTorchFunctionSubclass(), mode:  # noqa: SLF001 - documented
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Operation, _types: Operation, args: Operation = (), kwargs: Operation = None
    ) -> Operation:
        kwargs = kwargs or {}
        tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        first, *others = tensors
        if func in DEFERRED and isinstance(first, LazyTensor) and not others:
            return _deferred(func, first, args, kwargs)
        if func is aten.embedding.default:
            table, ids, *_ = args
            return table.rows(ids.flatten()).view(*ids.shape, -1)
        if func is aten.mm.default and isinstance(args[1], LazyTensor):
            weight = args[1].transposed
            if weight is not None:
                return _in_slices(args[0], weight)
        return func(*tree_map(realised, args), **tree_map(realised, kwargs))


def _in_slices(left: Tensor, weight: LazyTensor) -> Tensor:
    """The product of a tensor with the transpose of a weight, some rows of it at a time."""
    return torch.cat([torch.mm(left, piece.T) for piece in pieces(weight)], dim=1)


def _deferred(func: Operation, given: LazyTensor, args: Operation, kwargs: Operation) -> Operation:
    """The result of an operation on one lazy tensor, as lazy."""
    meta = torch.empty_strided(given.shape, given.stride(), dtype=given.dtype, device="meta")

    def on(tensor: Tensor) -> Operation:
        def put(each: object) -> object:
            return tensor if each is given else each

        return func(*tree_map(put, args), **tree_map(put, kwargs))

    def lazy(like: Tensor, place: int | None) -> LazyTensor:
        is_same = func in KEEPS_VALUES
        part = _part(meta, like) if is_same else None

        def read(index: Index | None) -> Tensor:
            if part is not None:
                return given.rows(_within(part, index))
            if func in BY_ROWS and index is not None:
                rows: Tensor = on(given.rows(index))
                return rows
            whole = on(given.rows())
            tensor: Tensor = whole if place is None else whole[place]
            return tensor if index is None else tensor[index]

        made = LazyTensor(like, read, given.stored_dtype if is_same else None)
        made.reads_rows = (func in BY_ROWS or part is not None) and given.reads_rows
        if func is aten.t.default:
            made.transposed = given
        return made

    likes = on(meta)
    if isinstance(likes, Tensor):
        return lazy(likes, None)
    return [lazy(like, place) for place, like in enumerate(likes)]


def _part(whole: Tensor, view: Tensor) -> slice | None:
    """The rows of a tensor that a view of it has, as where it was split; None of another view."""
    is_of_rows = whole.ndim and whole.shape[1:] == view.shape[1:]
    if not is_of_rows or whole.stride() != view.stride():
        return None
    start = view.storage_offset() // whole.stride(0)
    return slice(start, start + len(view))


def _within(part: slice, index: Index | None) -> Index:
    """Rows of a part as rows of the whole."""
    if isinstance(index, Tensor):
        rows: Tensor = index + part.start
        return rows
    start, stop, step = (index or slice(None)).indices(part.stop - part.start)
    return slice(part.start + start, part.start + stop, step)


def pieces(tensor: Tensor) -> Iterator[Tensor]:
    """The numbers of a tensor in their order, some rows at a time where these can be read alone."""
    if not isinstance(tensor, LazyTensor) or not tensor.reads_rows or not tensor.ndim:
        yield realised(tensor)
        return
    num_rows = max(1, SLICE_NUMBERS // max(1, tensor[:1].numel()))
    for start in range(0, len(tensor), num_rows):
        yield tensor.rows(slice(start, start + num_rows))


def realised(value: Operation) -> Operation:
    """A lazy tensor's numbers; any other argument of an operation as it is."""
    return value.rows() if isinstance(value, LazyTensor) else value


def realise(module: nn.Module) -> None:
    """Give a module the numbers of its lazy weights."""
    made: dict[int, nn.Parameter] = {}
    for each in module.modules():
        for name, buffer in each._buffers.items():  # noqa: SLF001
            each._buffers[name] = realised(buffer)  # noqa: SLF001
        for name, weight in each._parameters.items():  # noqa: SLF001 - as torch's functions do
            if isinstance(weight, LazyTensor):
                if id(weight) not in made:
                    made[id(weight)] = nn.Parameter(weight.rows(), weight.requires_grad)
                each._parameters[name] = made[id(weight)]  # noqa: SLF001
