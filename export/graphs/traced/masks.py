"""Masks of attention, read of transformers' own mask functions.

An argument such as `sliding_window` does not mean the same in every family, and some pass it to a
function that does not use it. So the function that makes the mask is called on places, and must be
exactly one of the forms that an operator has.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from export.errors import ExportError

MaskFunction = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # batch, head, query, key
NUM_LAST = 4  # places at the end of the context where a mask is looked at too
SHORT = 64  # a grid of this size is looked at whatever the window is


@dataclass(frozen=True, slots=True)
class Mask:
    """The keys that a token sees: itself and all before it, or all; a window bounds both."""

    is_causal: bool
    window: int = 0  # 0: none. Causal: keys with the token itself; full: keys on each side of it
    context: int = field(default=0, compare=False)  # tokens of the texts that it was read for

    @classmethod
    def read(cls, function: MaskFunction, context: int) -> "Mask":
        """The mask that the function makes of texts of `context` tokens.

        Raises `ExportError` for one that an attention node cannot have.
        """
        middle = context // 2
        row = _seen(function, torch.tensor([middle, context - 1]), context)
        is_causal = not bool(row[0, middle + 1 :].any())
        num_seen = int(row[1].sum())
        if is_causal:
            mask = cls(True, 0 if num_seen == context else num_seen, context)
        else:
            right = int(row[0, middle + 1 :].sum())
            is_full = bool(row.all())
            mask = cls(False, 0 if is_full else right, context)
        mask.check(function, context)
        return mask

    def check(self, function: MaskFunction, context: int) -> None:
        """Raise `ExportError` unless the function makes exactly this mask."""
        size = min(context, max(SHORT, 2 * self.window + 3))
        last = torch.arange(max(0, context - NUM_LAST), context)
        for places, num_keys in ((torch.arange(size), size), (last, context)):
            seen = _seen(function, places, num_keys)
            if not torch.equal(seen, self.seen(places, num_keys)):
                raise ExportError(
                    "the network's mask of attention is neither causal, nor full, nor a window of "
                    f"either: it is taken for {self}, and differs among {num_keys} tokens"
                )

    def seen(self, places: Tensor, num_keys: int) -> Tensor:
        """Whether a token at each of the places sees each key, [places, keys]."""
        distance = places[:, None] - torch.arange(num_keys)
        if self.is_causal:
            return (distance >= 0) & ((distance < self.window) if self.window else True)
        return distance.abs() <= self.window if self.window else distance.abs() >= 0

    def __getitem__(self, _: object) -> "Mask":
        """The mask for as many keys as there are: networks cut masks to the length of keys."""
        return self

    def __str__(self) -> str:
        kind = "causal" if self.is_causal else "full"
        return f"{kind}, with a window of {self.window} tokens" if self.window else kind


def _seen(function: MaskFunction, places: Tensor, num_keys: int) -> Tensor:
    zero = torch.zeros(1, 1, dtype=torch.int64)
    seen = function(zero[0, 0], zero[0, 0], places[:, None], torch.arange(num_keys)[None])
    return torch.as_tensor(seen).expand(len(places), num_keys).bool()


@dataclass(frozen=True, slots=True)
class UnreadMask:
    """A mask that no attention node has; it is refused only where a layer uses it."""

    why: str


_reading: list[int] = []  # the context of texts, while masks are read


def mask_of(*, mask_function: MaskFunction, **_: object) -> Mask | UnreadMask | None:
    """The mask itself while masks are read, else none: transformers calls this."""
    if not _reading:
        return None
    try:
        return Mask.read(mask_function, _reading[-1])
    except ExportError as error:
        return UnreadMask(str(error))


@contextmanager
def masks_read(context: int) -> Iterator[None]:
    """While entered, layers are given masks for texts of `context` tokens as `Mask`."""
    _reading.append(context)
    try:
        yield
    finally:
        _reading.pop()
