"""Kinds of folders that are not transformers' own, and what can be done with each.

A folder is told by its names of files alone; nothing of it is opened. Each way out was tried, and
`docs/reference/models.md` says with what; where none is known the message says that.
"""

from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from shlex import quote

from models.checkpoints.consolidated import is_of_mistral
from models.checkpoints.file_names import CONFIG_FILE, MODULES_FILE, weights_in
from models.checkpoints.ways_out import AS_TENSORS, MADE_OF
from models.errors import CheckpointError

MAX_FILES = 10_000  # of a folder's names that are looked at


@dataclass(frozen=True, slots=True)
class Kind:
    """A program's folder: how it is told, what it is, and the way out."""

    signs: tuple[str, ...]  # patterns of names, any of which tells it
    what: str
    way_out: str
    beside: tuple[str, ...] = ()  # of which one must be there too
    has_own_config: bool = False  # whether it is told even where config.json and weights are there
    # Lines of a shell that a test runs, of which {folder}, {file} and {name} are put in.
    commands: tuple[str, ...] = ()


GGUF_FILES = "*.gguf"
OF_A_LATER_STEP = "[1-9]*_*/*"  # of a folder of sentence-transformers: 2_Dense/model.safetensors
GRAPHS = Kind(
    ("*.onnx", "onnx/*.onnx"),
    "of graphs in ONNX",
    AS_TENSORS,
    commands=(
        "mkdir -p models/{name}/1",
        "cp {file}* models/{name}/1/",
        "test -e models/{name}/1/model.onnx || mv models/{name}/1/*.onnx "
        "models/{name}/1/model.onnx",
        "attendant serve models",
    ),
)
PARTS = Kind(
    ("*encoder_model*.onnx",),
    "of graphs of an encoder-decoder in ONNX",
    "each of its graphs, put into the model repository as NAME/1/model.onnx, is served with "
    "tensors in and out",
    commands=(
        'for graph in {place}/*.onnx; do name=$(basename "$graph" .onnx); '
        'mkdir -p models/$name/1; cp "$graph"* models/$name/1/; '
        "mv models/$name/1/$name.onnx models/$name/1/model.onnx; done",
        "attendant serve models",
    ),
)
# Told before graphs: a folder of these may have some, which are no model of their own.
ADAPTERS = Kind(
    ("adapter_config.json",),
    "of an adapter of PEFT without its base",
    "attendant serve serves it beside the base that it names; to put it into the weights of "
    "its base: attendant import BASE CHECKPOINT --adapter FOLDER",
    commands=(
        "attendant serve {folder}",
        "attendant serve BASE --adapter {folder}",
        "attendant import BASE CHECKPOINT --adapter {folder}",
    ),
)
BEFORE_GRAPHS = (
    Kind(("gliner_config.json",), "of GLiNER", MADE_OF, has_own_config=True),
    Kind(("mlc-chat-config.json",), "of MLC", MADE_OF),
    Kind(
        ("model_index.json",),
        "of a pipeline of diffusers",
        "it makes images; nothing here does",
    ),
    ADAPTERS,
)
KINDS = (
    *BEFORE_GRAPHS,
    Kind(("*.engine", "*.plan"), "of an engine of TensorRT", MADE_OF),
    Kind(
        ("model.bin",),
        "of CTranslate2",
        MADE_OF,
        beside=("vocabulary*", "shared_vocabulary*", "source_vocabulary*"),
    ),
    Kind(("openvino_*.xml", "*.xml"), "of OpenVINO", MADE_OF, beside=("*.bin",)),
    Kind(
        ("tf_model*.h5", "saved_model.pb", "*.keras", "model.weights.h5"), "of TensorFlow", MADE_OF
    ),
    Kind(("flax_model*.msgpack",), "of Flax", MADE_OF),
    Kind(("rust_model*",), "of rust-bert", MADE_OF),
    Kind(("*.tflite",), "of TensorFlow Lite", MADE_OF),
    Kind(("*.mlmodel", "*.mlpackage"), "of Core ML", MADE_OF),
    Kind(("weights*.npz",), "of MLX", MADE_OF),
    Kind(
        ("consolidated*", "params.json"),
        "in the form of Meta's own programs, or with weights of Mistral's alone",
        "import the files with config.json and model*.safetensors, which most are published with "
        "too; of this form consolidated.safetensors with params.json can be read",
    ),
)


