"""Exported models: those whose outputs are checked, and the shapes whose speed is measured.

They are made by processes beside the sections, side by side, the most valuable first, and shared by
all sections and runs. A section takes models as they come. What cannot be exported is kept with its
reason. The folder is named after the sources that exports depend on: after a change of the exporter
everything is exported again. docs/how-to/cuda.md says what was verified on CUDA.
"""

import json
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch

from export.errors import ExportError
from export.exporter import export_any
from export.settings import ExportSettings
from loadtests.compare.devices.shapes import Graph, build, graphs_of
from loadtests.gpu.context import Context, Run, write_json
from loadtests.gpu.kinds import KINDS, MOST_USED, SERVED, checkpoint_of
from loadtests.gpu.sources import EXPORTING, digest_of
from models.errors import SettingError
from service.contract.precision import HALF
from service.runtime.cpus import available_cpus

Wide = Literal["fp32", "fp16", "bf16", ""]
Wanted: TypeAlias = tuple[str, Wide]
POLL_S, MAX_REASON = 0.1, 500
PRIORITY = (2, 3, 9, 6, 7, 8, 5, 4, 10)  # sections by when their models are exported


@dataclass(frozen=True, slots=True)
class Model:
    """An exported model: a kind in a precision, or a shape in all that are timed."""

    kind: str
    precision: Wide
    repository: Path

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.precision}" if self.precision else self.kind

    @property
    def folder(self) -> Path:
        """The version's folder."""
        return self.repository / self.name / "1"

    @property
    def note(self) -> Path:
        """The file that says how its export ended, and how long it took."""
        return self.repository / f".{self.name}.json"

    @property
    def is_over(self) -> bool:
        return self.note.exists()

    def noted(self, key: str) -> Any:
        """How its export ended: `problem` and `refusal`, empty where it is there, and `seconds`."""
        return json.loads(self.note.read_text())[key]

    def graphs(self) -> list[Graph]:
        """Its graphs in its precision, of each layout."""
        return [each for each in graphs_of(self.folder) if self.precision in ("", each.precision)]


def models_of(run: Run, *wanted: Wanted) -> list[Model]:
    """The models of kinds in precisions, and of shapes, whether or not they are there."""
    size = "tiny" if run.is_tiny else "full"
    repository = run.work / f"models-{size}-{run.device}-{digest_of(EXPORTING)}"
    return [Model(*each, repository) for each in wanted]


def as_they_come(context: Context, models: Sequence[Model]) -> Iterator[Model]:
    """Models as their exports end, whatever the order; what is late is left out with its reason."""
    left = list(models)
    while left:
        if ready := next((each for each in left if each.is_over), None):
            left.remove(ready)
            if problem := ready.noted("problem"):
                context.check(f"{ready.name} is exported", False, problem)
            elif refusal := ready.noted("refusal"):
                context.leave_out(f"{ready.name} is not exported: {refusal}")
            else:
                yield ready
        elif context.is_over:
            names = ", ".join(each.name for each in left)
            context.leave_out(f"{names}: no time was left to wait for the export")
            return
        else:
            with context.parts.timed("waiting for exports"):
                time.sleep(POLL_S)


def graphs_as_they_come(
    context: Context, models: Sequence[Model]
) -> Iterator[tuple[Model, Graph, str]]:
    """The graphs of models with their names; those for which no time is left are left out."""
    for model in as_they_come(context, models):
        for graph in model.graphs():
            name = ", ".join(filter(None, (model.name, graph.layout)))
            if context.is_over:
                context.leave_out(f"{name}: no time was left")
            else:
                yield model, graph, name


def prepare(run: Run, numbers: Sequence[int]) -> None:
    """Export all that sections need, side by side, the most valuable first."""
    left = [each for each in needed(run, numbers) if not each.is_over]
    running: dict[Model, BaseProcess] = {}
    forks = multiprocessing.get_context("fork")  # in this process group, so that they end with it
    while left or running:
        while left and len(running) < max(1, available_cpus() - 1):
            model = left.pop(0)
            model.repository.mkdir(parents=True, exist_ok=True)
            running[model] = forks.Process(target=export, args=(model, run))
            running[model].start()
        for model, process in list(running.items()):
            if not process.is_alive():
                del running[model]
                if not model.is_over:
                    _note(model, f"its process ended with {process.exitcode}", 0.0)
        time.sleep(POLL_S)


def needed(run: Run, numbers: Sequence[int]) -> list[Model]:
    """The models of these sections."""
    models = [model for number in PRIORITY if number in numbers for model in wanted(run, number)]
    return list(dict.fromkeys(models))


def wanted(run: Run, number: int) -> list[Model]:
    """The models of a section, whether or not they are there.

    Section 4 compares the kinds behind the most used ones, then all in bf16. What is left for
    section 10 is float32 on a GPU, and half precision on a CPU, as far as it is there.
    """
    served: list[Wanted] = [(kind, run.precision) for kind in SERVED]
    shapes: list[Wanted] = [(shape, "") for shape in run.shapes]
    halves: list[Wanted] = [] if run.device == "cpu" else [(kind, "bf16") for kind in KINDS]
    rest: list[Wanted] = [("classification", "fp16"), ("decoder", "fp16")]
    if run.device == "cuda":
        rest = [(name, "fp32") for name, each in KINDS.items() if not each.obstacle("cuda", "fp32")]
    by_section: dict[int, list[Wanted]] = {
        2: [(kind, run.precision) for kind in MOST_USED],
        4: [*((kind, run.precision) for kind in KINDS if kind not in MOST_USED), *halves],
        5: [*served, *(each for each in halves if each[0] in SERVED)],
        **dict.fromkeys((3, 9), served),
        **dict.fromkeys((6, 7, 8), shapes),
        10: rest,
    }
    return models_of(run, *by_section.get(number, []))


def export(model: Model, run: Run) -> None:
    """Export one, and note how that ended."""
    torch.set_num_threads(1)  # there are others beside this one
    started_s, problem, refusal = time.monotonic(), "", ""
    name, repository, precision = model.name, model.repository, model.precision
    try:
        if precision:
            kind, target = KINDS[model.kind], "cuda" if precision in HALF else "cpu"
            settings = ExportSettings(name, repository, precision=precision, target=target)  # type: ignore[arg-type]
            export_any(checkpoint_of(model.kind, is_tiny=run.is_tiny), settings, task=kind.task)
        else:
            build(repository, name, run.device)
    except (ExportError, SettingError) as error:
        refusal = str(error)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"[:MAX_REASON]
    _note(model, problem, time.monotonic() - started_s, refusal)


def _note(model: Model, problem: str, seconds: float, refusal: str = "") -> None:
    said = {"problem": problem, "refusal": refusal, "seconds": round(seconds, 1)}
    write_json(model.note, said)
