"""The report of a run: `report.json` with everything, and `report.md` for people.

Failures come first. Knows the shape of findings (`context.py`) and of no particular section.
docs/cuda.md says what was verified on CUDA.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from loadtests.gpu.claims import Claim
from loadtests.gpu.context import Run
from loadtests.gpu.sections import Section

Record = Mapping[str, Any]
Records = Mapping[int, Record]


def write_report(
    run: Run,
    sections: Sequence[Section],
    records: Records,
    pictures: Sequence[tuple[str, Path]] = (),
    why_no_pictures: str = "",
) -> Path:
    """Write both files and return the one for people; `pictures` have a title each."""
    everything = {"device": run.device, "is_tiny": run.is_tiny, "sections": list(records.values())}
    (run.out / "report.json").write_text(json.dumps(everything, indent=1), encoding="utf-8")
    path = run.out / "report.md"
    lines = [*_lines(run, sections, records, pictures), *filter(None, ["", why_no_pictures])]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def claims_of(record: Record) -> list[Claim]:
    return list(record["findings"].get("claims", []))


def failed_checks(record: Record) -> list[Claim]:
    """The claims that fail a run."""
    return [each for each in claims_of(record) if each["kind"] == "check" and not each["holds"]]


def _lines(
    run: Run, sections: Sequence[Section], records: Records, pictures: Sequence[tuple[str, Path]]
) -> Iterator[str]:
    yield "# Attendant on a GPU" if run.device == "cuda" else "# The GPU check, run on the CPU"
    yield ""
    yield from _opening(run, records)
    yield from _failures(sections, records)
    yield from _goals(run, sections, records)
    for title, picture in pictures:
        yield from ("", f"![{title}]({picture.name})")
    for section in sections:
        yield from ("", f"## {section.number}. {section.title}", "")
        if section.number in records:
            yield from _section(run, records[section.number])
        else:
            yield "This section was not run."


def _opening(run: Run, records: Records) -> Iterator[str]:
    if run.device != "cuda":
        yield (
            "Nothing here says anything about CUDA: everything ran on the CPU provider, to check "
            "the logic of the check itself."
        )
        yield ""
    if run.is_tiny:
        yield "Models and loads are of the smallest size, so no time in this report is a benchmark."
        yield ""
    dates = sorted(str(record["ended"]) for record in records.values())
    if dates:
        yield f"Sections ended between {dates[0]} and {dates[-1]}."
        yield ""
    if len(digests := {str(record["sources"]) for record in records.values()}) > 1:
        listed = ", ".join(sorted(digests))
        yield (
            f"The sections ran from different sources, with the digests {listed}: run them with "
            "--again for a report of one state."
        )
        yield ""
    if 1 in records:
        for sentence in records[1]["findings"].get("summary", []):
            yield f"- {sentence}"


def _failures(sections: Sequence[Section], records: Records) -> Iterator[str]:
    yield from ("", "## Failures", "")
    failures: list[str] = []
    for section in sections:
        record = records.get(section.number)
        if record is None:
            continue
        if record["error"]:
            last = str(record["error"]).strip().splitlines()[-1]
            failures.append(f"Section {section.number} ({section.title}) failed: {last}")
        failures += [
            f"{claim['claim']}: {claim['found']}, expected {claim['expected']} "
            f"(section {section.number})"
            for claim in failed_checks(record)
        ]
    num_checks = sum(
        claim["kind"] == "check" for record in records.values() for claim in claims_of(record)
    )
    if failures:
        yield from (f"- {failure}" for failure in failures)
    else:
        yield f"No section failed, and all {num_checks} checks hold."
    missing = [str(section.number) for section in sections if section.number not in records]
    if missing:
        yield from ("", f"Sections that were not run: {', '.join(missing)}.")


def _verdict(run: Run, claim: Claim, held: str, missed: str) -> str:
    """Whether a claim holds, in words; goals are of a GPU, whatever another device's figure is."""
    if claim["kind"] == "goal" and run.device != "cuda":
        return "not measured here"
    return held if claim["holds"] else missed


def _goals(run: Run, sections: Sequence[Section], records: Records) -> Iterator[str]:
    rows = [
        [claim["claim"], claim["found"], claim["expected"], _verdict(run, claim, "met", "missed")]
        for section in sections
        if section.number in records
        for claim in claims_of(records[section.number])
        if claim["kind"] == "goal"
    ]
    if rows:
        yield from ("", "## Goals", "")
        yield from table(["goal", "figure", "wanted", ""], rows)


def _section(run: Run, record: Record) -> Iterator[str]:
    findings = record["findings"]
    yield f"It took {record['seconds']:.0f} s of {record['share_s']:.0f} s."
    if record["error"]:
        yield from ("", "It failed:", "", "```", *str(record["error"]).strip().splitlines(), "```")
    for sentence in findings.get("summary", []):
        yield from ("", sentence)
    if left_out := findings.get("left_out", []):
        yield from ("", "Not run:", "", *(f"- {sentence}" for sentence in left_out))
    for each in findings.get("tables", []):
        yield from ("", f"**{each['title']}**", "")
        yield from table(each["columns"], each["rows"])
    # A table has those of its rows with more figures; what fails is also among the failures.
    if claims := [claim for claim in claims_of(record) if not claim.get("in_table")]:
        yield ""
        rows = [
            [
                claim["claim"],
                claim["found"],
                claim["expected"],
                _verdict(run, claim, "yes", "**no**"),
            ]
            for claim in sorted(claims, key=lambda claim: bool(claim["holds"]))
        ]
        yield from table(["claim", "figure", "expected", "holds"], rows)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Lines of a Markdown table."""
    yield "| " + " | ".join(columns) + " |"
    yield "|" + " --- |" * len(columns)
    for row in rows:
        cells = (str(cell).replace("|", "\\|").replace("\n", " ") for cell in row)
        yield "| " + " | ".join(cells) + " |"
