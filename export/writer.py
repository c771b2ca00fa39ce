"""Put one version of a model into a repository, whole or not at all.

Everything is written into a hidden folder on the same file system and then renamed
into place: a failed export leaves the repository as it was, and a server that reads
it at any moment sees the old state or the new one.

The graphs of one export: `model.onnx`, and those of other precisions and layouts beside it.

The first must succeed. Each further one is written if it is accurate enough, and left
out with the reason otherwise.
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import onnx
from google.protobuf import text_format
from tokenizers import Tokenizer
from tritonclient.grpc.model_config_pb2 import ModelConfig

from export.errors import ExportError
from export.graphs.files import num_bytes, save, save_sharing
from export.settings import GraphKind
from models.writing import writing
from service.contract.manifest import MODEL_FILENAME, Manifest, Variant
from service.contract.model_config import parse_config
from service.errors import LoadError
from service.generation.decoders.adapter_buffers import ADAPTERS_SUFFIX
from service.generation.decoders.decoder import PREFILL_SUFFIX
from service.generation.decoders.encoder_decoder import ENCODER_FILENAME, ENCODER_SUFFIX
from service.serving.tasks.table import complete_config
from service.text.conversation import TOKENIZER_CONFIG

CONFIG_FILE, LABELS_FILE = "config.pbtxt", "labels.txt"


@dataclass(frozen=True, slots=True)
class Built:
    """A graph that was checked, and what was measured of it."""

    graph: onnx.ModelProto
    variant: Variant
    prefill: onnx.ModelProto | None = None  # of a decoder whose prompts have a graph of their own
    encoder: onnx.ModelProto | None = None  # of an encoder-decoder, whose graph writes
    adapted: onnx.ModelProto | None = None  # of a decoder that takes adapters


@dataclass(frozen=True, slots=True)
class BuiltGraphs:
    """All graphs of a version."""

    main: Built
    others: tuple[Built, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()  # by `Variant.kind`, and why

    def manifest_fields(self) -> dict[str, Any]:
        """The manifest's entries of graphs."""
        return {
            **asdict(self.main.variant),
            "variants": tuple(built.variant for built in self.others),
            "left_out": dict(self.left_out),
        }


def build_graphs(
    kinds: Sequence[GraphKind],
    build: Callable[[GraphKind], Built],
    check_cost: Callable[[Variant], None],
) -> BuiltGraphs:
    """Build each, or raise `ExportError` where the first is refused.

    `check_cost` raises it for one that was not requested by name and is too inaccurate.
    """
    main = build(kinds[0])
    others: list[Built] = []
    left_out: list[tuple[str, str]] = []
    for kind in kinds[1:]:
        try:
            built = build(kind)
            check_cost(built.variant)
        except ExportError as error:
            left_out.append((kind.name, str(error)))
        else:
            others.append(built)
    return BuiltGraphs(main, tuple(others), tuple(left_out))


@dataclass(frozen=True, slots=True)
class ExportedModel:
    """All that a version folder holds."""

    graph: onnx.ModelProto
    tokenizer: Tokenizer | None  # None: it reads no texts
    manifest: Manifest
    variants: tuple[Built, ...] = ()  # beside it; the manifest has them too
    encoder: onnx.ModelProto | None = None  # of an encoder-decoder, whose graph writes
    prefill: onnx.ModelProto | None = None  # as in `Built`
    adapted: onnx.ModelProto | None = None  # the same
    chat: Mapping[str, Any] = field(default_factory=dict)  # its templates, see `read_chat`
    config: ModelConfig | None = None  # for the server; None: it follows from the manifest
    data_files: tuple[Path, ...] = ()  # that `graph` names as they are, moved to it

    @property
    def num_bytes(self) -> int:
        """The size of the graphs, which are nearly all of an export."""
        graphs = [self.graph, self.encoder, self.prefill, self.adapted]
        for built in self.variants:
            graphs += [built.graph, built.prefill, built.encoder, built.adapted]
        return sum(num_bytes(graph) for graph in graphs if graph is not None)


