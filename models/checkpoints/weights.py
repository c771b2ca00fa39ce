"""Put the tensors of a safetensors file into a module: all of them, and no other.

Knows nothing about which checkpoint they belong to: the caller says how the file names each weight.
The module is built on the meta device, so that no time goes into initialising what is overwritten
and the global random state stays as it was.
"""

import hashlib
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from models.checkpoints import file_names
from models.checkpoints.consolidated import by_transformers_names
from models.checkpoints.gguf.files import GgufFile
from models.checkpoints.gguf.folders import file_behind
from models.checkpoints.gguf.networks import names_of, weight_of
from models.checkpoints.headers import parts_of, read_headers
from models.checkpoints.lazy import LazyTensor, pieces, realised
from models.checkpoints.rounded.declared import rounding_of
from models.checkpoints.rounded.forms import OF_SHAPES
from models.checkpoints.rounded.kept import Kept
from models.checkpoints.rounded.kept_files import read_kept
from models.checkpoints.rounded.methods import kept, restored
from models.errors import CheckpointError, reason
from models.json_files import fields_of, read_object
from models.remarks import remark

WEIGHTS_FILE, PICKLED_FILE = file_names.WEIGHTS_FILE, file_names.PICKLED_FILE
MAX_NAMED_KEYS = 6  # an error message names this number of keys and counts the rest

COMPARED = (torch.float32, torch.bfloat16, torch.float16)  # types that torch compares numbers of

Module = TypeVar("Module", bound=nn.Module)


# Of `headers_alone`; a context variable, so that it ends with the call that sets it.
_HEADERS_ALONE: ContextVar[bool] = ContextVar("headers_alone", default=False)
# Of `weights_left_in_files`, in the same way.
_LEFT_IN_FILES: ContextVar[bool] = ContextVar("weights_left_in_files", default=False)
DTYPES = {
    "BOOL": torch.bool,
    "I64": torch.int64,
    "I32": torch.int32,
    "U32": torch.uint32,
    "I8": torch.int8,
    "U8": torch.uint8,
}


@contextmanager
def headers_alone() -> Iterator[None]:
    """While entered, tensors of files have names, types and shapes, and no values.

    A folder is then read by the same code as for an import, in the time of its small files. What
    depends on values, as whether all are finite, is not checked.
    """
    token = _HEADERS_ALONE.set(True)
    try:
        yield
    finally:
        _HEADERS_ALONE.reset(token)


@contextmanager
def weights_left_in_files() -> Iterator[None]:
    """While entered, `assign_weights` gives networks lazy weights: see `LazyTensor`."""
    token = _LEFT_IN_FILES.set(True)
    try:
        yield
    finally:
        _LEFT_IN_FILES.reset(token)


def stay_in_files() -> bool:
    """Whether `weights_left_in_files` is entered."""
    return _LEFT_IN_FILES.get()


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of the file, in float32 whatever they were stored in."""
    return {name: realised(tensor) for name, tensor in lazy_tensors(path).items()}


def lazy_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of the file: floating point numbers are lazy, and float32 when they are read."""
    if not path.is_file() and (pickled := path.with_name(PICKLED_FILE)).is_file():
        return read_pickle(pickled, device=_device())
    if path.suffix == ".bin" and path.is_file():
        return read_pickle(path, device=_device())
    if not path.is_file():
        raise CheckpointError(f"{path} is missing: expected weights in safetensors format")
    if _HEADERS_ALONE.get():
        without_values = {
            name: torch.empty(
                header.shape, dtype=DTYPES.get(header.dtype, torch.float32), device="meta"
            )
            for name, header in read_headers(path).items()
        }
        return without_values | _tensors(path, [n for n in without_values if n.endswith(OF_SHAPES)])
    return _left_in_file(_tensors(path))