def check_is_ours(folder: Path) -> None:
    """Raise `CheckpointError`, which says what the folder is, unless transformers may read it."""
    names = names_in(folder)
    kind = foreign_kind(names)
    if kind is not None:
        raise CheckpointError(
            f"{folder} is a folder {kind.what}, not one of transformers: {kind.way_out}"
        )
    if _is(GRAPHS, names) and not is_complete(names):
        raise CheckpointError(
            f"{folder} is a folder {GRAPHS.what}, which are served as they are: attendant serve "
            f"{folder}; an import reads weights"
        )


def foreign_kind(names: Collection[str]) -> Kind | None:
    """The other program that a folder with these names is of; None where transformers may read it.

    The first row that fits decides; files of GGUF, and graphs in ONNX, can be read, and decide
    before.
    """
    has_all = is_complete(names)
    if is_of_gguf(names):
        return None
    for kind in BEFORE_GRAPHS if _is(GRAPHS, names) else KINDS:
        if (kind.has_own_config or not has_all) and _is(kind, names):
            return kind
    return None


def is_of_gguf(names: Collection[str]) -> bool:
    """Whether a folder with these names has a model in GGUF, and none of transformers."""
    of_itself = [name for name in names if "/" not in name]
    return _has(of_itself, GGUF_FILES) and not is_complete(names)


def is_complete(names: Collection[str]) -> bool:
    """Whether a folder with these names has weights and a configuration, as transformers reads."""
    if is_of_mistral(names):
        return True
    of_network = [name for name in names if not fnmatch(name, OF_A_LATER_STEP)]
    inner = {name.partition("/")[2] for name in of_network if "/" in name}
    has_weights = bool(weights_in(of_network) or weights_in(inner))
    return has_weights and (CONFIG_FILE in names or MODULES_FILE in names)


def commands_of(kind: Kind, folder: Path, names: Collection[str], name: str) -> tuple[str, ...]:
    """The lines of the way out for this folder, which is to be served under `name`."""
    files = sorted(each for each in names if _has({each}, *kind.signs))
    file = folder / min(files, key=len, default="")
    places = {"folder": quote(str(folder)), "file": quote(str(file)), "name": name}
    places["place"] = quote(str(file.parent))
    return tuple(line.format(**places) for line in kind.commands)


def check_is_folder(source: Path) -> None:
    """Raise `CheckpointError` where the source is a file; it says what of."""
    if not source.is_file():
        return
    if _is(GRAPHS, {source.name}):
        raise CheckpointError(
            f"{source} is a graph in ONNX: give attendant serve the folder that it is in"
        )
    kind = next((each for each in KINDS if _is(each, {source.name}) and not each.beside), None)
    what = f" {kind.what}: {kind.way_out}" if kind else ": give the folder that it is in"
    raise CheckpointError(f"{source} is a file{what}")


def _is(kind: Kind, names: Collection[str]) -> bool:
    return _has(names, *kind.signs) and (not kind.beside or _has(names, *kind.beside))


def _has(names: Collection[str], *patterns: str) -> bool:
    return any(fnmatch(name, pattern) for name in names for pattern in patterns)


def names_in(folder: Path) -> set[str]:
    """Names of the folder's files, and of those in its folders, with these in front."""
    names: set[str] = set()
    for path in sorted(folder.iterdir())[:MAX_FILES]:
        names.add(path.name)
        if path.is_dir() and not path.name.startswith("."):
            names |= {f"{path.name}/{each.name}" for each in sorted(path.iterdir())[:MAX_FILES]}
    return names
