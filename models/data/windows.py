"""Cut a stream of tokens into windows of one length: no padding, every token a target in turn.

Knows nothing about models or training. A window of `context + 1` tokens is both input (all but the
last) and target (all but the first).

The one idea: training takes the stream as a circle, which an end of text closes, and cuts it at
another place in every epoch. So no token is always the first of its window, what is left over
(fewer tokens than a window has) is elsewhere each time, and the order of an epoch is a function of
the seed and the epoch's number: a resumed run needs no stored order.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from models.errors import DatasetError


@dataclass(frozen=True, slots=True)
class TrainingWindows:
    """Windows without end: epoch after epoch, in each of them every window once."""

    stream: Tensor  # [T]
    context: int
    seed: int

    def __post_init__(self) -> None:
        if len(self.stream) < self.context:
            raise DatasetError(
                f"the text to train on has {len(self.stream)} tokens, but one window takes "
                f"{self.context}: more text or a smaller context is needed"
            )

    @property
    def num_windows(self) -> int:
        """Number of windows of an epoch."""
        return len(self.stream) // self.context

    def batch(self, first: int, count: int) -> Tensor:
        """[count, context + 1], int64: windows `first`, `first + 1`, ... of all epochs."""
        starts = torch.tensor([self._start(number) for number in range(first, first + count)])
        places = starts[:, None] + torch.arange(self.context + 1)
        return self.stream[places % len(self.stream)].long()

    def _start(self, number: int) -> int:
        epoch, place = divmod(number, self.num_windows)
        cut, order = cut_and_order(len(self.stream), self.num_windows, self.seed, epoch)
        return cut + order[place] * self.context


@lru_cache(maxsize=2)  # a batch may begin in one epoch and end in the next
def cut_and_order(
    num_tokens: int, num_windows: int, seed: int, epoch: int
) -> tuple[int, Sequence[int]]:
    """The place where the circle is cut in this epoch, and the order of the windows after it."""
    shuffler = random.Random(f"epoch {epoch} of {seed}")  # noqa: S311 - to reproduce
    order = list(range(num_windows))
    shuffler.shuffle(order)
    return shuffler.randrange(num_tokens), order


def validation_windows(stream: Tensor, context: int, max_windows: int) -> Iterator[Tensor]:
    """Yield [1, S + 1] int64: the whole stream [T] once, S being `context` but in the last window.

    If there are more than `max_windows`, that many of them, spread evenly.
    """
    num_targets = len(stream) - 1
    if num_targets < 1:
        raise DatasetError("the text to measure on has fewer than 2 tokens")
    starts = range(0, num_targets, context)
    count = min(len(starts), max_windows)
    for i in range(count):
        start = starts[i * len(starts) // count]
        yield stream[start : start + context + 1].long()[None]
