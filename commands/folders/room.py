"""Room for a first start, checked before anything is fetched, read or written.

That is libraries, disk and memory. A line says the plan and its cost; a refusal names a way out.
Imports no PyTorch.
docs/how-to/cuda.md says what was verified on CUDA.
"""

from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from commands.folders.cache import Cache
from commands.folders.cost import (
    Cost,
    ExportTarget,
    free_disk,
    free_memory,
    remark_of,
)
from commands.folders.explanation import install_of
from commands.folders.reports import Reports
from commands.folders.running import PreparationError
from commands.folders.sources import Source
from models.checkpoints.folder_plan import ONNX, Plan
from models.checkpoints.graph_files import GraphWish
from models.checkpoints.plan import recognise
from models.errors import OutputError
from models.writing import amount

if TYPE_CHECKING:
    from models.checkpoints.outline import Outline

SMALLER = ("int8", "int4-weights")  # precisions that are named where another takes too much memory


def check_outline(
    source: Source,
    outline: "Outline",
    wish: GraphWish,
    target: ExportTarget,
    cache: Cache,
    reports: Reports,
) -> int:
    """Bytes to fetch of a repository. Raises as `check_room`, and where no import reads it."""
    plan = recognise(outline.folder, wish)
    refusal = plan.refusal.replace(str(outline.folder), source.where)
    replace(plan, refusal=refusal).check()
    to_fetch = outline.num_missing_bytes(file.name for file in plan.taken)
    free = free_disk(outline.snapshot)
    if to_fetch > free:
        raise OutputError(
            f"{source.where} has {amount(to_fetch)} to fetch, and {amount(free)} are free where "
            "the hub's cache is: make room, or name another disk by HF_HOME"
        )
    check_room(source, plan, target, cache, reports, to_fetch)
    return to_fetch


def check_room(
    source: Source,
    plan: Plan,
    target: ExportTarget,
    cache: Cache,
    reports: Reports,
    to_fetch: int = 0,
) -> None:
    """Say the plan. Raises where a library, disk or memory is missing, before anything is made."""
    missing = [name for name in plan.needs if find_spec(name) is None]
    if missing:
        raise PreparationError(
            f"the first start of {source.where} needs {', '.join(missing)}, to make its graph: "
            f"{install_of(plan)}; later starts, and serving, do not need it"
        )
    cost = target.cost(plan)
    cache.check_room(cost.disk_bytes + cost.making_bytes, source.name)
    what = plan.architecture or plan.model_type
    fetched = f", {amount(to_fetch)} to fetch" if to_fetch else ""
    if plan.form == ONNX.name:
        others = ", ".join(plan.variants)
        reports.say(
            f"{source.name}: {plan.graph} ({plan.precision}, {amount(plan.num_bytes)}) of a folder "
            f"{plan.what}{f', {what}' if what else ''}{fetched}; "
            f"also there: {others or 'none'} (--variant)"
        )
    else:
        reports.say(
            f"{source.name}: a folder {plan.what}, {what}, "
            f"{amount(plan.num_bytes)} of weights{fetched}; the export takes about "
            f"{cost.seconds:.0f} s, {amount(cost.export_memory_bytes)} of memory and "
            f"{amount(cost.disk_bytes)} of disk" + f"; {plan.beside}" * bool(plan.beside)
        )
    if remark := remark_of(plan, cost, target.device):
        reports.say(f"{source.name}: warning: {remark}")
    if target.device == "cpu":  # on a GPU, weights are in its memory
        _check_memory(source, plan, cost, reports)


def _check_memory(source: Source, plan: Plan, cost: Cost, reports: Reports) -> None:
    """Refuse a model that cannot be served here, and warn of one whose export may not fit."""
    free = free_memory()
    if cost.serve_memory_bytes > free:
        smaller = [ExportTarget(precision).cost(plan) for precision in SMALLER]
        fitting = [each for each in smaller if plan.num_weights and each.serve_memory_bytes <= free]
        way_out = "serve it on a machine with more memory"
        if fitting:
            needed = amount(fitting[0].serve_memory_bytes)
            way_out = f"--precision {fitting[0].precision} takes about {needed}"
        raise PreparationError(
            f"{source.name} takes about {amount(cost.serve_memory_bytes)} of memory in "
            f"{cost.precision}, and {amount(free)} are free: {way_out}"
        )
    if cost.export_memory_bytes > free:
        reports.say(
            f"{source.name}: warning: {amount(free)} of memory are free, so the export may fail: "
            "export it on a larger machine (attendant import, attendant export), and serve the "
            "model repository here"
        )