def _left_in_file(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors that are mapped from a file, with floating point numbers as lazy ones."""
    return {
        name: LazyTensor.of_mapped(tensor)
        if tensor.is_floating_point() and not tensor.is_meta
        else tensor
        for name, tensor in tensors.items()
    }


def _tensors(path: Path, names: Collection[str] | None = None) -> dict[str, Tensor]:
    """The tensors of these names, or all of the file, as they are stored and mapped from it."""
    if names is not None and not names:
        return {}
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in names or file.keys()}
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path} is not a readable safetensors file: {reason(error)}"
        ) from error


def _device() -> str:
    return "meta" if _HEADERS_ALONE.get() else "cpu"


def read_pickle(
    path: Path, max_bytes: float = float("inf"), device: str = "cpu"
) -> dict[str, Tensor]:
    """The tensors of a file that torch.save wrote, as `lazy_tensors` has them, and no more of it.

    Raises CheckpointError for a larger file, and for one that holds anything but tensors by name.
    """
    num_bytes = path.stat().st_size
    if num_bytes > max_bytes:
        raise CheckpointError(f"{path} has {num_bytes} bytes, but must have at most {max_bytes}")
    try:
        # What older versions of PyTorch wrote is no archive, and cannot be mapped.
        is_mapped = device == "cpu" and zipfile.is_zipfile(path)
        tensors = torch.load(path, map_location=device, weights_only=True, mmap=is_mapped)
    except Exception as error:  # of a damaged file it raises nearly anything
        what = "it is damaged, or holds more than tensors"  # torch advises to load it unchecked
        raise CheckpointError(
            f"{path} is not a file of weights alone: {what}; copy it again, or write the tensors "
            "alone with torch.save"
        ) from error
    if not isinstance(tensors, dict) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in tensors.items()
    ):
        raise CheckpointError(f"{path} must hold tensors by their names, and nothing else")
    return _left_in_file(tensors)


def read_weights(folder: Path) -> dict[str, Tensor]:
    """The tensors of a folder in the form that `weights_in` says, by transformers' names.

    Weights that config.json declares rounded are floating point numbers again.
    """
    config = folder / file_names.CONFIG_FILE
    rounding = rounding_of(read_object(config, optional=True), config)
    path, tensors = _stored_weights(folder)
    return tensors if rounding is None else restored(rounding, tensors, path)


def kept_weights(
    folder: Path, factor: Callable[[str], float] = lambda _: 1.0
) -> Callable[[], tuple[Kept, ...]]:
    """Reads the rounded weights of a folder that products of few bits hold as they are.

    They are read at the first call. `factor` says, by a weight's name, what the network multiplies
    it by.
    """
    file = file_behind(folder)
    config = folder / file_names.CONFIG_FILE
    rounding = rounding_of(read_object(config, optional=True), config)
    if _HEADERS_ALONE.get() or (file is None and rounding is None):
        return tuple

    @cache
    def read() -> tuple[Kept, ...]:
        if file is not None:
            from models.checkpoints.gguf.blocks import kept_in  # which imports the package gguf

            return tuple(kept_in(file, factor))
        assert rounding is not None, "the caller looked for it"
        path, tensors = _stored_weights(folder)
        return tuple(kept(rounding, tensors, path, factor))

    return read


def own_kept_weights(path: Path) -> Callable[[], tuple[Kept, ...]]:
    """Reads the kept weights of a checkpoint of our own, at the first call."""
    return tuple if _HEADERS_ALONE.get() else cache(partial(read_kept, path))


def _stored_weights(folder: Path) -> tuple[Path, dict[str, Tensor]]:
    file = file_behind(folder)
    if file is not None:
        return file.path, _of_gguf(file)
    names = {path.name for path in folder.iterdir() if path.is_file()} if folder.is_dir() else ()
    name = file_names.weights_in(names)
    path = folder / (name or WEIGHTS_FILE)
    tensors = _read_parts(path) if path.suffix == ".json" else lazy_tensors(path)
    if name in file_names.CONSOLIDATED:
        tensors = by_transformers_names(tensors, folder, path)
    if variant := file_names.variant_of(name):
        remark(f"{path}: the weights are those of the variant {variant}, as there are no others")
    return path, tensors


def _of_gguf(file: GgufFile) -> dict[str, Tensor]:
    if _HEADERS_ALONE.get():
        names = names_of(file)
        return {
            name: torch.empty(file.shapes[stored], device="meta") for stored, name in names.items()
        }

    def of(stored: str) -> LazyTensor:
        return LazyTensor.of(file.shapes[stored], lambda: torch.from_numpy(weight_of(file, stored)))

    return {name: of(stored) for stored, name in names_of(file).items()}


def _read_parts(index: Path) -> dict[str, Tensor]:
    parts = parts_of(index)
    tensors: dict[str, Tensor] = {}
    for part in parts:
        if not (index.parent / part).is_file():
            raise CheckpointError(
                f"{index.parent / part} is missing, which {index.name} lists: copy all "
                f"{len(parts)} files of weights"
            )
        read = lazy_tensors(index.parent / part)
        for name in read.keys() & tensors.keys():
            raise CheckpointError(f"{index}: {name} is in {part} and in another part")
        tensors |= read
    with fields_of(index, read_object(index)) as values:
        check_names(tensors, set(values["weight_map"]), index)
    return tensors


def check_digest(path: Path, expected: str, stated_in: Path) -> None:
    """Raise CheckpointError unless the file is the one whose SHA-256 was stated."""
    if _HEADERS_ALONE.get():
        return
    if not path.is_file():
        raise CheckpointError(f"{path} is missing, which {stated_in} has a digest of: import again")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise CheckpointError(
            f"{path} has the SHA-256 {found}, but {stated_in} says {expected}: it is damaged, or "
            "of another checkpoint; copy the folder again, or train it again"
        )


def build_on_meta(build: Callable[[], Module]) -> Module:
    """Build the module without memory for its weights; `assign_weights` brings them."""
    with torch.device("meta"):
        return build()


def assign_weights(
    module: nn.Module,
    tensors: Mapping[str, Tensor],
    path: Path,
    name_in_file: Callable[[str], str] = str,
) -> None:
    """Give `module` its weights and set it to evaluation mode.

    Raises CheckpointError naming the missing, unexpected or misshapen keys, and numbers that are
    not finite.
    """
    wanted = {name_in_file(name): name for name in module.state_dict()}
    check_names(tensors, wanted, path)
    state = {wanted[name]: tensor for name, tensor in tensors.items()}
    for name, parameter in module.state_dict().items():
        if parameter.shape != state[name].shape:
            found, expected = list(state[name].shape), list(parameter.shape)
            raise CheckpointError(
                f"{path}: {name_in_file(name)} has shape {found}, but must have {expected}"
            )
        if parameter.is_floating_point() != state[name].is_floating_point():
            raise CheckpointError(
                f"{path}: {name_in_file(name)} has numbers of type {state[name].dtype}, but must "
                "have floating point numbers"
            )
        check_finite(state[name], name_in_file(name), path)
        if not _LEFT_IN_FILES.get():
            state[name] = realised(state[name])
    module.load_state_dict(state, assign=True)
    module.eval()


def check_finite(tensor: Tensor, name: str, path: Path) -> None:
    """Raise `CheckpointError` for a weight with numbers that are not finite."""
    num_wrong = _num_not_finite(tensor)
    if num_wrong:
        raise CheckpointError(
            f"{path}: {name} has {num_wrong} of {tensor.numel()} numbers that are not finite (NaN "
            "or infinite), but must have none: the file is damaged, or its training has diverged"
        )


def _num_not_finite(tensor: Tensor) -> int:
    if tensor.is_meta:
        return 0
    in_file = tensor.in_file if isinstance(tensor, LazyTensor) else None
    if in_file is not None and in_file.dtype in COMPARED:
        tensor = in_file
    return sum(map(_num_not_finite_in, pieces(tensor)))


def _num_not_finite_in(piece: Tensor) -> int:
    if piece.is_floating_point() and piece.numel():
        least, largest = torch.aminmax(piece)  # one pass; both are NaN where a number is
        if torch.isfinite(largest - least):
            return 0
    return piece.numel() - int(torch.isfinite(piece).sum())


def check_names(found: Collection[str], wanted: Collection[str], path: Path) -> None:
    missing = [name for name in wanted if name not in found]
    unexpected = [name for name in found if name not in wanted]
    problems = [
        f"{len(names)} {what}: {first_of(names)}"
        for what, names in (("missing", missing), ("unexpected", unexpected))
        if names
    ]
    if problems:
        raise CheckpointError(f"{path}: weights {'; '.join(problems)}")


def first_of(names: Collection[str]) -> str:
    """The first names, and the number of the others."""
    shown = ", ".join(sorted(names)[:MAX_NAMED_KEYS])
    rest = len(names) - MAX_NAMED_KEYS
    return f"{shown} and {rest} more" if rest > 0 else shown
