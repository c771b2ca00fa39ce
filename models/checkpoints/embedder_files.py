"""The small files of an embedder's folder: steps behind the pooling, and those of term weights.

Imports no PyTorch: a graph in ONNX is given these steps without it. Knows nothing about weights.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.checkpoints import file_names
from models.checkpoints.ways_out import ELSEWHERE
from models.choices import MAX_VECTOR_SIZE, TERM_POOLINGS, TERM_WEIGHTS
from models.errors import CheckpointError, SettingError, check_choice, shown
from models.json_files import check_known, check_whole, fields_of, read_object

CONFIG_FILE = "config.json"
DENSE, LAYER_NORM, DROPOUT, NORMALIZE = "Dense", "LayerNorm", "Dropout", "Normalize"
TEXT_VECTOR = "sentence_embedding"  # what a module reads and writes, unless it says otherwise
VECTOR_NAMES = ("module_input_name", "module_output_name")
DENSE_FIELDS = ("in_features", "out_features", "bias", "activation_function", "use_residual")
NORM_FIELDS = ("dimension",)
ACTIVATION_CLASSES = {  # of torch.nn, made without arguments
    "Identity": "identity",
    "Tanh": "tanh",
    "Sigmoid": "sigmoid",
    "GELU": "gelu",
    "ReLU": "relu",
    "SiLU": "silu",
}
Step = tuple[str, Path]  # the name of a module's class, and its folder


@dataclass(frozen=True, slots=True)
class TermPooling:
    """Pooling of logits of words to weights of words."""

    pooling: str  # over tokens
    weights: str  # of logits

    @classmethod
    def read(cls, path: Path) -> "TermPooling":
        """The choices in the config.json of a SpladePooling; raises CheckpointError."""
        with fields_of(path, read_object(path)) as values:
            pooling = str(values.get("pooling_strategy", "max"))
            weights = str(values.get("activation_function", "relu"))
            check_choice("pooling_strategy", pooling, TERM_POOLINGS)
            check_choice("activation_function", weights, TERM_WEIGHTS)
        return cls(pooling, weights)


@dataclass(frozen=True, slots=True)
class DenseStep:
    """A linear map and an activation, to which what went in may be added."""

    input_size: int
    output_size: int
    activation: str
    bias: bool
    has_residual: bool


@dataclass(frozen=True, slots=True)
class NormStep:
    """A layer norm of a vector's values."""

    size: int


def has_three_ways(folder: Path) -> bool:
    """Whether both of BGE-M3's files are there; raises CheckpointError for one of them alone."""
    there = [name for name in file_names.HEAD_FILES if (folder / name).is_file()]
    if len(there) == 1:
        (missing,) = set(file_names.HEAD_FILES) - set(there)
        raise CheckpointError(
            f"{folder} has {there[0]}, which {missing} belongs to: copy that too, or remove "
            f"{there[0]} for an embedder of one vector per text"
        )
    return bool(there)


def check_normalize(folder: Path) -> None:
    """Raise `CheckpointError` where a Normalize is of anything but the vector of a text."""
    path = folder / CONFIG_FILE
    _check_vector(read_object(path, optional=True), path)


def read_step(name: str, folder: Path) -> DenseStep | NormStep | None:
    """The step of a module's class and folder; None for one that does nothing."""
    path = folder / CONFIG_FILE
    if name == DROPOUT:
        return None
    with fields_of(path, read_object(path)) as values:
        check_known(
            values, (*VECTOR_NAMES, *(DENSE_FIELDS if name == DENSE else NORM_FIELDS)), path
        )
        _check_vector(values, path)
        return _dense(values, path) if name == DENSE else _norm(values)


def _norm(values: Any) -> NormStep:  # noqa: ANN401 - a JSON object
    return NormStep(check_whole("dimension", values["dimension"], 1, MAX_VECTOR_SIZE))


def _dense(values: Any, path: Path) -> DenseStep:  # noqa: ANN401 - a JSON object
    input_size, output_size = (
        check_whole(name, values[name], 1, MAX_VECTOR_SIZE)
        for name in ("in_features", "out_features")
    )
    activation = _activation(str(values.get("activation_function", "torch.nn.Tanh")), path)
    bias, has_residual = values.get("bias", True), values.get("use_residual", False)
    for name, value in (("bias", bias), ("use_residual", has_residual)):
        if not isinstance(value, bool):
            raise SettingError(name, value, "true or false")
    return DenseStep(input_size, output_size, activation, bias, has_residual)


def _activation(spelt: str, path: Path) -> str:
    root, _, name = spelt.rpartition(".")
    if root.partition(".")[0] != "torch" or name not in ACTIVATION_CLASSES:
        known = ", ".join(f"torch.nn.{each}" for each in ACTIVATION_CLASSES)
        raise CheckpointError(
            f"{path}: activation_function is {shown(spelt)}, but must be one of {known}: "
            f"{ELSEWHERE}"
        )
    return ACTIVATION_CLASSES[name]


def _check_vector(values: Any, path: Path) -> None:  # noqa: ANN401 - a JSON object
    for name in VECTOR_NAMES:
        value = values.get(name)
        if value not in (None, TEXT_VECTOR):
            raise CheckpointError(
                f"{path}: {name} is {shown(value)}, but only {TEXT_VECTOR!r}, the vector of a "
                f"text, is supported: {ELSEWHERE}"
            )