def write_model(
    exported: ExportedModel, repository: Path, name: str, version: int | None, max_batch_size: int
) -> Path:
    """Write a version, the next free one if None; returns its folder.

    Raises `ExportError` where the model exists and is of another kind, and `OutputError` where
    there is no room for it, and then nothing is left of it.
    """
    target = repository / name
    number = choose_version(target, version)
    if target.exists():
        _check_fits(target, exported)
    staging = repository / f".{name}.{number}.writing"
    with writing(target / str(number), exported.num_bytes):
        shutil.rmtree(staging, ignore_errors=True)  # what a killed export left
        try:
            (staging / str(number)).mkdir(parents=True)
            _write_version(exported, staging / str(number))
            if target.exists():
                (staging / str(number)).rename(target / str(number))
            else:
                _write_model_files(exported, staging, name, max_batch_size)
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
    for file in exported.data_files:
        file.rename(folder / file.name)
    _write_graphs(folder / MODEL_FILENAME, exported.graph, exported.prefill, exported.adapted)
    for built in exported.variants:
        path = folder / built.variant.filename
        _write_graphs(path, built.graph, built.prefill, built.adapted)
        if built.encoder is not None:
            save(built.encoder, path.with_suffix(ENCODER_SUFFIX))
    if exported.encoder is not None:
        save(exported.encoder, folder / ENCODER_FILENAME)
    if exported.tokenizer is not None:
        text = exported.tokenizer.to_str(pretty=True)  # `save` has errors of its own
        (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    if exported.chat:
        text = json.dumps(exported.chat, indent=2, ensure_ascii=False) + "\n"
        (folder / TOKENIZER_CONFIG).write_text(text, encoding="utf-8")
    (folder / "manifest.json").write_text(exported.manifest.to_json(), encoding="utf-8")


def _write_graphs(
    path: Path,
    graph: onnx.ModelProto,
    prefill: onnx.ModelProto | None,
    adapted: onnx.ModelProto | None,
) -> None:
    beside = {PREFILL_SUFFIX: prefill, ADAPTERS_SUFFIX: adapted}
    others = {path.with_suffix(end): other for end, other in beside.items() if other is not None}
    if others:
        save_sharing({path: graph, **others}, path)
    else:
        save(graph, path)


def adapted_beside(graph: Path) -> Path | None:
    """The graph with adapters beside a graph that was written; None where there is none."""
    path = graph.with_suffix(ADAPTERS_SUFFIX)
    return path if path.is_file() else None


def _write_model_files(
    exported: ExportedModel, folder: Path, name: str, max_batch_size: int
) -> None:
    manifest = exported.manifest
    config = exported.config or _config_of(manifest, name, max_batch_size)
    text = text_format.MessageToString(config)
    (folder / CONFIG_FILE).write_text(text, encoding="utf-8")
    if manifest.labels:
        (folder / LABELS_FILE).write_text(_lines(manifest.labels), encoding="utf-8")


def _config_of(manifest: Manifest, name: str, max_batch_size: int) -> ModelConfig:
    config = complete_config(ModelConfig(name=name), manifest, max_batch_size)
    config.ClearField("instance_group")  # the server knows its machine
    for output in config.output:
        if output.name == ("label" if manifest.image is None else "logits"):
            output.label_filename = LABELS_FILE
    return config


def _check_fits(target: Path, exported: ExportedModel) -> None:
    """A new version must fit the configuration and the labels that its model has."""
    path, labels, manifest = target / CONFIG_FILE, target / LABELS_FILE, exported.manifest
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    try:
        config = parse_config(text, target.name)
        if exported.config is None:
            complete_config(config, manifest, default_rows=1)
    except LoadError as error:
        raise _misfit(target.name, str(error)) from error
    if exported.config is not None:
        _check_tensors(target.name, config, exported.config)
    if labels.exists() and labels.read_text(encoding="utf-8") != _lines(manifest.labels):
        raise _misfit(target.name, f"its labels are {manifest.labels}, {LABELS_FILE} has others")


def _check_tensors(name: str, stated: ModelConfig, config: ModelConfig) -> None:
    """A new version must have the tensors that its model has."""
    for side in ("input", "output"):
        for tensor in getattr(stated, side):
            if tensor not in getattr(config, side):
                raise _misfit(name, f"its {side} '{tensor.name}' is another, or there is none")


def _misfit(name: str, why: str) -> ExportError:
    return ExportError(
        f"the new version does not fit '{name}': {why}; export it under another --name, or remove "
        f"the folder '{name}' first"
    )


def _lines(labels: Sequence[str]) -> str:
    return "".join(f"{label}\n" for label in labels)
