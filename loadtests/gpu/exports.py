"""Exported models of every kind and precision, made once and shared by all sections and runs.

They are exported side by side in processes of their own: tracing takes seconds and one core. What
cannot be exported is kept with its reason, so that a section can say it. The folder is named after
the sources that exports depend on: after a change of the exporter everything is exported again.
docs/cuda.md says what was verified on CUDA.
"""

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch

from export.errors import ExportError
from export.exporter import export_any
from export.settings import ExportSettings, Target
from loadtests.gpu.checkpoints import FULL, KINDS, TASKS, TINY, Sizes, make_checkpoint
from loadtests.gpu.context import Context
from loadtests.gpu.sources import EXPORTING, digest_of
from models.checkpoints.checkpoint import Checkpoint
from models.errors import SettingError
from service.contract.manifest import Manifest, Precision
from service.contract.precision import HALF
from service.runtime.cpus import available_cpus

WHY_SUFFIX = ".txt"  # of the reason for which a model is not there
CACHED = (
    "decoder",
    "llama",
    "gemma",
    "encoder-decoder",
)  # kinds with a cache, which GroupQueryAttention keeps
PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16", "bf16")


@dataclass(frozen=True, slots=True)
class Model:
    """An exported model: a kind in a precision, served under its name."""

    kind: str
    precision: Precision
    repository: Path
    late: str = ""

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.precision}"

    @property
    def folder(self) -> Path:
        """The version's folder."""
        return self.repository / self.name / "1"

    @property
    def is_there(self) -> bool:
        return (self.folder / "manifest.json").is_file()

    @property
    def reason_file(self) -> Path:
        return self.repository / f".{self.name}{WHY_SUFFIX}"

    @property
    def reason(self) -> str:
        """The reason for which it is not there."""
        if self.late:
            return self.late
        return self.reason_file.read_text(encoding="utf-8") if self.reason_file.exists() else ""

    @property
    def manifest(self) -> Manifest:
        return Manifest.from_json((self.folder / "manifest.json").read_text(encoding="utf-8"))

    def graphs(self) -> list["Graph"]:
        """Its graphs in the precision, of each layout."""
        return [
            Graph(self, graph.layout, self.folder / name)
            for name, graph in self.manifest.graphs.items()
            if graph.precision == self.precision
        ]


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph of a model."""

    model: Model
    layout: str
    path: Path

    @property
    def name(self) -> str:
        return f"{self.model.name} {self.layout}".strip()

    def obstacle(self, device: str) -> str:
        """Why no device of that kind computes it; empty where one may."""
        if (device, self.layout) == ("cpu", "paged"):
            return "the CPU provider has no PagedAttention"
        if (device, self.layout, self.model.precision) == ("cuda", "", "fp32"):
            has_cache = self.model.kind in CACHED
            return "CUDA's GroupQueryAttention has no float32" if has_cache else ""
        return ""


def sizes_of(context: Context) -> Sizes:
    return TINY if context.is_tiny else FULL


def export_models(context: Context, wanted: Sequence[tuple[str, Precision]]) -> Iterator[Model]:
    """The models of these kinds and precisions in their order, each as soon as it is there.

    Those that are not there yet are exported. Where the time of the section ends before, the others
    are left: they have a reason that is not kept.
    """
    size = "tiny" if context.is_tiny else "full"
    repository = context.work / f"models-{size}-{digest_of(EXPORTING)}"
    repository.mkdir(parents=True, exist_ok=True)
    models = [Model(kind, precision, repository) for kind, precision in wanted]
    missing = [model for model in models if not model.is_there and not model.reason]
    if not missing:
        yield from models
        return
    num_workers = min(len(missing), available_cpus())
    context.say(f"exports {len(missing)} models, {num_workers} at a time")
    pool = ProcessPoolExecutor(
        num_workers,
        multiprocessing.get_context("forkserver"),
        # They are children of another process, and are to end with this one's group.
        initializer=os.setpgid,
        initargs=(0, os.getpgrp()),
    )
    try:
        exports = {model: pool.submit(export_model, model, sizes_of(context)) for model in missing}
        for model in models:
            yield _awaited(model, exports.get(model), context)
    finally:
        pool.shutdown(cancel_futures=True)


def _awaited(model: Model, export: "Future[None] | None", context: Context) -> Model:
    """A model once its export has ended, or without it where no time is left."""
    if export is None:
        return model
    try:
        export.result(max(0.0, context.left_s))
    except TimeoutError:
        return replace(model, late="no time was left to export it")
    context.say(f"exported {model.name}" if model.is_there else f"left out {model.name}")
    return model


def export_model(model: Model, sizes: Sizes) -> None:
    """Export one, or keep the reason for which the exporter refuses it."""
    torch.set_num_threads(1)  # there are others beside this one
    target: Target = "cuda" if model.precision in HALF else "cpu"
    settings = ExportSettings(
        model.name, model.repository, precision=model.precision, target=target
    )
    try:
        export_any(checkpoint_of(model.kind, sizes), settings, task=TASKS.get(model.kind))
    except (ExportError, SettingError) as error:
        model.reason_file.write_text(str(error), encoding="utf-8")


@cache
def checkpoint_of(kind: str, sizes: Sizes) -> Checkpoint:
    """The network that was exported, with its tokenizer; not to be changed."""
    return make_checkpoint(kind, sizes)


def all_kinds() -> tuple[str, ...]:
    return tuple(KINDS)
