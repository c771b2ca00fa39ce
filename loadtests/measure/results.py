"""Results of measurements as JSON files: the figures that pages show, and what they depend on.

A file has one figure a line, so that a change shows in a diff. `origin` says where figures come
from that no run of the present harness gave.
"""

import json
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from loadtests.load.machine import machine
from loadtests.measure.records import Figure, Rounds

PUBLISHED = Path(__file__).parents[1] / "results"
VERSIONS = ("attendant", "onnxruntime", "numpy", "grpcio", "torch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one measurement found."""

    name: str
    page: str  # the heading of its page
    claim: str
    commands: Sequence[str]
    date: str
    machine: Mapping[str, Any]
    figures: Sequence[Figure]
    commit: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""
    notes: Sequence[str] = ()  # paragraphs of the page
    rounds: Rounds = field(default_factory=dict)


def measured(name: str, page: str, claim: str, figures: Sequence[Figure], rounds: Rounds) -> Result:
    """The result of a measurement that this process has just made."""
    program = getattr(sys.modules["__main__"].__spec__, "name", "").removesuffix(".__main__")
    return Result(
        name=name,
        page=page,
        claim=claim,
        commands=[shlex.join(["python", "-m", program, *sys.argv[1:]])],
        date=datetime.now(UTC).date().isoformat(),
        machine=machine(),
        figures=figures,
        commit=commit(),
        versions={each: version for each in VERSIONS if (version := _version(each))},
        rounds=rounds,
    )


def write(result: Result, folder: Path) -> Path:
    """The file of a result; an earlier one of its name is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result.name}.json"
    fields = {**asdict(result), "figures": [_plain(each) for each in result.figures]}
    lines = []
    for name, value in fields.items():
        if name in ("figures", "notes", "commands") and value:
            inner = ",\n  ".join(json.dumps(each, ensure_ascii=False) for each in value)
            lines.append(f" {json.dumps(name)}: [\n  {inner}\n ]")
        elif value:
            lines.append(f" {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    return path


def _plain(figure: Figure) -> dict[str, Any]:
    """The fields that say something: an equal lowest and highest do not."""
    fields = {
        name: value
        for name, value in asdict(figure).items()
        if value != "" and value is not None and value is not False
    }
    if not figure.has_range:
        del fields["lowest"], fields["highest"]
    return fields


def read(path: Path) -> Result:
    """The result that `write` wrote."""
    fields = json.loads(path.read_text(encoding="utf-8"))
    figures = [
        Figure(**{"lowest": each["median"], "highest": each["median"], **each})
        for each in fields.pop("figures")
    ]
    return Result(**fields, figures=figures)


def read_all(folder: Path = PUBLISHED) -> dict[str, Result]:
    """All results of a folder by name."""
    return {
        path.stem: read(path) for path in sorted(folder.glob("*.json"), key=lambda path: path.stem)
    }


def commit() -> str:
    """The commit that this tree has checked out; nothing outside a repository."""
    command = ["git", "-C", str(PUBLISHED.parent), "rev-parse", "--short=12", "HEAD"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    return ended.stdout.strip()


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
