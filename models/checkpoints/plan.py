"""The plan for a folder, by its names of files, its small files and the headers of its weights.

`recognise` is the one function that says it: an import, `attendant explain` and `attendant serve`
ask it. A row of `foreign.KINDS` is a form that is refused; a row of `FORMS` is one that is taken,
with what it needs. Imports no torch, reads no weights, and raises nothing for a folder that is
strange: that is a refusal with a way out.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any

from models.checkpoints import file_names
from models.checkpoints.foreign import (
    GRAPHS,
    check_is_folder,
    commands_of,
    foreign_kind,
    is_complete,
    names_in,
)
from models.checkpoints.gguf.files import KEPT_TYPES, SUFFIX, GgufFile
from models.checkpoints.gguf.folders import gguf_at
from models.checkpoints.gguf.networks import config_of
from models.checkpoints.graph_files import (
    DATA,
    GraphFile,
    GraphWish,
    choose,
    graphs_in,
)
from models.checkpoints.headers import TensorHeader, parts_of, read_headers
from models.checkpoints.known import known_types, unknown_type
from models.checkpoints.rounded.declared import rounding_of
from models.checkpoints.traced_types import check_config, check_weights, is_traced
from models.errors import CheckpointError
from models.json_files import read_json, read_object

OWN_FORMAT = "attendant-checkpoint-1"
# Purposes of classes of transformers, by the end of their names.
TASKS_BY_CLASS: Mapping[str, str] = {
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForMaskedLM": "fill-mask",
    "ForPreTraining": "fill-mask",
    "ForCausalLM": "text-generation",
    "LMHeadModel": "text-generation",
    "ForConditionalGeneration": "text-generation",
    "MTModel": "text-generation",
    "ForImageClassification": "image-classification",
    "Model": "embedding",
}
# Uses of the files that an import reads, by patterns of their names; the first that fits counts.
USES: Mapping[str, str] = {
    "config.json": "sizes and kind of the network",
    "model*.safetensors": "weights",
    "rounded.safetensors": "weights with the numbers that a folder had rounded them to",
    "pytorch_model*.bin": "weights",
    "*.index.json": "list of the files of weights",
    "tokenizer.json": "tokenizer",
    "tokenizer_config.json": "settings of the tokenizer, and the chat template",
    "chat_template.*": "chat template",
    "vocab.*": "tokenizer, where tokenizer.json is missing",
    "merges.txt": "tokenizer, where tokenizer.json is missing",
    "special_tokens_map.json": "special tokens",
    "added_tokens.json": "special tokens",
    **dict.fromkeys(
        file_names.OTHER_TOKENIZERS, "tokenizer, where tokenizer.json and vocabularies are missing"
    ),
    "source.spm": "tokenizer",
    "generation_config.json": "sampling, and what ends a text",
    "genai_config.json": "sizes, sampling, what ends a text, and names of tensors",
    "modules.json": "steps from text to vector",
    "config_sentence_transformers.json": "prompts and similarity",
    "sentence_*_config.json": "longest text",
    "preprocessor_config.json": "preparation of images",
    "*_linear.pt": "maps of BGE-M3",
    "?_*/*": "a step from text to vector",
}
# Reasons of the files that no import reads.
NOT_READ: Mapping[str, str] = {
    "*.py": "code, which is never run",
    "*.pkl": "a pickle, which may hold code and is never run",
    "*.gguf": "another form of the weights",
    "*.onnx*": "another form of the weights",
    "onnx/*": "another form of the weights",
    "openvino*": "another form of the weights",
    "tf_model*": "another form of the weights",
    "flax_model*": "another form of the weights",
    "rust_model*": "another form of the weights",
    "consolidated*": "another form of the weights",
    "*.safetensors": "other weights",
    "*.bin": "other weights",
    "optimizer*": "state of a training",
    "training_args*": "state of a training",
    "trainer_state*": "state of a training",
    "*.md": "for readers",
}
HIDDEN = ".*"
ANY_GRAPH = GraphWish()
BYTES_BY_DTYPE: Mapping[str, int] = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}


@dataclass(frozen=True, slots=True)
class Form:
    """A kind of folder that is taken: how it is told, and what is imported to read it."""

    name: str
    what: str  # behind "a folder"
    needs: tuple[str, ...]  # libraries of the first start


OWN = Form("attendant", "of Attendant's own checkpoint", ("torch", "onnxscript"))
TRANSFORMERS = Form("transformers", "of transformers", ("torch", "onnxscript"))
TRACED = Form(
    "traced",
    "of transformers, whose own network is traced",
    ("torch", "onnxscript", "transformers"),
)
EMBEDDER = Form("sentence-transformers", "of sentence-transformers", ("torch", "onnxscript"))
REPOSITORY = Form("repository", "of served models: a model repository", ())
GGUF = Form("gguf", "of GGUF", ("torch", "onnxscript", "gguf"))
ONNX = Form("onnx", GRAPHS.what, ("onnx",))
FORMS = (REPOSITORY, OWN, EMBEDDER, TRANSFORMERS, TRACED, GGUF, ONNX)


@dataclass(frozen=True, slots=True)
class File:
    """A file of the folder, and what it is for or why it is left out."""

    name: str
    num_bytes: int
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Kind of a folder and what becomes of it; `refusal` is empty where it can be taken."""

    folder: Path
    form: str = ""  # `Form.name`, or empty where none was told
    what: str = ""
    needs: tuple[str, ...] = ()
    model_type: str = ""
    architecture: str = ""
    task: str = ""  # as the folder declares it
    num_weights: int = 0
    stored_as: Mapping[str, int] = field(default_factory=dict)  # weights by their type
    kept: tuple[str, ...] = ()  # types that the CPU computes with as they are stored
    num_bytes: int = 0  # of the files of weights
    taken: tuple[File, ...] = ()
    left_out: tuple[File, ...] = ()
    refusal: str = ""
    way_out: str = ""
    commands: tuple[str, ...] = ()  # of the way out, for a shell
    graph: str = ""  # the file that is served, of a folder of graphs
    precision: str = ""  # of that graph, as its name says
    variants: tuple[str, ...] = ()  # names of the others

    @property
    def name(self) -> str:
        """The name under which the folder is served unless another is given."""
        return name_of(self.folder.resolve().name)

    def check(self) -> None:
        """Raise `CheckpointError` where the folder cannot be taken."""
        if self.refusal:
            raise CheckpointError(": ".join(filter(None, (self.refusal, self.way_out))))


