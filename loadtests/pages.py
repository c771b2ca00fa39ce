"""The pages of measurements, out of result files: docs/benchmarks.md, and docs/benchmarks/.

    python -m loadtests.pages

The first page has about ten figures, each with its command; behind it there is a page for each
subject with all tables, in which goals stand behind their figures. A figure without a result file
is on no page. The tables are those of `loadtests/results`: to change a figure, measure again with
`--output loadtests/results`, and write the pages.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from loadtests.measure.records import EXACT, TIMES, Figure, shown, tables
from loadtests.measure.results import PUBLISHED, Result, read_all

DOCS = Path(__file__).parents[1] / "docs"
WRITTEN = "<!-- Written by `python -m loadtests.pages` out of loadtests/results. -->"
# The subjects of pages in their order; a result names its own.
PAGES = (
    "Beside other servers",
    "Encoders beside other engines",
    "Decoders beside other engines",
    "What a request costs",
    "Load and bulk work",
    "Generation",
    "What int8 costs",
    "Start and memory",
)


@dataclass(frozen=True, slots=True)
class Shown:
    """A figure of the first page: the question it answers, and where it is kept."""

    question: str
    command: str
    result: str
    row: str
    column: str
    table: str = ""


def first_page(path: Path = PUBLISHED / "first_page.toml") -> list[Shown]:
    """The figures of the first page, in their order."""
    return [Shown(**each) for each in tomllib.loads(path.read_text(encoding="utf-8"))["figure"]]


def main(
    results: Annotated[Path, typer.Option(help="Folder of result files.")] = PUBLISHED,
    docs: Annotated[Path, typer.Option(help="Folder of documents.")] = DOCS,
) -> None:
    """Write all pages; those of subjects without results go."""
    folder = docs / "benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    written = pages(read_all(results))
    for path in folder.glob("*.md"):
        if f"benchmarks/{path.name}" not in written:
            path.unlink()
    for name, text in written.items():
        (docs / name).write_text(text, encoding="utf-8")


def pages(results: Mapping[str, Result]) -> dict[str, str]:
    """The text of every page, by its name below docs."""
    strange = {result.page for result in results.values()} - set(PAGES)
    assert not strange, f"PAGES has no {sorted(strange)}"
    subjects = {
        title: own
        for title in PAGES
        if (own := [result for result in results.values() if result.page == title])
    }
    texts = {"benchmarks.md": _first_page(results, subjects)}
    for title, own in subjects.items():
        texts[f"benchmarks/{slug(title)}.md"] = _subject(title, own)
    return texts


def slug(title: str) -> str:
    """The name of a subject's file, as GitHub makes anchors of headings."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _first_page(results: Mapping[str, Result], subjects: Mapping[str, Sequence[Result]]) -> str:
    kept = [(each, results[each.result]) for each in first_page()]
    machines = {machine_of(result) for _, result in kept}
    assert len(machines) == 1, f"figures of one machine are on the first page, not of {machines}"
    dates = sorted({result.date for _, result in kept})
    goals = [each for result in results.values() for each in result.figures if each.has_goal]
    lines = [
        "# Benchmarks",
        "",
        WRITTEN,
        "",
        "Speed is a ratio within one run, in which both sides take turns: the median of the rounds,"
        " and their range. *Mixed lengths* are those of reviews, messages and passages.",
        "",
        f"The machine: {machines.pop()}; measured {dates[0]} to {dates[-1]}. There was no GPU:"
        " nothing here was run on [CUDA](how-to/cuda.md).",
        "",
        "| question | figure | range | goal | | repeat with |",
        "|---|---|---|---|---|---|",
    ]
    for each, result in kept:
        figure = figure_of(result, each)
        link = f"[{each.question}](benchmarks/{slug(result.page)}.md)"
        cells = [link, _said(figure), figure.range, *_goal(figure), f"`{each.command}`"]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "Figures of GPT-2, BERT-base and others that are written here for a comparison have random"
        " weights: they say what is fast, and nothing about accuracy."
        " What was tried and not built is in the [decision records](explanation/decisions/).",
        "",
        "## All measurements",
        "",
        f"{sum(each.is_met for each in goals)} of {len(goals)} goals are met: each stands behind"
        " its figure. [How to measure](how-to/measure.md).",
        "",
        "| subject | measured | on |",
        "|---|---|---|",
    ]
    for title, own in subjects.items():
        days = sorted({result.date for result in own})
        cpus = dict.fromkeys(str(result.machine.get("cpu", "")).split(" (")[0] for result in own)
        link = f"[{title}](benchmarks/{slug(title)}.md)"
        lines.append(f"| {link} | {' and '.join(days)} | {'; '.join(cpus)} |")
    return "\n".join(lines) + "\n"


def figure_of(result: Result, wanted: Shown) -> Figure:
    """The figure that a row of the first page names."""
    place = wanted.table, wanted.row, wanted.column
    found = [each for each in result.figures if (each.table, each.row, each.column) == place]
    assert found, f"{result.name} has no figure of {place}: change first_page.toml"
    return found[0]


def _said(figure: Figure) -> str:
    text = shown(figure.median, figure.unit)
    is_said = figure.unit in ("", TIMES, *EXACT)
    return f"**{text}**" if is_said else f"**{text}** {figure.unit}"


def _goal(figure: Figure) -> tuple[str, str]:
    """The goal, and whether it is met."""
    if figure.goal is None:
        return "", ""
    bound = "at most " * figure.at_most + shown(figure.goal, figure.unit)
    return bound, "met" if figure.is_met else "missed"


def machine_of(result: Result) -> str:
    """The machine of a result, in words."""
    facts = result.machine
    words = [str(facts["cpu"])]
    if cores := facts.get("cores"):
        words.append(f"{cores} virtual cores")
    if memory := facts.get("memory_gib"):
        words.append(f"{memory} GiB")
    return ", ".join(words)


def _subject(title: str, results: Sequence[Result]) -> str:
    lines = [f"# {title}", "", WRITTEN, "", "[All measurements](../benchmarks.md)"]
    if any(figure.has_goal for result in results for figure in result.figures):
        lines[-1] += ". A goal stands behind its figure."
    before = ""
    for result in results:
        lines += ["", f"## {result.claim}", ""]
        lines += [f"    {command}" for command in result.commands]
        versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
        facts = "; ".join(filter(None, [machine_of(result), versions])) + f". {result.origin}"
        commit = f" Commit {result.commit}." if result.commit else ""
        said = "The rest as above." if facts == before else facts
        lines += ["", f"{result.date}.{commit} {said}".rstrip()]
        lines += _tables(result.figures)
        lines += [line for note in result.notes for line in ("", note)]
        before = facts
    return "\n".join(lines) + "\n"


def _tables(figures: Iterable[Figure]) -> Iterator[str]:
    for title, (columns, rows) in tables(figures).items():
        yield from ("", f"{title}:") if title else ()
        yield ""
        yield f"| | {' | '.join(columns)} |"
        yield "|---" * (len(columns) + 1) + "|"
        for row, cells in rows.items():
            texts = (_cell(cells[name]) if name in cells else "" for name in columns)
            yield f"| {row} | {' | '.join(texts)} |"


def _cell(figure: Figure) -> str:
    goal, outcome = _goal(figure)
    return f"{figure}, {outcome} {goal}" if goal else str(figure)


if __name__ == "__main__":
    typer.run(main)
