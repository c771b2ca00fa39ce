"""Runs sections one after the other within a budget, each in a process of its own.

A process of its own, since an error on a GPU can leave a process without its device, and since
native code can end the process: neither may take the other sections with it. The processes are
forks of one that has imported the large libraries and has not touched the device. Models are
exported beside the sections by a further process. Each is a process group, which is ended as one.

A section has its weight's share of the time that is left, or of the usual budget where that is
more: a small budget is for the first sections. It ends by itself when its time is over, and is
ended after half as long again, never later than the budget allows. Signals that end the command,
and the end of the budget, are looked for while it waits.
"""

import importlib
import json
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Any

from loadtests.gpu.context import Context, Parts, Run, say
from loadtests.gpu.report import failed_checks, write_report
from loadtests.gpu.sections import Section

PRELOADED = ("numpy", "torch", "onnx", "tritonclient.grpc")
PREPARED = "loadtests.gpu.models:prepare"
REPORT_S = 3.0  # of the budget, for ending processes and for the last report
OVERTIME, OVERTIME_S = 1.5, 5.0  # a section is ended after its share times the first and the second
USUAL_S = 480.0  # of all sections: with a smaller budget the first ones have as much
ENDING_S = 5.0  # for the step with which a section is busy when its time is over
POLL_S = 0.05
DONE, FAILED, STOPPED, LEFT = "done", "failed", "stopped", "not begun"

Record = dict[str, Any]  # what is kept of a section


@dataclass(slots=True)
class Stop:
    """Whether the command is to end, and why. Set by signals, looked at between waits."""

    ends_s: float  # of the budget, without what the report needs
    signal_name: str = ""

    @property
    def why(self) -> str:
        if self.signal_name:
            return f"the command was ended by {self.signal_name}"
        return "the budget was used up" if time.monotonic() >= self.ends_s else ""

    def started(self, target: str, *arguments: Any) -> BaseProcess:
        """A process that calls a function; the first waits for imports, not beyond the end."""
        process: BaseProcess = multiprocessing.get_context("forkserver").Process(
            target=_in_own_group, args=(self.ends_s, target, *arguments)
        )
        thread = Thread(target=process.start, daemon=True)
        thread.start()
        thread.join(max(0.0, self.ends_s - time.monotonic()))
        return process

    def wait(self, process: BaseProcess, ends_s: float) -> bool:
        """Whether a process has ended before a time, and before the command is to end."""
        if process.pid is None:
            return False
        while process.is_alive() and not self.why and time.monotonic() < ends_s:
            process.join(POLL_S)
        return not process.is_alive()


def run_all(
    run: Run, sections: Sequence[Section], numbers: Sequence[int], ends_s: float, *, is_again: bool
) -> int:
    """Run sections until a time, and write the report; 0 where all that was run so far is good."""
    run.work.mkdir(parents=True, exist_ok=True)
    left = [each for each in sections if each.number in numbers]
    for number, before in ({} if is_again else read_records(run, left)).items():
        if before["state"] == DONE:
            say(f"section {number}: is done already, see --again")
            left = [each for each in left if each.number != number]
    for section in left:
        (run.out / section.filename).unlink(missing_ok=True)
    multiprocessing.get_context("forkserver").set_forkserver_preload(list(PRELOADED))
    gate = ""
    with _stopping(ends_s - REPORT_S) as stop, _preparing(run, left, stop):
        for index, section in enumerate(left):
            weight = sum(each.weight for each in left[index:])
            time_s = stop.ends_s - time.monotonic() - ENDING_S
            usual_s = min(time_s, USUAL_S * section.weight)  # first come, first served
            share_s = max(section.least_s, usual_s, time_s * section.weight / weight)
            if why := gate or stop.why:
                _leave_out(run, section, why)
            elif time_s < section.least_s:
                why = f"{max(0.0, time_s):.0f} s were left, and it needs {section.least_s:.0f} s"
                _leave_out(run, section, why)
            else:
                _run_apart(run, section, share_s, stop)
                record = _read(run.out / section.filename)
                if section.is_gate and (not record or not _is_good(record)):
                    gate = f"section {section.number} failed, and the others need what it checks"
            write_report(run, sections, read_records(run, sections))
    records = read_records(run, sections)
    say(f"the report is in {write_report(run, sections, records)}")
    return 0 if records and all(map(_is_good, records.values())) else 1