def name_of(source: str) -> str:
    """The last part of a path or hub id as a model's name: lower case, of few characters."""
    last = source.rstrip("/").rpartition("/")[2].lower().removesuffix(SUFFIX)
    return re.sub(r"[^a-z0-9._-]+", "-", last).strip(".-") or "model"


def recognise(folder: Path, wish: GraphWish = ANY_GRAPH) -> Plan:
    """The plan for a folder, or for a file that is given in place of one.

    Of a folder with weights and graphs the weights are taken, unless the wish names a variant, or
    there is no PyTorch to read them.
    """
    if not folder.is_dir() and folder.suffix != SUFFIX:
        return Plan(folder, refusal=_why_no_folder(folder))
    try:
        gguf = gguf_at(folder)
        if gguf is not None:
            return _of_gguf(folder, GgufFile(gguf))
    except CheckpointError as error:
        return Plan(folder, what=GGUF.what, refusal=str(error))
    names = names_in(folder)
    if is_repository(folder):
        return Plan(folder, REPOSITORY.name, REPOSITORY.what)
    kind = foreign_kind(names)
    graphs = graphs_in(names, _place(folder)) if kind is None else []
    is_wished = wish.variant is not None or not has_torch()
    if graphs and (is_wished or not is_complete(names)):
        return _of_graphs(folder, names, graphs, wish)
    if kind is not None:
        refusal = f"{folder} is a folder {kind.what}, not one of transformers"
        files = tuple(_file(folder, name, NOT_READ) for name in _shown(names, folder))
        return Plan(
            folder,
            what=kind.what,
            left_out=files,
            refusal=refusal,
            way_out=kind.way_out,
            commands=commands_of(kind, folder, names, name_of(folder.resolve().name)),
        )
    try:
        return _of_transformers(folder, names)
    except CheckpointError as error:
        return Plan(folder, what="of transformers", refusal=str(error))


def _of_gguf(folder: Path, file: GgufFile) -> Plan:
    config = config_of(file)
    stored: Counter[str] = Counter()
    for name, shape in file.shapes.items():
        stored[file.type_of(name)] += prod(shape)
    others = _shown(names_in(folder), folder) if folder.is_dir() else []
    names = {path.name for path in file.paths}
    taken = [
        File(path.name, path.stat().st_size, "weights, tokenizer and chat template")
        for path in file.paths
    ]
    return Plan(
        folder,
        GGUF.name,
        GGUF.what,
        GGUF.needs,
        str(config["model_type"]),
        str(config["architectures"][0]),
        "text-generation",
        stored.total(),
        dict(stored),
        tuple(kind for kind in stored if kind in KEPT_TYPES),
        sum(each.num_bytes for each in taken),
        tuple(taken),
        tuple(_file(folder, name, NOT_READ) for name in others if name not in names),
    )


