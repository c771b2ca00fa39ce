"""The worker's half of the protocol: a JSON object per line on stdin, one per line on stdout.

    {"open": {...}}             options of `peers.py`, and what `Setup` adds -> {}
    {"run": {Work}}             -> {Answer}
    either                      -> {"error": "why"}

This module runs in every peer's environment, so it imports the standard library alone. A worker
without a request sleeps on stdin, and ends when stdin does. What libraries print to stdout goes to
stderr, which is a log file.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one turn, the same for every engine.

    Rows to classify, `concurrency` of them in a batch or in flight at a server; or prompts to
    continue greedily by `num_tokens` each, past any end token, `concurrency` of them in flight; or
    texts, which every engine tokenizes and batches by itself: to embed, or to score for a query.
    """

    rows: list[list[int]]  # token ids, special ones included
    concurrency: int
    num_tokens: list[int] = field(default_factory=list)  # per row; empty means classify
    of_capacity: float = 0.0  # an open loop at this share of what a closed one showed; 0 is closed
    texts: list[str] = field(default_factory=list)  # in place of rows
    query: str = ""  # that all texts are scored for; empty means embed

    @property
    def amount(self) -> int:
        """The counted amount: generated tokens, texts, or rows."""
        return sum(self.num_tokens) or len(self.texts) or len(self.rows)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The query with each text."""
        return [(self.query, text) for text in self.texts]

    def batches(self) -> Iterator[list[list[int]]]:
        """The rows in batches of `concurrency`, in order."""
        for start in range(0, len(self.rows), self.concurrency):
            yield self.rows[start : start + self.concurrency]


@dataclass(frozen=True, slots=True)
class Answer:
    """The duration, and each row's logits, new tokens or vector, in the order of the rows."""

    seconds: float
    outputs: Sequence[Sequence[float]]
    latencies_s: Sequence[float] = ()  # per request, of a server
    first_s: Sequence[float] = ()  # per prompt, from when it was given to its first token
    counts: Mapping[str, float] = field(default_factory=dict)  # what else an engine knows


@dataclass(frozen=True, slots=True)
class Setup:
    """A worker's model and options."""

    model: str  # folder
    threads: int
    python: str  # of the peer's environment: what a server starts
    scratch: str  # folder that it may write into
    options: dict[str, Any]  # as `peers.py` declares them; `device` is the CPU unless it is named

    @property
    def device(self) -> str:
        return str(self.options.get("device", "cpu"))


Run: TypeAlias = Callable[[Work], Answer]


def serve(open_engine: Callable[[Setup], Run]) -> None:
    """Answer each line of stdin until it ends."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    run: Run | None = None
    for line in sys.stdin:
        message = json.loads(line)
        try:
            if "open" in message:
                run, reply = open_engine(Setup(**message["open"])), {}
            else:
                assert run is not None, "run before open"
                reply = asdict(run(Work(**message["run"])))
        except Exception as error:  # of any kind: the other side reports it
            reply = {"error": f"{type(error).__name__}: {error}"[:2_000]}
        print(json.dumps(reply), file=replies, flush=True)


def padded(rows: Sequence[Sequence[int]], pad: int = 0) -> tuple[list[list[int]], list[list[int]]]:
    """Rows filled up on the right to the longest, and their mask."""
    longest = max(map(len, rows))
    ids = [[*row, *[pad] * (longest - len(row))] for row in rows]
    mask = [[1] * len(row) + [0] * (longest - len(row)) for row in rows]
    return ids, mask


Rows: TypeAlias = list[list[int]]


def classifying(
    logits: Callable[[Any], list[list[float]]], prepared: Callable[[Rows], Any] = lambda rows: rows
) -> Run:
    """An engine that takes one batch after the other.

    `prepared` makes a batch of rows what the engine takes, which is in no engine's time: where a
    batch takes milliseconds, lists of numbers would be much of it.
    """

    def run(work: Work) -> Answer:
        batches = [prepared(rows) for rows in work.batches()]
        started_s = time.perf_counter()
        outputs = [row for batch in batches for row in logits(batch)]
        return Answer(time.perf_counter() - started_s, outputs)

    return run


def generating_in_groups(
    generate: Callable[[Rows, int], Rows], first_token_at: Callable[[], float] | None = None
) -> Run:
    """Static batches of as many prompts as are in flight: all wait for the longest output.

    `first_token_at` is when the last group had its first tokens, by `time.perf_counter`.
    """

    def run(work: Work) -> Answer:
        outputs: Rows = []
        first_s: list[float] = []
        started_s = time.perf_counter()
        for prompts in work.batches():
            counts = work.num_tokens[len(outputs) : len(outputs) + len(prompts)]
            given_s = time.perf_counter()
            rows = generate(prompts, max(counts))
            if first_token_at is not None:
                first_s += [first_token_at() - given_s] * len(prompts)
            outputs += [row[:count] for row, count in zip(rows, counts, strict=True)]
        return Answer(time.perf_counter() - started_s, outputs, first_s=first_s)

    return run
