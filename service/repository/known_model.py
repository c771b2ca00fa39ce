"""The state of one model's name: its served versions, earlier ones, and reasons of failures."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from service.contract.files import ModelSource, Snapshot
from service.serving.model import ServedModel

State: TypeAlias = Literal["READY", "LOADING", "UNLOADING", "UNAVAILABLE", ""]
Fingerprint: TypeAlias = tuple[Path, str | None, Snapshot]  # root, configuration, stamps


@dataclass(frozen=True, slots=True)
class IndexRow:
    """The index's entry of one version; only its name if it was never loaded."""

    name: str
    version: str = ""
    state: State = ""
    reason: str = ""


@dataclass(slots=True, eq=False)
class KnownModel:
    """One name that is, was or shall be served."""

    source: ModelSource
    versions: dict[int, ServedModel] = field(default_factory=dict)
    prints: dict[int, Fingerprint] = field(default_factory=dict)  # what those were loaded from
    retiring: dict[ServedModel, None] = field(default_factory=dict)  # answering their last
    snapshot: Snapshot | None = None  # of what was loaded last, or failed to
    latest: int | None = None  # the highest version in it
    is_wanted: bool = True  # False: unloaded
    is_loading: bool = False
    failure: str = ""  # of the last load, or of serving
    delay: str = ""  # why a change is not loaded yet
    is_broken: bool = False  # a version failed while serving
    parent: str = ""  # of an adapter: the name of its base model
    lacks_base: bool = False  # it is served again once its base is
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)  # one change at a time

    @property
    def is_as_wanted(self) -> bool:
        is_served = bool(self.versions) and not self.is_broken
        return not self.is_wanted or self.lacks_base or is_served

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def is_gone(self) -> bool:
        """Whether it is unloaded, and no version answers any more."""
        return not (self.is_wanted or self.is_loading or self.versions or self.retiring)

    @property
    def is_forgettable(self) -> bool:
        """Whether nothing is under way of it, and nothing wanted."""
        return not (self.is_wanted or self.retiring or self.turn.locked())

    def rows(self) -> list[IndexRow]:
        """The index's entries of the model."""
        rows = {
            number: IndexRow(self.name, str(number), "READY", self.failure or self.delay)
            for number in self.versions
        }
        for version in self.retiring:
            rows.setdefault(version.version, IndexRow(self.name, str(version.version), "UNLOADING"))
        state: State = "LOADING" if self.is_loading else "UNAVAILABLE"
        reason = self.failure if self.is_wanted else "unloaded"
        if self.latest and (self.is_loading or reason):
            rows.setdefault(self.latest, IndexRow(self.name, str(self.latest), state, reason))
        if not rows:
            return [IndexRow(self.name, "", state, reason)]
        return list(rows.values())