def has_torch() -> bool:
    """Whether weights can be read here, rather than graphs alone."""
    return find_spec("torch") is not None


def _place(folder: Path) -> str:
    """The folder of the network within the whole, with a stroke at its end."""
    try:
        inner = encoder_folder(folder)
    except CheckpointError:
        return ""
    return "" if inner == folder else f"{inner.relative_to(folder).as_posix()}/"


def _of_graphs(
    folder: Path, names: Collection[str], graphs: Sequence[GraphFile], wish: GraphWish
) -> Plan:
    """The plan of a folder of graphs, whose small files may be there or not."""
    try:
        chosen = choose(graphs, wish)
        values = read_object(encoder_folder(folder) / file_names.CONFIG_FILE, optional=True)
        listed = values.get("architectures")
        architecture = str(listed[0]) if isinstance(listed, list) and listed else ""
        task = _task(architecture, folder, values)
    except CheckpointError as error:
        return Plan(folder, what=ONNX.what, refusal=str(error))
    shown = _shown(names, folder)
    parts = [name for name in shown if any(fnmatch(name, chosen.name + end) for end in ("", *DATA))]
    others = {graph.name: graph.variant for graph in graphs if graph != chosen}
    weights = {name for name in shown if _use_of(name, USES) == "weights"}
    taken = [File(name, (folder / name).stat().st_size, "graph") for name in parts]
    left_out = []
    for name in shown:
        num_bytes = (folder / name).stat().st_size
        use = _use_of(name, USES)
        if name in others:
            left_out.append(File(name, num_bytes, f"another graph (--variant {others[name]})"))
        elif use and name not in weights and name not in parts:
            taken.append(File(name, num_bytes, use))
        elif name not in parts:
            why = "another form of the weights" if name in weights else _use_of(name, NOT_READ)
            left_out.append(File(name, num_bytes, why or "not read"))
    return Plan(
        folder,
        ONNX.name,
        ONNX.what,
        ONNX.needs,
        str(values.get("model_type", "")),
        architecture,
        task,
        num_bytes=sum(each.num_bytes for each in taken if each.why == "graph"),
        taken=tuple(taken),
        left_out=tuple(left_out),
        way_out=GRAPHS.way_out,
        commands=commands_of(GRAPHS, folder, {chosen.name}, name_of(folder.resolve().name)),
        graph=chosen.name,
        precision=chosen.precision,
        variants=tuple(sorted(others.values())),
    )


def check_small_files(folder: Path) -> None:
    """Raise `CheckpointError` for a network that no import reads, before weights are fetched."""
    path = encoder_folder(folder) / file_names.CONFIG_FILE
    if path.is_file():
        values = read_object(path)
        if values.get("format") != OWN_FORMAT:
            _check_type(values, path)


def is_repository(folder: Path) -> bool:
    """Whether the folders in it are models as `attendant export` writes them."""
    return any(
        (path / "config.pbtxt").is_file() or any(path.glob("[1-9]*/model*.onnx"))
        for path in folder.iterdir()
        if path.is_dir() and not path.name.startswith(".")
    )


def _why_no_folder(path: Path) -> str:
    try:
        check_is_folder(path)
    except CheckpointError as error:
        return str(error)
    return f"there is no folder {path}"


