"""Files that stand beside a graph: read whole, within a bound, and only if they are files.

`config.pbtxt` names some of them; that a name is no path is checked with its other values, and
that no link leads out of the repository before anything is read.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from service.config_checks import MAX_CONFIG_BYTES
from service.errors import LoadError
from service.manifest import MODEL_FILENAME, Manifest

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
    """The same for a text, which is UTF-8."""
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


def read_version(folder: Path, number: int, graph: str) -> VersionFiles:
    """The files of one version in a model's folder, or `LoadError` where there is no graph.

    `graph` is the file that the configuration names, which is then the only one; it may be empty.
    """
    version, name = folder / str(number), graph or MODEL_FILENAME
    path = version / "manifest.json"
    text = read_text(path, MAX_MANIFEST_BYTES) if path.exists() else ""
    manifest = Manifest.from_json(text) if text else None
    names: Iterable[str] = [name]
    if manifest is not None and name == MODEL_FILENAME:
        names = manifest.filenames.values()
    graphs = tuple(name for name in names if (version / name).is_file())
    if not graphs:
        raise LoadError(f"version {number} has no {name}")
    return VersionFiles(version, manifest, graphs)


def read_labels(folder: Path, filenames: Mapping[str, str]) -> dict[str, list[str]]:
    """The labels of outputs that have a file: a line each, the first is class 0."""
    return {
        output: read_text(folder / filename, MAX_LABELS_BYTES).splitlines()
        for output, filename in filenames.items()
        if filename
    }
