"""Vectors of a file's texts in a folder beside it, mapped into memory and searched exactly.

A search reads every vector once. With 384 numbers each that is 13 ms of processor time for 100,000
texts, 0.13 s for a million; approximate indexes take minutes to be built (decision 0043).
"""

import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich.text import Text

from commands.ask.bulk.job import Ask, Job, run_job, summary
from commands.ask.bulk.sources import Source
from commands.ask.bulk.state import Reached, StateFile, write_whole
from commands.ask.bulk.work import Asking, work_of
from commands.errors import INTERRUPTED, errors
from service.calls.models import ModelFacts
from service.calls.texts import Embed
from service.errors import SettingError

VECTORS, PLACES, ABOUT = "vectors.npy", "places.npy", "index.json"
WINDOW_LINES = 2_048
IN_FLIGHT = 4  # requests
PAGE = 1_024  # lines, whose first can be read without those before
CHUNK = 32_768  # vectors that are multiplied at once


@dataclass(frozen=True, slots=True)
class Found:
    """A line of the file, from 1, and how similar it is."""

    line: int
    text: str
    score: float


class Index:
    """The vectors of a file of texts, once `build` has returned."""

    def __init__(self, folder: Path, source: Source) -> None:
        self.folder, self._source = folder, source

    @property
    def vectors_path(self) -> Path:
        return self.folder / VECTORS

    def is_of(self, identity: Mapping[str, Any]) -> bool:
        """Whether it is whole, and of this file and model."""
        try:
            about: object = json.loads((self.folder / ABOUT).read_bytes())
        except (FileNotFoundError, ValueError):
            return False
        return about == dict(identity)

    def build(self, job: Job, ask: Ask) -> tuple[Reached, Reached]:
        """Embed what is left of the file; what earlier runs reached, and the whole."""
        identity = job.identity()
        restarts = not self._is_begun(identity)
        if restarts:
            self._clear()
        self.folder.mkdir(exist_ok=True)
        before, reached = run_job(job, ask, restarts=restarts)
        with (self.folder / PLACES).open("wb") as file:
            np.save(file, np.array(list(_pages(self._source)), np.int64).reshape(-1, 2))
        write_whole(self.folder / ABOUT, json.dumps(identity, indent=1).encode())
        return before, reached

    def _is_begun(self, identity: Mapping[str, Any]) -> bool:
        try:
            return StateFile(self.vectors_path).read(identity) is not None
        except SettingError:  # of another file, or another model
            return False

    def _clear(self) -> None:
        """Remove an older index. Raises `SettingError` for a folder that is none."""
        if not self.folder.exists():
            return
        names = {path.name for path in self.folder.iterdir()}
        if any(not name.startswith((VECTORS, PLACES, ABOUT)) for name in names):
            raise SettingError(
                f"--index '{self.folder}' has other files than an index, expected a folder of its "
                "own, or a new name"
            )
        shutil.rmtree(self.folder)

    def nearest(self, query: np.ndarray, count: int) -> list[tuple[int, float]]:
        """Lines, from 1, with the highest cosine similarities, best first."""
        vectors = np.load(self.vectors_path, mmap_mode="r")
        query = query / max(float(np.linalg.norm(query)), np.finfo(np.float32).tiny)
        best: list[tuple[int, float]] = []
        for start in range(0, len(vectors), CHUNK):
            chunk = np.asarray(vectors[start : start + CHUNK])
            with np.errstate(invalid="ignore", divide="ignore"):
                scores = (chunk @ query) / np.sqrt(np.einsum("ij,ij->i", chunk, chunk))
            rows = np.flatnonzero(~np.isnan(scores))  # lines without a text have none
            if len(rows) > count:
                rows = rows[np.argpartition(-scores[rows], count - 1)[:count]]
            best += [(start + int(row) + 1, float(scores[row])) for row in rows]
        return sorted(best, key=lambda each: (-each[1], each[0]))[:count]

    def texts_of(self, lines: Sequence[int]) -> dict[int, str]:
        """The texts of some lines; the file is read from the page of each."""
        wanted = set(lines)
        pages = np.load(self.folder / PLACES)
        texts: dict[int, str] = {}
        for page in sorted({(line - 1) // PAGE for line in wanted}):
            num_before, place = (0, 0) if page == 0 else map(int, pages[page - 1])
            last = max(line for line in wanted if (line - 1) // PAGE == page)
            with self._source.open(num_before, place) as source:
                while taken := source.take(PAGE):
                    texts |= {line.number: line.text for line in taken if line.number in wanted}
                    if taken[-1].number >= last:
                        break
        return texts


def _pages(source: Source) -> Iterator[tuple[int, int]]:
    """The number and the place of the last line of each page."""
    with source.open() as texts:
        while taken := texts.take(PAGE):
            yield from ((line.number, line.place) for line in taken if line.number % PAGE == 0)


def checked_source(file: Path, field: str) -> Source:
    """The texts of a file. Raises `SettingError` for one that cannot be read."""
    source = Source(file.absolute(), field)
    source.check()
    return source


def prepared_index(
    folder: Path,
    source: Source,
    client: Asking,
    embedding: tuple[Embed, ModelFacts],
    patience_s: float,
) -> Index:
    """The index in a folder, for which the file is embedded unless it was.

    Raises `typer.Exit` where that is interrupted, and what the job raises.
    """
    call, model = embedding
    named = {"model": model.name, "version": model.version, "precision": model.precision}
    work = work_of(call, model)
    index = Index(folder, source)
    job = Job(source, index.vectors_path, work, named, WINDOW_LINES, IN_FLIGHT, patience_s)
    if index.is_of(job.identity()):
        return index
    began_s = time.monotonic()
    try:
        before, reached = index.build(job, work.ask(client))
    except KeyboardInterrupt:
        errors.print(Text("interrupted: the same command goes on from here", "dim"))
        raise typer.Exit(INTERRUPTED) from None
    told = summary(job.output, before, reached, time.monotonic() - began_s)
    errors.print(Text(told, "dim"), soft_wrap=True)
    return index
