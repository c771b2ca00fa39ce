"""Runs sections one after the other, each in a process of its own, and keeps what they find.

A process of its own, since an error on a GPU can leave a process without its device, and since a
run of native code can end the process: neither may take the other sections with it. The processes
are forks of one that has imported the large libraries and has not touched the device.

A section's time is its weight among the sections that are left, of the time that is left: what one
saves is there for those behind it. It is to end by itself; after twice its time it is stopped.
"""

import importlib
import json
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from loadtests.gpu.context import Context, Run, say
from loadtests.gpu.pictures import draw_all
from loadtests.gpu.report import failed_checks, write_report
from loadtests.gpu.sections import Section
from loadtests.gpu.sources import digest_of

GRACE_S = 60.0  # beyond twice its time; a section's slowest single step, an export, takes less
PRELOADED = ("numpy", "torch", "onnx", "tritonclient.grpc")
DONE, FAILED = "done", "failed"

Record = dict[str, Any]  # what is kept of a section


def run_all(
    run: Run,
    sections: Sequence[Section],
    numbers: Sequence[int],
    time_s: float,
    *,
    is_again: bool,
    grace_s: float = GRACE_S,
) -> bool:
    """Run sections and write the report; whether all that has been run so far is good.

    A section that takes more than twice its time and `grace_s` is stopped.
    """
    run.work.mkdir(parents=True, exist_ok=True)
    ends_s = time.monotonic() + time_s
    left = [section for section in sections if section.number in numbers]
    if not is_again:
        left = [section for section in left if not _is_done(run, section)]
    _begin(run, left)
    while left:
        section, weight = left[0], sum(each.weight for each in left)
        share_s = max(0.0, ends_s - time.monotonic()) * section.weight / weight
        say(f"{section.label}: begins, with {share_s:.0f} s of {ends_s - time.monotonic():.0f} s")
        _run_apart(run, section, share_s, grace_s)
        left = left[1:]
    records = read_records(run, sections)
    path = write_report(run, sections, records, *draw_all(run, records))
    say(f"the report is in {path}")
    return all(record["state"] == DONE and not failed_checks(record) for record in records.values())


def _begin(run: Run, sections: Sequence[Section]) -> None:
    """Begin what sections need; one that cannot be begun is for its section to report."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(list(PRELOADED))
    for module in dict.fromkeys(section.begins for section in sections if section.begins):
        try:
            importlib.import_module(module).begin(run)
        except Exception as error:
            say(f"{module} cannot be begun: {type(error).__name__}: {error}")


def read_records(run: Run, sections: Sequence[Section]) -> dict[int, Record]:
    """The records that there are of a run's device and size, by section."""
    found = _all_records(run, sections)
    return {number: record for number, record in found.items() if _is_of(run, record)}


def sections_of_others(run: Run, sections: Sequence[Section]) -> list[int]:
    """The sections with a record of another device or size than the run's."""
    found = _all_records(run, sections)
    return [number for number, record in found.items() if not _is_of(run, record)]


def _all_records(run: Run, sections: Sequence[Section]) -> dict[int, Record]:
    found = {section.number: _read(run.out / section.filename) for section in sections}
    return {number: record for number, record in found.items() if record}


def _is_of(run: Run, record: Record) -> bool:
    return (record["device"], record["is_tiny"]) == (run.device, run.is_tiny)


def _is_done(run: Run, section: Section) -> bool:
    record = read_records(run, [section]).get(section.number)
    is_done = record is not None and record["state"] == DONE
    if is_done:
        say(f"{section.label}: is done already, see --again")
    return is_done


def _read(path: Path) -> Record | None:
    try:
        record: Record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # absent, or cut off by a full disk
        return None
    return record


def _run_apart(run: Run, section: Section, share_s: float, grace_s: float) -> None:
    """Run a section in another process, and keep a record whatever becomes of it."""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(list(PRELOADED))
    started_s = time.monotonic()
    path = run.out / section.filename
    path.unlink(missing_ok=True)
    process = processes.Process(target=_in_own_group, args=(run, section, share_s))
    process.start()
    try:
        process.join(2 * share_s + grace_s)
        is_late = process.is_alive()
    finally:
        _kill_group(process)  # the section if it still runs, and what it has left running
    if is_late:
        why = f"it was stopped after {time.monotonic() - started_s:.0f} s, having {share_s:.0f} s"
    elif not path.exists():
        why = f"its process ended with {process.exitcode} before it had written anything"
    else:
        return
    record = _record(run, section, share_s, started_s)
    keep(path, record | {"state": FAILED, "error": why, "findings": {}})
    say(f"{section.label}: failed: {why}")


def _in_own_group(run: Run, section: Section, share_s: float) -> None:
    """Run a section in a process group that its servers and exporting processes join."""
    os.setpgid(0, 0)
    run_section(run, section, share_s)


def _kill_group(process: BaseProcess) -> None:
    assert process.pid is not None, "it was started"
    with suppress(ProcessLookupError):  # nothing is left of it
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()  # before it had its group
    process.join()


def run_section(run: Run, section: Section, share_s: float) -> None:
    """Run a section here and keep its record; what it raises is part of that."""
    context = Context(run, section.label, time.monotonic() + share_s)
    started_s = time.monotonic()
    state, error, findings = DONE, "", {}
    try:
        findings = importlib.import_module(section.module).run(context)
        json.dumps(findings, allow_nan=False)  # of a section that returns what JSON has not
    except Exception as caught:
        state, findings = FAILED, {}
        error = "".join(traceback.format_exception(caught))
    record = _record(run, section, share_s, started_s)
    record |= {"state": state, "error": error, "findings": findings}
    keep(run.out / section.filename, record)
    held = "" if state == DONE else f": {error.strip().splitlines()[-1]}"
    failures = len(failed_checks(record))
    failing = f", {failures} of its checks do not hold" if failures else ""
    say(f"{section.label}: {state} after {record['seconds']:.0f} s{held}{failing}")


def _record(run: Run, section: Section, share_s: float, started_s: float) -> Record:
    seconds = time.monotonic() - started_s
    return {
        "number": section.number,
        "name": section.name,
        "device": run.device,
        "is_tiny": run.is_tiny,
        "sources": digest_of(),
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        "share_s": round(share_s, 1),
    }


def keep(path: Path, record: Record) -> None:
    """Write a record whole or not at all."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(record, indent=1), encoding="utf-8")
    os.replace(part, path)
