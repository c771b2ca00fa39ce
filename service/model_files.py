"""A model's files: where they are, that they stay there, and whether they changed.

Names and paths may come from clients, and a repository's folders from any of its writers: no
name, path or link leads out of the repository.
"""

import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Self, TypeAlias

from service.errors import InvalidArgument, LoadError

MAX_FILES = 10_000  # and folders, of one model
MAX_SENT_FILES = 64  # by a client, for one model
MAX_NAME_BYTES = 255  # of a file or a model, as file systems have it
MAX_DEPTH = 8  # of a sent file's path

Stamp: TypeAlias = tuple[int, int, int]  # time of change in ns, size in bytes, inode
Snapshot: TypeAlias = Mapping[str, Stamp]  # by path within the model's folder


@dataclass(frozen=True, slots=True)
class ModelSource:
    """The source of a model: a folder of the repository, or files that a client sent."""

    name: str
    folder: Path
    root: Path  # links may not lead out of it
    config_json: str | None = None  # in place of config.pbtxt
    sent: "tempfile.TemporaryDirectory[str] | None" = None  # the folder, if a client's

    @classmethod
    def of(cls, repository: Path, name: str, config_json: str | None = None) -> Self:
        """A folder of the repository."""
        return cls(name, repository / name, repository, config_json)

    @classmethod
    def received(cls, name: str, config_json: str, files: Mapping[str, bytes]) -> Self:
        """Files from a client, written to a folder that lasts until `discard`.

        `files` are by path within the model's folder. Raises `InvalidArgument` for a path that
        could lead elsewhere, and `LoadError` for one that no file system takes.
        """
        if len(files) > MAX_SENT_FILES:
            raise InvalidArgument(
                f"failed to load '{name}': {len(files)} files, expected at most {MAX_SENT_FILES}"
            )
        paths = {_inner_path(name, path): content for path, content in files.items()}
        sent = tempfile.TemporaryDirectory(prefix="attendant-model-")
        root = Path(sent.name)
        folder = root / name
        try:
            for path, content in paths.items():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(content)
        except OSError as error:
            sent.cleanup()
            raise InvalidArgument(f"failed to load '{name}': {error.strerror}: {error}") from error
        return cls(name, folder, root, config_json, sent)

    def discard(self) -> None:
        """Remove what was written for it."""
        if self.sent is not None:
            self.sent.cleanup()


def find_models(repository: Path) -> list[str]:
    """The names of a repository's model folders, or `LoadError` where there is none."""
    if not repository.is_dir():
        raise LoadError(f"model repository {repository} is not a folder")
    return sorted(
        path.name
        for path in repository.iterdir()
        if path.is_dir() and not path.name.startswith(".") and _is_text(path.name)
    )


def find_versions(folder: Path) -> list[int]:
    """The numbers of a model's version folders, written without leading zeros."""
    return sorted(
        int(path.name) for path in folder.iterdir() if path.is_dir() and _is_number(path.name)
    )


def take_snapshot(source: ModelSource) -> Snapshot:
    """The stamps of all files, hidden ones left out.

    Raises `LoadError` for a link out of `source.root`, or too many files.
    """
    root = source.root.resolve()
    snapshot: dict[str, Stamp] = {}
    for num_before, path in enumerate(_walk(source.folder)):
        if num_before == MAX_FILES:
            raise LoadError(f"the model's folder has more than {MAX_FILES} files")
        inner = path.relative_to(source.folder).as_posix()
        if not Path(os.path.realpath(path)).is_relative_to(root):  # `resolve` raises on loops
            raise LoadError(f"{inner} is a link out of the model repository, which is not followed")
        if path.is_dir():
            continue
        try:
            status = path.stat()
        except OSError as error:
            raise LoadError(f"{inner} is a broken link, or was removed meanwhile") from error
        if not stat.S_ISREG(status.st_mode):
            raise LoadError(f"{inner} is neither a file nor a folder")
        snapshot[inner] = (status.st_mtime_ns, status.st_size, status.st_ino)
    return snapshot


def versions_in(snapshot: Snapshot) -> set[int]:
    """The version folders that have files."""
    folders = {path.split("/")[0] for path in snapshot if "/" in path}
    return {int(folder) for folder in folders if _is_number(folder)}


def stamps_of_version(snapshot: Snapshot, number: int) -> Snapshot:
    """The files of one version folder, and the files that all versions share."""
    return {
        path: stamp
        for path, stamp in snapshot.items()
        if path.split("/")[0] == str(number) or not _is_number(path.split("/")[0])
    }


def check_name(name: str) -> None:
    """Raise `InvalidArgument` for a model name that a client may not use.

    Hidden folders are no models: `LoadError`, as for a name that is not there.
    """
    if not name.strip():
        raise InvalidArgument("Model name cannot be empty. Please enter a valid name to deploy.")
    leads_elsewhere = any(mark in name for mark in "/\\\0") or name.strip() in (".", "..")
    if leads_elsewhere:
        raise InvalidArgument(
            f"failed to load '{name}', model name must not contain path traversal characters"
        )
    if len(name.encode()) > MAX_NAME_BYTES:
        raise InvalidArgument(
            f"model name has {len(name.encode())} bytes, expected at most {MAX_NAME_BYTES}"
        )
    if name.startswith("."):
        raise LoadError(f"failed to load '{name}', failed to poll from model repository")


def _is_text(name: str) -> bool:
    """Whether a message can carry it, as file names may be any bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_number(name: str) -> bool:
    """A positive number that fits the protocol's int64, in its one spelling."""
    return name.isascii() and name.isdecimal() and name[0] != "0" and len(name) <= 18


def _inner_path(name: str, path: str) -> PurePosixPath:
    parts = path.split("/")
    if any(len(part.encode()) > MAX_NAME_BYTES for part in parts):
        raise LoadError(  # what Triton says, and clients look for
            f"failed to load '{name}', failed to poll from model repository: file path "
            f"'{path[:MAX_NAME_BYTES]}...' has a part of more than {MAX_NAME_BYTES} bytes"
        )
    are_plain = all(part and not part.startswith(".") for part in parts)
    if not are_plain or len(parts) > MAX_DEPTH or "\0" in path or "\\" in path:
        raise InvalidArgument(
            f"failed to load '{name}': file path '{path}' is not a plain path inside the model's "
            f"folder, of at most {MAX_DEPTH} parts"
        )
    return PurePosixPath(path)


def _walk(folder: Path) -> Iterator[Path]:
    """Folders and files, each folder once, however links lead to it."""
    seen: set[str] = set()
    waiting = [folder]
    while waiting:
        current = waiting.pop()
        yield current
        real = os.path.realpath(current)
        if real in seen:
            continue
        seen.add(real)
        for path in sorted(current.iterdir()):
            if path.name.startswith("."):
                continue
            if path.is_dir():
                waiting.append(path)
            else:
                yield path