def _of_transformers(folder: Path, names: Collection[str]) -> Plan:
    encoder = encoder_folder(folder)
    values = read_object(encoder / file_names.CONFIG_FILE)
    listed = values.get("architectures")
    architecture = str(listed[0]) if isinstance(listed, list) and listed else ""
    is_own = values.get("format") == OWN_FORMAT
    if not is_own:
        _check_type(values, encoder / file_names.CONFIG_FILE)
    if is_traced(values.get("model_type")):
        check_weights(encoder)
    has_modules = file_names.MODULES_FILE in names
    of_library = TRACED if is_traced(values.get("model_type")) else TRANSFORMERS
    form = OWN if is_own else EMBEDDER if has_modules else of_library
    headers = dict(headers_of(encoder))
    shown = _shown(names, folder)
    taken = [name for name in shown if _use_of(name, USES) and not _is_other_weight(name, names)]
    files = [_file(folder, name, USES) for name in taken]
    left_out = [_file(folder, name, NOT_READ) for name in shown if name not in taken]
    stored: Counter[str] = Counter()
    rounding = None if is_own else rounding_of(values, encoder / file_names.CONFIG_FILE)
    num_rounded = 0
    for name, header in headers.items():
        inside = rounding.weights_in(name, header.dtype, header.num_values) if rounding else 0
        num_rounded += inside
        stored[rounding.title if rounding and inside else header.dtype] += (
            inside or header.num_values
        )
    num_bytes = sum(file.num_bytes for file in files if file.why == "weights")
    floats = sum(number for dtype, number in stored.items() if dtype in BYTES_BY_DTYPE)
    num_weights = floats + num_rounded
    task = str(values.get("task", "")) if is_own else _task(architecture, folder, values)
    kept = [rounding.title] if rounding and rounding.is_kept else []
    kept += ["rounded weights"] if is_own and file_names.KEPT_FILE in names else []
    return Plan(
        folder,
        form.name,
        form.what,
        form.needs,
        str(values.get("network" if is_own else "model_type", "")),
        architecture,
        task,
        num_weights or num_bytes // 4,  # of .bin files, whose headers are pickles
        dict(stored),
        tuple(kept) if task == "text-generation" else (),
        num_bytes,
        tuple(files),
        tuple(left_out),
    )


def _check_type(values: Mapping[str, Any], path: Path) -> None:
    """Raise `CheckpointError` for a network or a rounding that no import reads."""
    model_type = values.get("model_type")
    if is_traced(model_type):
        check_config(values, path)
    elif model_type not in known_types():
        raise unknown_type(model_type, path)
    else:
        rounding_of(values, path)


def headers_of(folder: Path) -> Iterator[tuple[str, TensorHeader]]:
    """Names and headers of all weights in safetensors files; none for those in .bin files."""
    whole, index = folder / file_names.WEIGHTS_FILE, folder / file_names.INDEX_FILE
    if whole.is_file():
        yield from read_headers(whole).items()
    elif index.is_file():
        for part in parts_of(index):
            path = folder / part
            if not path.is_file():
                raise CheckpointError(f"{path} is missing, which {index.name} lists: copy it too")
            yield from read_headers(path).items()


def encoder_folder(folder: Path) -> Path:
    """The folder of the network, which modules.json may name."""
    path = folder / file_names.MODULES_FILE
    if not path.is_file():
        return folder
    modules = read_json(path)
    first = modules[0] if isinstance(modules, list) and modules else {}
    place = str(first.get("path", "")) if isinstance(first, dict) else ""
    inner = folder / place
    return inner if (inner / file_names.CONFIG_FILE).is_file() else folder


def _task(architecture: str, folder: Path, values: Mapping[str, Any]) -> str:
    """The purpose that the files declare; an import may be told another."""
    own = read_object(folder / "config_sentence_transformers.json", optional=True)
    is_scorer = own.get("model_type") == "CrossEncoder" or "sentence_transformers" in values
    if (folder / file_names.MODULES_FILE).is_file() and not is_scorer:
        return "embedding"
    task = next((t for end, t in TASKS_BY_CLASS.items() if architecture.endswith(end)), "embedding")
    id2label = values.get("id2label")
    has_one = isinstance(id2label, dict) and len(id2label) == 1
    return "pair-scoring" if task == "text-classification" and has_one else task


def _shown(names: Collection[str], folder: Path) -> list[str]:
    return sorted(name for name in names if (folder / name).is_file() and not fnmatch(name, HIDDEN))


def _is_other_weight(name: str, names: Collection[str]) -> bool:
    """Whether a file holds weights that stand there in a form that is read before it."""
    forms = file_names.WEIGHT_FORMS
    first = next((form for form in forms if form in names), "")
    if not _use_of(name, {"model*.safetensors": "w", "pytorch_model*.bin": "w"}):
        return False
    if first == file_names.WEIGHTS_FILE or first == file_names.PICKLED_FILE:
        return name != first
    ending = ".safetensors" if first == file_names.INDEX_FILE else ".bin"
    return bool(first) and not name.endswith(ending)


def _file(folder: Path, name: str, uses: Mapping[str, str]) -> File:
    why = _use_of(name, uses) or ("not read" if uses is NOT_READ else "")
    return File(name, (folder / name).stat().st_size, why)


def _use_of(name: str, uses: Mapping[str, str]) -> str:
    return next((why for pattern, why in uses.items() if fnmatch(name, pattern)), "")
