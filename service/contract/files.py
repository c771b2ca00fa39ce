"""A model's files: where they are, that they stay there, and whether they changed.

Names and paths may come from clients, and a repository's folders from any of its writers: no
name, path or link leads out of the repository.

Files that stand beside a graph: read whole, within a bound, and only if they are files.

`config.pbtxt` names some of them; that a name is no path is checked with its other values, and
that no link leads out of the repository before anything is read.
"""

import os
import stat
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Self, TypeAlias

from service.contract.config_checks import MAX_CONFIG_BYTES
from service.contract.manifest import MODEL_FILENAME, Manifest
from service.errors import InvalidArgument, LoadError

MARKS = ("config.pbtxt", "manifest.json")  # files of models, also of those put one level too high
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
    targets: tuple[Path, ...] = ()  # folders beside `root` that links may lead to

    @classmethod
    def of(
        cls,
        repository: Path,
        name: str,
        config_json: str | None = None,
        targets: tuple[Path, ...] = (),
    ) -> Self:
        """A folder of the repository."""
        return cls(name, repository / name, repository, config_json, targets=targets)

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


def find_models(repository: Path, known: Collection[str] = ()) -> list[str]:
    """The names of a repository's model folders.

    Those of `known` models are among them whatever is left in them: they may be half copied.
    Raises `LoadError` where there is no repository.
    """
    return [
        name
        for name in find_folders(repository)
        if name in known or not why_no_model(repository / name)
    ]


def why_no_model(folder: Path) -> str:
    """Why a folder is no model's; empty where it has a configuration, a version or a graph."""
    try:
        paths = list(islice(folder.iterdir(), MAX_FILES))
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    for path in paths:
        if _is_of_model(path) or (path.is_dir() and _holds_graph(path)):
            return ""
    return "it has neither config.pbtxt nor a folder of a version, such as 1"


def _is_of_model(path: Path) -> bool:
    return path.name in MARKS or path.suffix == ".onnx" or (path.is_dir() and _is_number(path.name))


def _holds_graph(folder: Path) -> bool:
    """Whether a folder is a version's, but for its name: then the model fails, and says so."""
    try:
        return any(_is_of_model(path) for path in islice(folder.iterdir(), MAX_FILES))
    except OSError:
        return False


def find_folders(repository: Path) -> list[str]:
    """The names of a repository's folders, or `LoadError` where there is none."""
    if not repository.is_dir():
        raise LoadError(
            f"model repository {repository} is not a folder: name one with --model-repository"
        )
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

    Raises `LoadError` for a link out of `source.root` and `source.targets`, or too many files.
    """
    roots = [path.resolve() for path in (source.root, *source.targets)]
    snapshot: dict[str, Stamp] = {}
    for num_before, path in enumerate(_walk(source.folder)):
        if num_before == MAX_FILES:
            raise LoadError(f"the model's folder has more than {MAX_FILES} files")
        inner = path.relative_to(source.folder).as_posix()
        real = Path(os.path.realpath(path))  # `resolve` raises on loops
        if not any(real.is_relative_to(root) for root in roots):
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


MAX_MANIFEST_BYTES = 16 * 2**20  # it has an entry per label
MAX_LABELS_BYTES = 16 * 2**20


def read_bytes(path: Path, max_bytes: int) -> bytes:
    """A file's content, or `LoadError` where there is no such file or it is too large."""
    if not path.is_file():
        raise LoadError(f"{path.name}: not there, or no file")
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise LoadError(f"{path.name}: {error.strerror}") from error
    if len(content) > max_bytes:
        raise LoadError(f"{path.name}: larger than {max_bytes} bytes")
    return content


def read_text(path: Path, max_bytes: int) -> str:
    """A file's text, or `LoadError` where it is absent, too large or not UTF-8."""
    try:
        return read_bytes(path, max_bytes).decode()
    except UnicodeDecodeError as error:
        raise LoadError(f"{path.name}: not UTF-8: {error}") from error


def read_config(folder: Path) -> str:
    """A model's `config.pbtxt`; empty where there is none."""
    path = folder / "config.pbtxt"
    return read_text(path, MAX_CONFIG_BYTES) if path.exists() else ""


@dataclass(frozen=True, slots=True)
class VersionFiles:
    """The manifest and the graphs in a version's folder."""

    folder: Path
    manifest: Manifest | None  # None: there is none, so it is a tensor model
    graphs: tuple[str, ...]  # those that may be opened, the first choice first
    chat: Mapping[str, str]  # texts of a generative model's templates, by path


def read_version(
    folder: Path, number: int, graph: str, chat_files: Mapping[str, int]
) -> VersionFiles:
    """The files of one version in a model's folder, or `LoadError` where there is no graph.

    `graph` is the file that the configuration names, which is then the only one; it may be empty.
    `chat_files` are paths of templates, and the most bytes of each.
    """
    version, name = folder / str(number), graph or MODEL_FILENAME
    path = version / "manifest.json"
    text = read_text(path, MAX_MANIFEST_BYTES) if path.exists() else ""
    manifest = Manifest.from_json(text) if text else None
    names: Iterable[str] = [name]
    if manifest is not None and name == MODEL_FILENAME:
        names = manifest.graphs
    graphs = tuple(name for name in names if (version / name).is_file())
    if not graphs:
        raise LoadError(f"version {number} has no {name}")
    has_chat = manifest is not None and manifest.is_generative
    return VersionFiles(
        version, manifest, graphs, read_texts(version, chat_files) if has_chat else {}
    )


def read_texts(folder: Path, bounds: Mapping[str, int]) -> dict[str, str]:
    """Texts of a folder's files by path; `bounds` has patterns, and the most bytes of each file.

    Raises `LoadError`.
    """
    return {
        path.relative_to(folder).as_posix(): read_text(path, most)
        for pattern, most in bounds.items()
        for path in sorted(folder.glob(pattern))
    }


def read_labels(folder: Path, filenames: Mapping[str, str]) -> dict[str, list[str]]:
    """The labels of outputs that have a file: a line each, the first is class 0."""
    return {
        output: read_text(folder / filename, MAX_LABELS_BYTES).splitlines()
        for output, filename in filenames.items()
        if filename
    }
