"""The state file of a job: what it is, and how far its output is durable.

It is replaced as a whole, after the output that it speaks of was synchronised to the disk. So
whatever ends a job, and whenever, the next run goes on from a place where all is known.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from commands.ask.bulk.windows import Window
from commands.ask.lines import EMPTY
from service.errors import SettingError

FORMAT = 1  # of the file; another one is not read
RESTART = "--restart begins anew"


@dataclass(frozen=True, slots=True)
class Reached:
    """Place that a job has reached: all before is in the output."""

    num_lines: int = 0
    place: int = 0  # in the input
    output_bytes: int = 0
    errors_bytes: int = 0
    num_refused: int = 0
    num_empty: int = 0

    def after(self, window: Window, output_bytes: int, errors_bytes: int) -> "Reached":
        """Progress behind one more window, which took these bytes."""
        num_empty = sum(refusal.reason == EMPTY for refusal in window.refused)
        return replace(
            self,
            num_lines=self.num_lines + window.num_lines,
            place=window.place,
            output_bytes=self.output_bytes + output_bytes,
            errors_bytes=self.errors_bytes + errors_bytes,
            num_refused=self.num_refused + len(window.refused) - num_empty,
            num_empty=self.num_empty + num_empty,
        )

    @property
    def num_answered(self) -> int:
        return self.num_lines - self.num_refused - self.num_empty


class StateFile:
    """The file `OUTPUT.state.json`."""

    def __init__(self, output: Path) -> None:
        self.path = output.with_name(f"{output.name}.state.json")

    def read(self, job: Mapping[str, Any]) -> Reached | None:
        """Place that this job has reached. Raises `SettingError` for the file of another job."""
        try:
            content = json.loads(self.path.read_bytes())
            if content["format"] != FORMAT:
                raise SettingError(f"'{self.path}' is of another version of attendant: {RESTART}")
            before, reached = content["job"], Reached(**content["reached"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise SettingError(f"'{self.path}' is no state of a job: {RESTART}") from error
        except OSError as error:
            raise SettingError(f"'{self.path}' cannot be read: {error.strerror}") from error
        for name in dict.fromkeys([*before, *job]):
            if before.get(name) != job.get(name):
                raise SettingError(
                    f"'{self.path}' is of a job that is not this one: {_named(name)} was "
                    f"{_shown(before.get(name))} and is {_shown(job.get(name))}; give what was "
                    f"given then, or {RESTART}"
                )
        return reached

    def write(self, job: Mapping[str, Any], reached: Reached) -> None:
        content = {"format": FORMAT, "job": job, "reached": asdict(reached)}
        write_whole(self.path, json.dumps(content, indent=1).encode())

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes, writer: str = "") -> None:
    """Write a file so that it is there as a whole, on the disk, or as it was before.

    `writer` names one of several that may write it at once.
    """
    draft = path.with_name(f"{path.name}.{writer}draft")
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _named(name: str) -> str:
    named = {
        "input_sha256": "the input's content (its SHA-256)",
        "input_format": "the input's format",
        "version": "the model's version",
        "precision": "the model's precision",
    }
    return named.get(name, f"'{name}'")


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


MAX_SHOWN = 80  # characters of a value