@contextmanager
def _stopping(ends_s: float) -> Iterator[Stop]:
    """A stop that SIGTERM, SIGINT and SIGHUP set within the block."""
    stop = Stop(ends_s)

    def note(number: int, _: FrameType | None) -> None:
        stop.signal_name = stop.signal_name or signal.Signals(number).name

    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.signal(number, note) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _preparing(run: Run, sections: Sequence[Section], stop: Stop) -> Iterator[None]:
    """Export models beside the block, which ends that."""
    numbers = tuple(each.number for each in sections)
    if not set(numbers) - {1}:
        yield
        return
    process = stop.started(PREPARED, run, numbers)
    try:
        yield
    finally:
        _kill_group(process)


def read_records(
    run: Run, sections: Sequence[Section], *, of_others: bool = False
) -> dict[int, Record]:
    """The records of a run's device and size by section, or those of other devices and sizes."""
    found = {section.number: _read(run.out / section.filename) for section in sections}
    mine = run.device, run.is_tiny
    return {
        number: record
        for number, record in found.items()
        if record and ((record["device"], record["is_tiny"]) != mine) == of_others
    }


def _is_good(record: Record) -> bool:
    return record["state"] in (DONE, LEFT) and not failed_checks(record)


def _read(path: Path) -> Record | None:
    try:
        record: Record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # absent, or cut off by a full disk
        return None
    return record


def _leave_out(run: Run, section: Section, why: str) -> None:
    say(f"{section.label}: not begun: {why}")
    now_s = time.monotonic()
    Context(run, section.label, now_s, run.out / section.filename, now_s).keep(LEFT, why)


def _run_apart(run: Run, section: Section, share_s: float, stop: Stop) -> None:
    """Run a section in another process, and keep a record whatever becomes of it."""
    say(f"{section.label}: begins, with {share_s:.0f} s")
    started_s, path = time.monotonic(), run.out / section.filename
    context = Context(run, section.label, started_s + share_s, path, started_s)
    process = stop.started("loadtests.gpu.supervisor:run_section", context, section.function)
    try:
        has_ended = stop.wait(process, started_s + OVERTIME * share_s + OVERTIME_S)
    finally:
        _kill_group(process)  # the section if it still runs, and what it has left running
    if record := _read(path):
        context.findings, context.parts = record["findings"], Parts(record["parts_s"])
        if record["state"] in (DONE, FAILED):
            return
    seconds = time.monotonic() - started_s
    if has_ended:
        state, why = FAILED, f"its process ended with {process.exitcode} before it was done"
    else:
        why = stop.why or "it did not end by itself"
        state, why = STOPPED, f"it was stopped after {seconds:.0f} s of {share_s:.0f} s: {why}"
    context.keep(state, why)
    say(f"{section.label}: {state}: {why}")


def _in_own_group(ends_s: float, target: str, *arguments: Any) -> None:
    """Call a function, MODULE:NAME, in a process group that all processes of its own join."""
    os.setpgid(0, 0)
    if time.monotonic() < ends_s:  # else nothing waits for it any more
        _function(target)(*arguments)


def _function(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def _kill_group(process: BaseProcess) -> None:
    if process.pid is None:  # it was not started in time, and ends by itself
        return
    with suppress(ProcessLookupError):  # nothing is left of it
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()  # before it had its group
    process.join()


def run_section(context: Context, function: str) -> None:
    """Run a section here and keep its record; what it raises is part of that."""
    context.keep()
    state, error = DONE, ""
    try:
        section = _function(function)
        context.parts.add("imports", time.monotonic() - context.started_s)
        section(context)
    except Exception as caught:
        state, error = FAILED, "".join(traceback.format_exception(caught))
    context.keep(state, error)
    failures = len(failed_checks({"findings": context.findings}))
    held = f": {error.strip().splitlines()[-1]}" if error else ""
    failing = f", {failures} of its checks do not hold" if failures else ""
    seconds = time.monotonic() - context.started_s
    say(f"{context.section}: {state} after {seconds:.0f} s{held}{failing}")
