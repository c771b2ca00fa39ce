"""The systems that `attendant demo` shows: what is typed to train, export and ask each.

In arguments `{folder}` is the demo's own folder; its models are served from `{folder}/repository`.
"""

import shlex
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Step:
    """One command, without the word attendant.

    `makes` names what is there once it is done, within the demo's folder.
    """

    command: str
    makes: str = ""
    brief: str = ""  # more flags, where seconds must do

    def arguments(self, folder: Path, *, is_brief: bool) -> list[str]:
        typed = f"{self.command} {self.brief}" if is_brief else self.command
        return [part.replace("{folder}", str(folder)) for part in shlex.split(typed)]


@dataclass(frozen=True, slots=True)
class Demo:
    """One row of docs/lectures.md."""

    system: str
    what: str
    steps: tuple[Step, ...]
    calls: tuple[Step, ...] = ()


DEMOS: dict[str, Demo] = {}
