"""A request's output on its way from the engine to its reader. Lives on the event loop.

What the engine adds is merged, per sample, until the reader takes it: a slow reader gets fewer and
larger chunks, costs no more memory than the output itself, and delays no other request. Where the
request wants a chunk per token, those wait one by one, as many as its output has tokens.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from collections.abc import Sequence as Many
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from service.errors import AttendantError
from service.generation.choosing.sampling import TokenLogprobs
from service.generation.sequence import GenerationRequest, Sequence


@dataclass(frozen=True, slots=True)
class SequenceUpdate:
    """One step's output for one sequence: a token and the text that is certain, or an error."""

    sequence: Sequence
    text: str = ""
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    error: AttendantError | None = None
    is_last: bool = False
    since_s: float = 0.0  # when its token before this one came; 0 for the first

    @property
    def gaps_s(self) -> list[float]:
        """Seconds from each token's predecessor to it; equal for all tokens of a search."""
        timings, num_tokens = self.sequence.timings, len(self.token_ids)
        if self.since_s:
            return [timings.last_token_s - self.since_s]
        return [timings.decode_s / (num_tokens - 1)] * (num_tokens - 1) if num_tokens > 1 else []


def failed(sequence: Sequence, error: AttendantError) -> SequenceUpdate:
    """The sequence ended with an error."""
    return SequenceUpdate(sequence, error=error, is_last=True)


@dataclass(slots=True)
class Chunk:
    """The new part of one sample. `sequence` may be read for usage and timings once it ended."""

    sequence: Sequence
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    is_last: bool = False


class Generation:
    """The samples of one request: `async with` it, and iterate over its chunks."""

    def __init__(self, sequences: Many[Sequence], leave: Callable[["Generation"], None]) -> None:
        self.sequences = tuple(sequences)
        self._leave = leave
        self._num_unfinished = len(sequences)
        self._pending: dict[object, Chunk] = {}  # by sequence, where chunks are merged
        self._error: AttendantError | None = None
        self._changed = asyncio.Event()

    @property
    def request(self) -> GenerationRequest:
        return self.sequences[0].request

    @property
    def is_complete(self) -> bool:
        """Every sample has ended; what it gave may still wait to be taken."""
        return self._num_unfinished == 0

    def add(self, update: SequenceUpdate) -> None:
        """Take what the engine has; called on the event loop."""
        sequence = update.sequence
        if update.error is not None:
            self._error = self._error or update.error
        key = object() if self.request.chunk_per_token else sequence
        chunk = self._pending.setdefault(key, Chunk(sequence))
        chunk.text += update.text
        chunk.token_ids += update.token_ids
        chunk.logprobs += update.logprobs
        chunk.is_last = update.is_last
        self._num_unfinished -= update.is_last
        self._changed.set()

    def fail(self, error: AttendantError) -> None:
        """End with an error what has not ended; called on the event loop."""
        if not self.is_complete:
            self._error = self._error or error
            self._changed.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave(self)

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        """Chunks as they come, of whichever sample; raises what ended the request early."""
        while self._pending or not self.is_complete:
            if not self._pending:
                self._changed.clear()
                await self._changed.wait()
            if self._error is not None:
                raise self._error  # its chunk stays, so that a further read raises again
            yield self._pending.pop(next(iter(self._pending)))
