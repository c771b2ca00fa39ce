"""Read the maps behind the pooling of a sentence-transformers folder, each with its weights.

Dense and LayerNorm are folders of a config.json and a file of weights; Dropout does nothing where
nothing is trained. Knows nothing about encoders.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from models.checkpoints.ways_out import ELSEWHERE
from models.checkpoints.weights import WEIGHTS_FILE, assign_weights, build_on_meta, read_tensors
from models.errors import CheckpointError, SettingError, shown
from models.json_files import check_known, check_whole, fields_of, read_object
from models.networks.decoder_readers import DecoderEmbedder
from models.networks.heads import TextEmbedder
from models.networks.vector_maps import MAX_SIZE, DenseMap, VectorMap, VectorMaps, VectorNorm

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
Embedder = TypeVar("Embedder", TextEmbedder, DecoderEmbedder)
Step = tuple[str, Path]  # the name of a module's class, and its folder


def with_maps(embedder: Embedder, steps: Sequence[Step], path: Path) -> Embedder:
    """The embedder with the maps of these steps; `path` is that of what lists them."""
    maps = [each for step in steps if (each := _read_map(*step)) is not None]
    with fields_of(path, {}):
        embedder.maps = VectorMaps(maps)
        embedder.maps.output_size(embedder.pooled_size)
    return embedder


def check_normalize(folder: Path) -> None:
    """Raise `CheckpointError` where a Normalize is of anything but the vector of a text."""
    path = folder / CONFIG_FILE
    _check_vector(read_object(path, optional=True), path)


def _read_map(name: str, folder: Path) -> VectorMap | None:
    path = folder / CONFIG_FILE
    if name == DROPOUT:
        return None
    with fields_of(path, read_object(path)) as values:
        check_known(
            values, (*VECTOR_NAMES, *(DENSE_FIELDS if name == DENSE else NORM_FIELDS)), path
        )
        _check_vector(values, path)
        read: VectorMap = _dense(values, path) if name == DENSE else _norm(values)
    assign_weights(read, read_tensors(folder / WEIGHTS_FILE), folder / WEIGHTS_FILE)
    return read


def _norm(values: Any) -> VectorNorm:  # noqa: ANN401 - a JSON object
    size = check_whole("dimension", values["dimension"], 1, MAX_SIZE)
    return build_on_meta(lambda: VectorNorm(size))


def _dense(values: Any, path: Path) -> DenseMap:  # noqa: ANN401 - a JSON object
    input_size, output_size = (
        check_whole(name, values[name], 1, MAX_SIZE) for name in ("in_features", "out_features")
    )
    activation = _activation(str(values.get("activation_function", "torch.nn.Tanh")), path)
    bias, has_residual = values.get("bias", True), values.get("use_residual", False)
    for name, value in (("bias", bias), ("use_residual", has_residual)):
        if not isinstance(value, bool):
            raise SettingError(name, value, "true or false")
    return build_on_meta(
        lambda: DenseMap(input_size, output_size, activation, bias=bias, has_residual=has_residual)
    )


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
