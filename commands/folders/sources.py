"""Sources of models as the command line names them: NAME=FOLDER, a folder, or a hub id.

A path that exists wins over a hub id; ./x is never an id. Imports no PyTorch.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os.path import exists  # Path.exists raises for names that no file system takes
from pathlib import Path
from typing import TYPE_CHECKING

from commands.folders.settings import FolderSettings
from models.checkpoints.folder_plan import name_of
from models.checkpoints.graph_files import GraphWish
from models.checkpoints.plan import ANY_GRAPH
from models.errors import CheckpointError, shown

if TYPE_CHECKING:
    from models.checkpoints.outline import Outline

NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,99}")
COMMIT = re.compile(r"[0-9a-f]{40}")
VARIANT = re.compile(r"[^:/]:[\w.-]+$", re.ASCII)
OFFLINE = ("1", "true", "yes", "on")  # values of HF_HUB_OFFLINE, in any case
HUB_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Source:
    """A folder or hub id, and the name to serve it under."""

    name: str
    where: str  # as it was given, without name and revision
    revision: str | None = None  # of a hub id
    variant: str | None = None  # of its graphs

    @property
    def is_folder(self) -> bool:
        """Whether it is on this machine; a hub id looks like a path, and no such path exists."""
        from models.checkpoints.hub import is_hub_id

        return exists(self.where) or not is_hub_id(self.where)


def parse_source(given: str) -> Source:
    """`NAME=WHERE` or `WHERE`, with `@REVISION` behind a hub id, and `:VARIANT` behind either.

    Raises `CheckpointError`.
    """
    name, mark, where = given.partition("=")
    if exists(given) or not mark:
        name, where = "", given
    elif not NAME.fullmatch(name):
        raise CheckpointError(
            f"{shown(given)}: there is no such folder, and {shown(name)} is no name for a model: "
            "write NAME=FOLDER, where NAME begins with a letter or digit, and has at most 100 "
            "letters, digits, '.', '_' and '-'"
        )
    if not where:
        raise CheckpointError(f"{given!r} names no folder: write NAME=FOLDER")
    revision = variant = None
    if not exists(where) and VARIANT.search(where):
        where, _, variant = where.rpartition(":")
    if not exists(where) and "@" in where:
        where, _, revision = where.partition("@")
    last = Path(where).resolve().name if exists(where) else where
    return Source(name or name_of(last), where, revision, variant)


def folder_of(
    source: Source,
    settings: FolderSettings,
    check: Callable[[Path], object] = lambda _: None,
    wish: GraphWish = ANY_GRAPH,
) -> Path:
    """The folder on this machine; a hub id is downloaded first. Raises `CheckpointError`."""
    if source.is_folder:
        return Path(source.where)
    with _having_the_hub(source):
        from models.checkpoints.hub import download_folder
    return download_folder(
        source.where,
        revision=source.revision or settings.revision,
        is_offline=is_offline(settings),
        check=check,
        wish=wish,
    )


@contextmanager
def outline_of(source: Source, settings: FolderSettings) -> Iterator["Outline | None"]:
    """A hub id's folder without its weights; None of a folder, and where the hub is not asked."""
    if source.is_folder or is_offline(settings):
        yield None
        return
    with _having_the_hub(source):
        from models.checkpoints.outline import outlined
    with outlined(source.where, source.revision or settings.revision) as outline:
        yield outline


@contextmanager
def _having_the_hub(source: Source) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise CheckpointError(
            f"there is no folder {source.where!r}, and hub ids need {error.name}: "
            "pip install huggingface-hub"
        ) from error


def commit_of(source: Source, settings: FolderSettings) -> str | None:
    """The commit that a hub id stands for, of the hub or else of its cache; None if neither has it.

    The hub is asked for a moving revision alone, and for a short time.
    """
    revision = source.revision or settings.revision or "main"
    if COMMIT.fullmatch(revision):
        return revision
    if not is_offline(settings):
        asked = _commit_of_hub(source.where, revision)
        if asked is not None:
            return asked
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    ref = cache / f"models--{source.where.replace('/', '--')}" / "refs" / revision
    return ref.read_text().strip() if ref.is_file() else None


def _commit_of_hub(hub_id: str, revision: str) -> str | None:
    try:
        from huggingface_hub import HfApi
    except ModuleNotFoundError:
        return None
    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)
    try:
        sha: str | None = api.model_info(hub_id, revision=revision, timeout=HUB_TIMEOUT_S).sha
    except Exception:
        return None
    return sha


def is_offline(settings: FolderSettings) -> bool:
    """Whether the hub is not to be asked, by a flag or by the hub's own variable."""
    return settings.offline or os.environ.get("HF_HUB_OFFLINE", "").lower() in OFFLINE
