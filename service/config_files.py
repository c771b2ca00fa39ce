"""Files that stand beside a graph: read whole, within a bound, and only if they are files.

`config.pbtxt` names some of them; that a name is no path is checked with its other values, and
that no link leads out of the repository before anything is read.
"""

from pathlib import Path

from tritonclient.grpc.model_config_pb2 import ModelConfig

from service.config_checks import MAX_CONFIG_BYTES
from service.errors import LoadError

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


def read_manifest(version: Path) -> str:
    """A version's `manifest.json`; empty where there is none."""
    path = version / "manifest.json"
    return read_text(path, MAX_MANIFEST_BYTES) if path.exists() else ""


def read_labels(config: ModelConfig, folder: Path) -> dict[str, list[str]]:
    """The labels of outputs that have a `label_filename`: a line each, the first is class 0."""
    return {
        output.name: read_text(folder / output.label_filename, MAX_LABELS_BYTES).splitlines()
        for output in config.output
        if output.label_filename
    }
