"""A sequence's output so far, in the form that penalties read: updated per token, never re-read.

Pure and of one sequence; grows with it, so it is bounded by the model's context.
"""

from collections import deque
from collections.abc import Iterable

import numpy as np


class TokenCounts:
    """Every id that occurred, once, and how often it was generated: 0 if only in the prompt."""

    def __init__(self, prompt_ids: np.ndarray) -> None:
        ids = np.unique(prompt_ids)
        self._places = {token_id: place for place, token_id in enumerate(ids.tolist())}
        capacity = max(64, 2 * ids.size)
        self._ids = np.zeros(capacity, np.int64)
        self._ids[: ids.size] = ids
        self._generated = np.zeros(capacity, np.float32)

    @property
    def ids(self) -> np.ndarray:
        """int64, each once, in order of appearance after the prompt's."""
        return self._ids[: len(self._places)]

    @property
    def generated(self) -> np.ndarray:
        """float32 beside `ids`."""
        return self._generated[: len(self._places)]

    def add(self, token_id: int) -> None:
        place = self._places.setdefault(token_id, len(self._places))
        if place == self._ids.size:
            self._ids = np.concatenate((self._ids, np.zeros_like(self._ids)))
            self._generated = np.concatenate((self._generated, np.zeros_like(self._generated)))
        self._ids[place] = token_id
        self._generated[place] += 1


class NgramFollowers:
    """The tokens that followed earlier occurrences of the last `size - 1` tokens."""

    def __init__(self, size: int, prompt_ids: Iterable[int]) -> None:
        self._last: deque[int] = deque(maxlen=size - 1)
        self._size = size
        self._followers: dict[tuple[int, ...], list[int]] = {}
        for token_id in prompt_ids:
            self.add(token_id)

    def of_last(self) -> list[int]:
        """Ids that would repeat an n-gram if they came next."""
        return self._followers.get(tuple(self._last), [])

    def add(self, token_id: int) -> None:
        if len(self._last) == self._size - 1:
            self._followers.setdefault(tuple(self._last), []).append(token_id)
        self._last.append(token_id)
