"""Folders without a whole model: empty, of other folders, of a part, or not fetched by git LFS.

A folder is told by names, and by the first bytes of small files. Imports no torch.
"""

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from pathlib import Path
from shlex import quote

from models.checkpoints.file_names import CONFIG_FILE, MODULES_FILE, WEIGHT_FORMS, weights_in
from models.checkpoints.folder_files import is_weight
from models.checkpoints.foreign import GGUF_FILES, GRAPHS, is_complete, names_in
from models.errors import CheckpointError

POINTER = b"version https://git-lfs.github.com/spec/"
MAX_POINTER_BYTES = 1024
MAX_SHOWN = 5


def check_is_whole(folder: Path, names: Collection[str]) -> None:
    """Raise `CheckpointError`, which says what is missing, for a folder without a network."""
    if not names:
        raise CheckpointError(f"{folder} is empty: give the folder of a model's files, or a hub id")
    if is_complete(names) or MODULES_FILE in names:
        return
    weights = weights_in(names) or min(filter(is_weight, names), default="")
    if weights and CONFIG_FILE in names:
        return  # its weights have other names, which an error names later
    inner = [path for path in sorted(folder.iterdir()) if path.is_dir() and _has_model(path)]
    if inner:
        shown = " ".join(quote(str(path)) for path in inner[:MAX_SHOWN])
        more = f" (and {len(inner) - MAX_SHOWN} more)" * (len(inner) > MAX_SHOWN)
        raise CheckpointError(
            f"{folder} has no model itself, and its folders have: attendant serve {shown}{more}"
        )
    files = sorted(name for name in names if "/" not in name)
    if weights:
        lacking = f"{weights} and no {CONFIG_FILE}, which says what network its weights are of"
    elif CONFIG_FILE in names:
        lacking = f"{CONFIG_FILE} and no weights ({', '.join(WEIGHT_FORMS)})"
    else:
        there = ", ".join(files[:MAX_SHOWN]) or "folders alone"
        lacking = f"{there}, and neither {CONFIG_FILE} nor weights"
    raise CheckpointError(f"{folder} has {lacking}: fetch the whole folder from where it is from")


def _has_model(folder: Path) -> bool:
    names = names_in(folder)
    kinds = (GGUF_FILES, *GRAPHS.signs)
    return is_complete(names) or any(Path(name).match(kind) for name in names for kind in kinds)


def check_is_fetched(folder: Path, names: Iterable[str]) -> None:
    """Raise `CheckpointError` where a file of the folder is a pointer of git LFS in its place."""
    for path in (folder / name for name in names):
        if path.is_file() and path.stat().st_size <= MAX_POINTER_BYTES:
            with path.open("rb") as file:
                is_pointer = file.read(len(POINTER)) == POINTER
            if is_pointer:
                raise CheckpointError(
                    f"{path} is a pointer of git LFS, and the file itself is not here: fetch it by "
                    f"git -C {quote(str(folder))} lfs pull"
                )


def like_it(path: str) -> str:
    """In brackets, the file or folder whose name is most like the path's; empty for none."""
    place = Path(path)
    try:
        names = [each.name for each in place.parent.iterdir()]
    except (OSError, ValueError):
        return ""
    close = get_close_matches(place.name, names, n=1, cutoff=0.8)
    return f" (is it {place.parent / close[0]}?)" if close else ""
