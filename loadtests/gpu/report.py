"""The report of a run: `report.json` with everything, and `report.md` for people.

Failures come first, then what was left out. Knows the shape of findings (`context.py`) and of no
particular section.
docs/how-to/cuda.md says what was verified on CUDA.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from loadtests.gpu.context import Claim, Run, write_json
from loadtests.gpu.sections import Section
from loadtests.measure.records import rounded, shown

Record = Mapping[str, Any]
Records = Mapping[int, Record]


def write_report(run: Run, sections: Sequence[Section], records: Records) -> Path:
    """Write both files and return the one for people."""
    everything = {"device": run.device, "is_tiny": run.is_tiny, "sections": list(records.values())}
    write_json(run.out / "report.json", everything)
    path = run.out / "report.md"
    path.write_text("\n".join(_lines(run, sections, records)) + "\n", encoding="utf-8")
    return path


def failed_checks(record: Record) -> list[Claim]:
    """The claims that fail a run."""
    return [
        each
        for each in record["findings"]["claims"]
        if each["kind"] == "check" and not each["holds"]
    ]


def _lines(run: Run, sections: Sequence[Section], records: Records) -> Iterator[str]:
    yield "# Attendant on a GPU" if run.device == "cuda" else "# The GPU check, run on the CPU"
    yield ""
    yield from _opening(run, records)
    yield from _failures(sections, records)
    yield from ("", "## Left out", "", *_left_out(sections, records))
    goals = [claim for each in records.values() for claim in each["findings"]["claims"]]
    if rows := [_cells(run, claim) for claim in goals if claim["kind"] == "goal"]:
        yield from ("", "## Goals", "", *table(["goal", "figure", "wanted", ""], rows))
    for section in sections:
        if section.number in records:
            yield from ("", f"## {section.number}. {section.title}", "")
            yield from _section(run, records[section.number])


def _opening(run: Run, records: Records) -> Iterator[str]:
    if run.device != "cuda":
        yield "Nothing here says anything about CUDA: everything ran on the CPU provider, to check"
        yield from ("the logic of the check itself.", "")
    if run.is_tiny:
        yield from ("Models and loads are of the smallest size: no time here is a benchmark.", "")
    if dates := sorted(str(record["ended"]) for record in records.values()):
        yield from (f"Sections ended between {dates[0]} and {dates[-1]}.", "")
    if len(digests := {str(record["sources"]) for record in records.values()}) > 1:
        listed = ", ".join(sorted(digests))
        yield f"The sections ran from different sources, with the digests {listed}: run them with"
        yield from ("--again for a report of one state.", "")
    if 1 in records:
        yield from (f"- {said}" for said in records[1]["findings"]["summary"])


def _failures(sections: Sequence[Section], records: Records) -> Iterator[str]:
    yield from ("", "## Failures", "")
    num_failures = 0
    for section in sections:
        record = records.get(section.number)
        if record is None:
            continue
        where = f"section {section.number}, {section.title}"
        if record["state"] in ("failed", "stopped"):
            num_failures += 1
            yield f"- {where}, {record['state']}: {str(record['error']).strip().splitlines()[-1]}"
        for claim in failed_checks(record):
            num_failures += 1
            found = f"{claim['found']}, expected {claim['expected']}"
            yield f"- {claim['claim']}: {found} ({where})"
    num_checks = sum(
        c["kind"] == "check" for each in records.values() for c in each["findings"]["claims"]
    )
    if not num_failures:
        yield f"No section failed, and all {num_checks} checks hold."


def _left_out(sections: Sequence[Section], records: Records) -> Iterator[str]:
    """Sections that were not run, and what the others left out."""
    lines = []
    for section in sections:
        record = records.get(section.number)
        where = f"section {section.number}, {section.title}"
        if record is None:
            lines.append(f"- {where}: it was not asked for or not reached")
        elif record["state"] == "not begun":
            lines.append(f"- {where}: not begun: {record['error']}")
        elif record["state"] == "stopped":
            lines.append(f"- {where}: what was behind the point where it was stopped")
        else:
            left = record["findings"]["left_out"]
            lines += [f"- {said} (section {section.number})" for said in left]
    yield from lines or ["Nothing was left out."]


def _section(run: Run, record: Record) -> Iterator[str]:
    findings = record["findings"]
    parts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in record["parts_s"].items())
    took = f"{record['seconds']:.0f} s of {record['share_s']:.0f} s"
    yield f"State: {record['state']}, {took}{f': {parts}' if parts else ''}."
    if record["error"]:
        yield from ("", "```", *str(record["error"]).strip().splitlines(), "```")
    for sentence in findings["summary"]:
        yield from ("", sentence)
    for title, rows in findings["tables"].items():
        columns = list(dict.fromkeys(key for row in rows for key in row))
        yield from ("", f"**{title}**", "")
        yield from table(columns, [[_text(row.get(key, "")) for key in columns] for row in rows])
    if claims := record["findings"]["claims"]:
        rows = [_cells(run, each) for each in sorted(claims, key=lambda claim: claim["holds"])]
        yield from ("", *table(["claim", "figure", "expected", "holds"], rows))


def _cells(run: Run, claim: Claim) -> list[str]:
    """A claim as a row; goals are of a GPU, whatever another device's figure is."""
    verdict = "yes" if claim["holds"] else "**no**"
    if claim["kind"] == "goal":
        verdict = "met" if claim["holds"] else "missed"
        if run.device != "cuda":
            verdict = "not measured here"
    return [claim["claim"], claim["found"], claim["expected"], verdict]


def _text(value: object) -> str:
    """A cell: numbers in three digits."""
    if isinstance(value, float):
        return shown(rounded(value, ""), "")
    return "not a number" if value is None else str(value)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Lines of a Markdown table."""
    yield "| " + " | ".join(columns) + " |"
    yield "|" + " --- |" * len(columns)
    for row in rows:
        cells = (str(cell).replace("|", "\\|").replace("\n", " ") for cell in row)
        yield "| " + " | ".join(cells) + " |"
