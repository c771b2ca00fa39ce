"""Put one version of a model into a repository, whole or not at all.

Everything is written into a hidden folder on the same file system and then renamed
into place: a failed export leaves the repository as it was, and a server that reads
it at any moment sees the old state or the new one.

The graphs of one export: `model.onnx`, and those of other precisions beside it.

The first precision must succeed. Each further one is written if it is accurate enough, and left
out with the reason otherwise.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnx
from google.protobuf import text_format
from tokenizers import Tokenizer
from tritonclient.grpc.model_config_pb2 import ModelConfig

from export.errors import ExportError
from models.writing import writing
from service.contract.manifest import MODEL_FILENAME, Manifest, Precision, Variant
from service.contract.model_config import parse_config
from service.errors import LoadError
from service.generation.decoder import PREFILL_SUFFIX
from service.generation.encoder_decoder import ENCODER_FILENAME
from service.serving.tasks.table import complete_config


@dataclass(frozen=True, slots=True)
class Built:
    """A graph that was checked, and what was measured of it."""

    graph: onnx.ModelProto
    variant: Variant
    prefill: onnx.ModelProto | None = None  # of a decoder whose prompts have a graph of their own


@dataclass(frozen=True, slots=True)
class BuiltGraphs:
    """All graphs of a version."""

    main: Built
    others: tuple[Built, ...] = ()
    left_out: tuple[tuple[Precision, str], ...] = ()  # and why

    def manifest_fields(self) -> dict[str, Any]:
        """The manifest's entries of graphs."""
        return {
            **asdict(self.main.variant),
            "variants": tuple(built.variant for built in self.others),
            "left_out": dict(self.left_out),
        }


def build_graphs(
    precisions: Sequence[Precision],
    build: Callable[[Precision], Built],
    check_cost: Callable[[Variant], None],
) -> BuiltGraphs:
    """Build each, or raise `ExportError` where the first is refused.

    `check_cost` raises it for one that was not requested by name and is too inaccurate.
    """
    main = build(precisions[0])
    others: list[Built] = []
    left_out: list[tuple[Precision, str]] = []
    for precision in precisions[1:]:
        try:
            built = build(precision)
            check_cost(built.variant)
        except ExportError as error:
            left_out.append((precision, str(error)))
        else:
            others.append(built)
    return BuiltGraphs(main, tuple(others), tuple(left_out))


LABELS_FILE = "labels.txt"


@dataclass(frozen=True, slots=True)
class ExportedModel:
    """All that a version folder holds."""

    graph: onnx.ModelProto
    tokenizer: Tokenizer | None  # None: it reads no texts
    manifest: Manifest
    variants: tuple[Built, ...] = ()  # beside it; the manifest has them too
    encoder: onnx.ModelProto | None = None  # of an encoder-decoder, whose graph writes
    prefill: onnx.ModelProto | None = None  # as in `Built`

    @property
    def num_bytes(self) -> int:
        """The size of the graphs, which are nearly all of an export."""
        graphs = [self.graph, self.encoder, self.prefill]
        graphs += [graph for built in self.variants for graph in (built.graph, built.prefill)]
        return sum(graph.ByteSize() for graph in graphs if graph is not None)


def write_model(
    exported: ExportedModel, repository: Path, name: str, version: int | None, max_batch_size: int
) -> Path:
    """Write a version, the next free one if None; returns its folder."""
    return place_version(
        repository / name,
        version,
        exported.num_bytes,
        lambda folder: _write_version(exported, folder),
        lambda folder: _write_model_files(exported.manifest, folder, name, max_batch_size),
        lambda target: _check_fits(target, exported.manifest),
    )


def place_version(
    target: Path,
    version: int | None,
    num_bytes: int,
    write_version: Callable[[Path], None],
    write_model_files: Callable[[Path], None],
    check_fits: Callable[[Path], None],
) -> Path:
    """Write a version into a model's folder, and what lies beside it if the model is new.

    Each is given the folder to write into; `check_fits` is given the folder of a model that exists,
    and refuses a version that is none of its kind. `num_bytes` is about how much will be written.
    Raises `OutputError` where there is no room for it, and then nothing is left of it.
    """
    name, repository = target.name, target.parent
    number = choose_version(target, version)
    if target.exists():
        check_fits(target)
    staging = repository / f".{name}.{number}.writing"
    with writing(target / str(number), num_bytes):
        shutil.rmtree(staging, ignore_errors=True)  # what a killed export left
        try:
            (staging / str(number)).mkdir(parents=True)
            write_version(staging / str(number))
            if target.exists():
                (staging / str(number)).rename(target / str(number))
            else:
                write_model_files(staging)
                staging.rename(target)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    return target / str(number)


def choose_version(target: Path, version: int | None) -> int:
    """The version to write: the requested one, if it is free, or the next after the highest."""
    taken = [int(path.name) for path in target.glob("*") if path.name.isdecimal()]
    if version is None:
        return max(taken, default=0) + 1
    if version in taken:
        raise ExportError(f"version {version} of '{target.name}' exists; taken: {sorted(taken)}")
    return version


def _write_version(exported: ExportedModel, folder: Path) -> None:
    _write_graphs(exported.graph, exported.prefill, folder / MODEL_FILENAME)
    for built in exported.variants:
        _write_graphs(built.graph, built.prefill, folder / built.variant.filename)
    if exported.encoder is not None:
        onnx.save(exported.encoder, folder / ENCODER_FILENAME)
    if exported.tokenizer is not None:
        save_tokenizer(exported.tokenizer, folder / "tokenizer.json")
    (folder / "manifest.json").write_text(exported.manifest.to_json(), encoding="utf-8")


def save_tokenizer(tokenizer: Tokenizer, path: Path) -> None:
    """Like `tokenizer.save`, with its errors as OSError."""
    path.write_text(tokenizer.to_str(pretty=True), encoding="utf-8")


def _write_graphs(graph: onnx.ModelProto, prefill: onnx.ModelProto | None, path: Path) -> None:
    onnx.save(graph, path)
    if prefill is not None:
        onnx.save(prefill, path.with_suffix(PREFILL_SUFFIX))


def _write_model_files(manifest: Manifest, folder: Path, name: str, max_batch_size: int) -> None:
    config = complete_config(ModelConfig(name=name), manifest, max_batch_size)
    config.ClearField("instance_group")  # the server knows its machine
    for output in config.output:
        if output.name == ("label" if manifest.image is None else "logits"):
            output.label_filename = LABELS_FILE
    text = text_format.MessageToString(config)
    (folder / "config.pbtxt").write_text(text, encoding="utf-8")
    if manifest.labels:
        (folder / LABELS_FILE).write_text(_lines(manifest.labels), encoding="utf-8")


def _check_fits(target: Path, manifest: Manifest) -> None:
    """A new version must fit the configuration and the labels that its model has."""
    path, labels = target / "config.pbtxt", target / LABELS_FILE
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    try:
        config = parse_config(text, target.name)
        complete_config(config, manifest, default_rows=1)
    except LoadError as error:
        raise ExportError(f"the new version does not fit '{target.name}': {error}") from error
    if labels.exists() and labels.read_text(encoding="utf-8") != _lines(manifest.labels):
        raise ExportError(
            f"the new version does not fit '{target.name}': its labels are {manifest.labels}, "
            f"{LABELS_FILE} has others"
        )


def _lines(labels: Sequence[str]) -> str:
    return "".join(f"{label}\n" for label in labels)
