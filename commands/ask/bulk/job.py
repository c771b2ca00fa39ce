"""One job: the texts of a file to a file of results, which goes on where it was interrupted.

Windows of lines are answered by requests in flight, written in their order, and made durable from
time to time. Knows nothing of flags.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from commands.ask.bulk.forms import JsonlForm, NpyForm
from commands.ask.bulk.outputs import BulkOutput, GrowingFile, Parts, errors_path
from commands.ask.bulk.rows import Rows
from commands.ask.bulk.sources import Source
from commands.ask.bulk.state import RESTART, Reached, StateFile
from commands.ask.bulk.windows import Window, Windows
from commands.ask.in_flight import REQUEST_TEXTS, Answered, Conduct, InFlight, Refused
from commands.ask.progress import progress
from service.errors import InvalidArgument, SettingError

SYNC_EVERY_S = 1.0  # of work that may be lost when the machine fails
HOPELESS = 64  # first lines that are refused, each by the server, before any is answered
HALVED = ("INVALID_ARGUMENT", "INTERNAL")  # one text that a model fails on does not end a job
REPEATED = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED")

Ask = Callable[[Sequence[str]], Any]


class LineWork(Protocol):
    """Requests for lines of a file, and their results; `Work` is that of texts."""

    @property
    def rows(self) -> Rows: ...

    @property
    def has_queries(self) -> bool:
        """Whether a line is sent by itself."""
        ...

    def ask(self, client: Any) -> Ask:
        """A function that sends lines as one request."""
        ...

    def results_of(self, answer: Any) -> list[Any]:
        """The results of an answer, in the order of its lines."""
        ...

    def options(self) -> dict[str, Any]:
        """Values by which a job is told from another one."""
        ...


@dataclass(frozen=True, slots=True)
class Job:
    """Parts of a job; `window_lines` and `work` decide what is in its output."""

    source: Source
    output: Path
    work: LineWork
    model: dict[str, str]  # name, version and precision, as they are compared
    window_lines: int
    in_flight: int
    patience_s: float

    def identity(self) -> dict[str, Any]:
        """Values by which a state file tells jobs apart."""
        return {
            **self.source.identity(),
            **self.model,
            **self.work.options(),
            "window_lines": self.window_lines,
        }

    def new_output(self) -> BulkOutput:
        ending = self.output.suffix.lower()
        if ending == ".parquet":
            return Parts(self.output, self.work.rows)
        form = NpyForm if ending == ".npy" else JsonlForm
        return GrowingFile(self.output, form(self.work.rows))


def run_job(job: Job, ask: Ask, *, restarts: bool) -> tuple[Reached, Reached]:
    """Do what is left of a job; returns what earlier runs reached, and the whole.

    Raises `SettingError` for a state of another job, or an output that exists; and the error of a
    request that failed, after which the same job goes on.
    """
    identity, state = job.identity(), StateFile(job.output)
    before = begin(job.output, state, identity, restarts=restarts)
    output = job.new_output()
    try:
        output.open(before)
        reached = _compute(job, ask, output, lambda durable: state.write(identity, durable), before)
        output.finish(reached)
    finally:
        output.close()
    state.remove()
    return before, reached


def begin(output: Path, state: StateFile, identity: dict[str, Any], *, restarts: bool) -> Reached:
    """Place where a job goes on: its start if it is new."""
    if restarts:
        state.remove()
        return Reached()
    reached = state.read(identity)
    if reached is None and output.exists():
        raise SettingError(
            f"--output '{output}' exists, and no job that writes it is unfinished: name another "
            f"file, or {RESTART}"
        )
    return reached or Reached()


def _compute(
    job: Job,
    ask: Ask,
    output: BulkOutput,
    save: Callable[[Reached], None],
    reached: Reached,
) -> Reached:
    durable_s = 0.0  # never

    def make_durable() -> None:
        output.sync()
        save(reached)

    try:
        with job.source.open(reached.num_lines, reached.place) as texts:
            windows = answered_windows(
                job.work, ask, Windows(texts, job.window_lines), job.in_flight, job.patience_s
            )
            with progress(texts.noun, texts.total, reached.place, reached.num_lines) as advance:
                for window in windows:
                    if not reached.num_answered:
                        _check_hope(window, texts.noun)
                    reached = output.write(window, reached)
                    if time.monotonic() - durable_s > SYNC_EVERY_S:
                        make_durable()
                        durable_s = time.monotonic()
                    advance(window.place, reached.num_lines)
    finally:
        make_durable()
    return reached


def answered_windows(
    work: LineWork, ask: Ask, windows: Windows, in_flight: int, patience_s: float
) -> Iterator[Window]:
    """Windows of texts in order, each with its answers."""
    num_texts = 1 if work.has_queries else REQUEST_TEXTS
    conduct = Conduct(in_flight, HALVED, REPEATED, num_texts)
    with InFlight(windows, ask, patience_s, conduct) as answers:
        yield from windows.collected(_told(answers), work.results_of)


def _told(
    answers: "InFlight[Any]",
) -> Iterator[list[Answered[Any] | Refused]]:
    """Answers of windows; the error of a request of which the model failed on every text."""
    for parts in answers:
        failed = [part for part in parts if isinstance(part, Refused) and part.error is not None]
        errors = [part.error for part in failed if part.error is not None]
        if len(errors) > 1 and len(failed) == len(parts):
            internal = [error for error in errors if error.status == "INTERNAL"]
            if len(internal) == len(errors):
                raise internal[0]
        yield parts


def _check_hope(window: Window, noun: str) -> None:
    """Raise the first refusal where every line of the first window was refused by the server."""
    refused = [refusal for refusal in window.refused if refusal.error is not None]
    if len(refused) >= HOPELESS and not any(result is not None for result in window.results):
        raise InvalidArgument(
            f"none of the first {len(refused)} {noun}s could be answered: {noun} "
            f"{refused[0].line.number}: {refused[0].reason}"
        )


def summary(output: Path, before: Reached, reached: Reached, took_s: float) -> str:
    """A line about a job that is done."""
    rate = (reached.num_lines - before.num_lines) / max(took_s, 1e-9)
    parts = [f"{reached.num_answered:,} lines were answered, {rate:,.0f}/s"]
    if before.num_lines:
        parts.append(f"{before.num_answered:,} of them by earlier runs")
    if reached.num_empty:
        parts.append(f"{reached.num_empty:,} empty")
    if reached.num_refused:
        parts.append(f"{reached.num_refused:,} refused")
    if reached.num_empty or reached.num_refused:
        parts.append(f"see {errors_path(output)}")
    return ", ".join(parts)
