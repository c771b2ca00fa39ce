"""The plan for a folder, by its names of files, its small files and the headers of its weights.

An import, `attendant explain` and `attendant serve` get the plan of `recognise`. A row of
`foreign.KINDS` is a form that is refused; a row of `FORMS` is one that is taken, with what it
needs. Imports no torch and reads no weights. A folder that cannot be read is a plan with a refusal,
and raises nothing.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from models.checkpoints import file_names
from models.checkpoints.consolidated import config_of as config_of_mistral
from models.checkpoints.consolidated import is_of_mistral
from models.checkpoints.declared import architecture_of, encoder_folder, task_of
from models.checkpoints.folder_files import (
    NOT_READ,
    USES,
    WEIGHTS,
    file_of,
    is_weight,
    shown_in,
    use_of,
)
from models.checkpoints.folder_plan import (
    ADAPTER,
    EMBEDDER,
    GGUF,
    OWN,
    REPOSITORY,
    TRACED,
    TRANSFORMERS,
    Plan,
    name_of,
)
from models.checkpoints.foreign import (
    ADAPTERS,
    check_is_folder,
    commands_of,
    foreign_kind,
    is_complete,
    names_in,
)
from models.checkpoints.gguf.files import SUFFIX, GgufFile
from models.checkpoints.gguf.folders import gguf_at
from models.checkpoints.gguf_plan import plan_of_gguf
from models.checkpoints.graph_files import WEIGHTS as WEIGHTS_VARIANT
from models.checkpoints.graph_files import (
    GraphWish,
    check_weights_meant,
    graphs_in,
    is_encoder_decoder,
)
from models.checkpoints.graphs_plan import plan_of_graphs
from models.checkpoints.headers import TensorHeader, parts_of, read_headers
from models.checkpoints.known import known_types, unknown_type
from models.checkpoints.rounded.declared import rounding_of
from models.checkpoints.traced_types import check_config, is_traced
from models.checkpoints.whole import check_is_fetched, check_is_whole, like_it
from models.errors import CheckpointError
from models.json_files import read_object

OWN_FORMAT = "attendant-checkpoint-1"
ANY_GRAPH = GraphWish()
BYTES_BY_DTYPE: Mapping[str, int] = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}


def recognise(folder: Path, wish: GraphWish = ANY_GRAPH) -> Plan:
    """The plan for a folder, or for a file that is given in place of one.

    Of a folder with weights and graphs the weights are taken, unless the wish names a variant, or
    there is no PyTorch to read them.
    """
    plan = _recognised(folder, wish)
    try:
        if folder.is_file():
            check_is_fetched(folder.parent, [folder.name])
        elif folder.is_dir():
            names = names_in(folder) if plan.refusal else {file.name for file in plan.taken}
            check_is_fetched(folder, names)
    except CheckpointError as error:
        return replace(plan, refusal=str(error), way_out="", commands=())
    return plan


def _recognised(folder: Path, wish: GraphWish) -> Plan:
    if not folder.is_dir() and folder.suffix != SUFFIX:
        return Plan(folder, refusal=_why_no_folder(folder))
    try:
        gguf = gguf_at(folder)
        if gguf is not None:
            check_weights_meant(wish)
            return plan_of_gguf(folder, GgufFile(gguf))
    except CheckpointError as error:
        return Plan(folder, what=GGUF.what, refusal=str(error))
    names = names_in(folder)
    if is_repository(folder):
        return Plan(folder, REPOSITORY.name, REPOSITORY.what)
    if is_served_model(folder):
        return Plan(folder, REPOSITORY.name, "of a served model, as a model repository has it")
    if file_names.ADAPTER_CONFIG in names and not file_names.weights_in(names):
        return _of_adapter(folder, names)
    kind = foreign_kind(names)
    graphs = graphs_in(names, _place(folder)) if kind is None else []
    if graphs and takes_graphs(names, wish):
        return plan_of_graphs(folder, names, graphs, wish)
    if kind is not None:
        refusal = f"{folder} is a folder {kind.what}, not one of transformers"
        files = tuple(file_of(folder, name, NOT_READ) for name in shown_in(names, folder))
        return Plan(
            folder,
            what=kind.what,
            left_out=files,
            refusal=refusal,
            way_out=kind.way_out,
            commands=commands_of(kind, folder, names, name_of(folder.resolve().name)),
        )
    try:
        check_is_whole(folder, names)
        if not graphs:
            check_weights_meant(wish)
        plan = _of_transformers(folder, names)
        if is_encoder_decoder(graphs):
            return replace(plan, beside="its graphs in ONNX, of an encoder-decoder, are left out")
        variants = sorted({graph.variant for graph in graphs})
        beside = f"also there: {', '.join(variants)} (--variant)" * bool(variants)
        return replace(plan, variants=tuple(variants), beside=beside)
    except CheckpointError as error:
        return Plan(folder, what="of transformers", refusal=str(error))


def takes_graphs(names: Collection[str], wish: GraphWish) -> bool:
    """Whether graphs are taken of a folder that has some, in place of its weights."""
    is_named = wish.variant not in (None, WEIGHTS_VARIANT)
    is_free = wish.variant is None and not has_torch()
    return is_named or is_free or not is_complete(names)


def has_torch() -> bool:
    """Whether weights can be read here, rather than graphs alone."""
    return find_spec("torch") is not None


def _place(folder: Path) -> str:
    """The folder of the network within the whole, with a slash at its end."""
    try:
        inner = encoder_folder(folder)
    except CheckpointError:
        return ""
    return "" if inner == folder else f"{inner.relative_to(folder).as_posix()}/"


def _of_adapter(folder: Path, names: Collection[str]) -> Plan:
    stated = read_object(folder / file_names.ADAPTER_CONFIG)
    taken = {
        file_names.ADAPTER_CONFIG: "rank, targets and base",
        file_names.ADAPTER_WEIGHTS: WEIGHTS,
    }
    shown = shown_in(names, folder)
    return Plan(
        folder,
        ADAPTER.name,
        ADAPTER.what,
        taken=tuple(file_of(folder, name, taken) for name in shown if name in taken),
        left_out=tuple(file_of(folder, name, NOT_READ) for name in shown if name not in taken),
        commands=commands_of(ADAPTERS, folder, names, name_of(folder.resolve().name)),
        base=str(stated.get("base_model_name_or_path") or "not named"),
    )


def check_small_files(folder: Path) -> None:
    """Raise `CheckpointError` for a network that no import reads, before weights are fetched."""
    path = encoder_folder(folder) / file_names.CONFIG_FILE
    if path.is_file():
        values = read_object(path)
        if values.get("format") != OWN_FORMAT:
            _check_type(values, path, is_embedder=(folder / file_names.MODULES_FILE).is_file())


def is_repository(folder: Path) -> bool:
    """Whether the folders in it are models as `attendant export` writes them."""
    return any(
        is_served_model(path)
        for path in folder.iterdir()
        if path.is_dir() and not path.name.startswith(".")
    )


def is_served_model(folder: Path) -> bool:
    """Whether the folder is a model as `attendant export` writes it into a model repository."""
    return (folder / "config.pbtxt").is_file() or any(folder.glob("[1-9]*/model*.onnx"))


def _why_no_folder(path: Path) -> str:
    try:
        check_is_folder(path)
    except CheckpointError as error:
        return str(error)
    return f"there is no folder {path}{like_it(str(path))}"


def _of_transformers(folder: Path, names: Collection[str]) -> Plan:
    encoder = encoder_folder(folder)
    path = encoder / file_names.CONFIG_FILE
    values = config_of_mistral(folder) if is_of_mistral(names) else read_object(path)
    architecture = architecture_of(values)
    is_own = values.get("format") == OWN_FORMAT
    has_modules = file_names.MODULES_FILE in names
    if not is_own:
        _check_type(values, encoder / file_names.CONFIG_FILE, is_embedder=has_modules)
    of_library = TRACED if is_traced(values.get("model_type")) else TRANSFORMERS
    form = OWN if is_own else EMBEDDER if has_modules else of_library
    headers = dict(headers_of(encoder))
    shown = shown_in(names, folder)
    read = {str(path.relative_to(folder)) for path in _weight_files(encoder)}
    taken = [name for name in shown if name in read or (use_of(name, USES) and not is_weight(name))]
    files = [file_of(folder, name, USES) for name in taken]
    left_out = [file_of(folder, name, NOT_READ) for name in shown if name not in taken]
    stored: Counter[str] = Counter()
    rounding = None if is_own else rounding_of(values, encoder / file_names.CONFIG_FILE)
    num_rounded = 0
    for name, header in headers.items():
        inside = rounding.weights_in(name, header.dtype, header.num_values) if rounding else 0
        num_rounded += inside
        stored[rounding.title if rounding and inside else header.dtype] += (
            inside or header.num_values
        )
    num_bytes = sum(file.num_bytes for file in files if file.why == WEIGHTS)
    floats = sum(number for dtype, number in stored.items() if dtype in BYTES_BY_DTYPE)
    num_weights = floats + num_rounded
    task = str(values.get("task", "")) if is_own else task_of(architecture, folder, values)
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


def _check_type(values: Mapping[str, Any], path: Path, *, is_embedder: bool) -> None:
    """Raise `CheckpointError` for a network or a rounding that no import reads."""
    model_type = values.get("model_type")
    if is_traced(model_type):
        check_config(values, path, is_embedder=is_embedder)
    elif model_type not in known_types():
        raise unknown_type(model_type, path)
    rounding_of(values, path)


def headers_of(folder: Path) -> Iterator[tuple[str, TensorHeader]]:
    """Names and headers of all weights in safetensors files; none for those in .bin files."""
    for path in _weight_files(folder):
        if not path.is_file():
            raise CheckpointError(f"{path} is missing, which its index lists: copy it too")
        if path.suffix == ".safetensors":
            yield from read_headers(path).items()


def _weight_files(folder: Path) -> list[Path]:
    """The files of weights that are read, behind the list of parts where there is one."""
    name = file_names.weights_in({path.name for path in folder.iterdir()})
    files = [folder / name] if name else []
    return [*files, *(folder / part for path in files[:1] for part in _parts_in(path))]


def _parts_in(path: Path) -> list[str]:
    return parts_of(path) if path.suffix == ".json" else []
