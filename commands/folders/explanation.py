"""The page of `attendant explain`: what a folder is, what is taken of it, and what that costs here.

Knows nothing about flags. PyTorch is imported where it is installed, for what only the import's own
code knows; without it the page says that.
docs/how-to/cuda.md says what was verified on CUDA.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from commands.folders.cost import Cost, ExportTarget, free_disk, free_memory, remark_of
from commands.folders.details import Details
from models.checkpoints.folder_files import File
from models.checkpoints.folder_plan import ADAPTER, ONNX, REPOSITORY, Plan
from models.checkpoints.plan import BYTES_BY_DTYPE
from models.recipes.import_settings import ImportSettings
from models.writing import amount

if TYPE_CHECKING:
    from models.checkpoints.outline import Outline

INSTALL = "pip install 'attendant[cpu,train]'"
INSTALL_ONNX = "pip install onnx safetensors"
WHOLE_NUMBERS = ("I8", "I32", "I64", "U8", "U32", "BOOL")  # types of parts of rounded weights
MAX_FILES = 20  # of a list of files; the others are counted
MAX_LABELS = 8


@dataclass(frozen=True, slots=True)
class Explanation:
    """All that is known of a folder before it is imported."""

    source: str  # as it was given
    plan: Plan
    cost: Cost
    free_memory_bytes: int
    free_disk_bytes: int
    # None without PyTorch, where the plan refuses already, and where weights would be read.
    details: Details | None = None
    download_bytes: int = 0  # of files that are not in the hub's cache
    serve_flags: str = ""  # that were given, before each a space; the import's among them
    import_flags: str = ""

    def told_by(self, given: Mapping[str, str], of_import: Collection[str]) -> "Explanation":
        """The explanation whose commands have the flags that were given."""
        importing = [flag for name, flag in given.items() if name in of_import]
        return replace(
            self,
            serve_flags="".join(f" {flag}" for flag in given.values()),
            import_flags="".join(f" {flag}" for flag in importing),
        )

    def of_outline(self, hub_id: str, outline: "Outline") -> "Explanation":
        """The explanation of a repository whose weights are not here, named by its id."""

        def named(text: str) -> str:
            return text.replace(str(outline.folder), hub_id)

        plan, details = self.plan, self.details
        if details is not None:
            remarks = tuple(map(named, details.remarks))
            details = replace(details, refusal=named(details.refusal), remarks=remarks)
        return replace(
            self,
            plan=replace(plan, folder=Path(hub_id), refusal=named(plan.refusal)),
            details=details,
            download_bytes=outline.num_missing_bytes(file.name for file in plan.taken),
        )

    @property
    def refusal(self) -> str:
        return self.plan.refusal or (self.details.refusal if self.details else "")

    @property
    def missing(self) -> list[str]:
        """Libraries that the first start needs and this machine has not."""
        return [name for name in self.plan.needs if find_spec(name) is None]

    def commands(self) -> list[str]:
        """The lines to serve the folder by, in one step and in three, or those of a way out."""
        if self.refusal or self.plan.form == ADAPTER.name:
            return list(self.plan.commands)
        source = quote(self.source)
        if self.plan.form in (REPOSITORY.name, ONNX.name):
            return [f"attendant serve {source}{self.serve_flags}"]
        checkpoint, name = f"build/checkpoints/{self.plan.name}", self.plan.name
        return [
            f"attendant serve {source}{self.serve_flags}",
            f"attendant import {source} {checkpoint}{self.import_flags}",
            f"attendant export {checkpoint} --name {name} --precision {self.cost.precision}",
            "attendant serve",
        ]

    def to_dict(self) -> dict[str, Any]:
        """The page for programs."""
        plan = asdict(self.plan) | {"folder": str(self.plan.folder), "name": self.plan.name}
        return {
            "source": self.source,
            **plan,
            "refusal": self.refusal,
            "details": asdict(self.details) if self.details else None,
            "cost": asdict(self.cost),
            "download_bytes": self.download_bytes,
            "free_memory_bytes": self.free_memory_bytes,
            "free_disk_bytes": self.free_disk_bytes,
            "missing": self.missing,
            "commands": self.commands(),
        }


def explain(
    source: str,
    plan: Plan,
    settings: ImportSettings,
    precision: str,
    cache: Path,
    *,
    has_values: bool = True,
) -> Explanation:
    """The explanation of a folder whose graph would be of that precision, kept in `cache`.

    Without values, as in an outline, the import's code is asked where it needs headers alone.
    """
    details = None
    is_readable = has_values or _is_read_by_headers(plan)
    has_libraries = all(find_spec(name) for name in plan.needs)
    if not plan.refusal and plan.needs and has_libraries and is_readable:
        details = _details(plan, settings)
    cost = ExportTarget(precision).cost(plan, details.num_weights if details else 0)
    return Explanation(source, plan, cost, free_memory(), free_disk(cache), details)


def _is_read_by_headers(plan: Plan) -> bool:
    """Whether all weights are floats in safetensors; small tensors of others are read."""
    is_float = bool(plan.stored_as) and set(plan.stored_as) <= set(BYTES_BY_DTYPE)
    return is_float and not any(file.name.endswith((".bin", ".pt")) for file in plan.taken)


def _details(plan: Plan, settings: ImportSettings) -> Details:
    if plan.form == ONNX.name:
        from commands.folders.onnx_reading import look_at_graph

        return look_at_graph(plan, settings)
    from commands.folders.closer_look import look_closer

    return look_closer(plan.folder, settings)


def install_of(plan: Plan) -> str:
    """The line that installs what the first start of a folder needs."""
    return INSTALL_ONNX if plan.form == ONNX.name else INSTALL


def page(explanation: Explanation) -> Group:
    """The page for people."""
    plan, details = explanation.plan, explanation.details
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="bold", no_wrap=True)
    rows.add_column(overflow="fold")
    rows.add_row("folder", str(plan.folder))
    if plan.what:
        rows.add_row("what it is", _what(plan))
    if explanation.refusal:
        rows.add_row("refused", Text(explanation.refusal, "red"))
        if plan.way_out:
            rows.add_row("way out", plan.way_out)
    elif plan.form == ADAPTER.name:
        rows.add_row("base", plan.base)
    elif plan.form != REPOSITORY.name:
        rows.add_row("task", _task(plan, details))
        if details is not None:
            rows.add_row("texts", _texts(details))
        if plan.kept:
            rows.add_row("products", _products(plan, explanation.cost.precision))
    if plan.taken:
        rows.add_row("taken", _files(plan.taken))
    if plan.left_out:
        rows.add_row("left out", _files(plan.left_out))
    for remark in details.remarks if details else ():
        rows.add_row("", remark.removeprefix(f"{plan.folder}/"))
    if not explanation.refusal and plan.form not in (REPOSITORY.name, ADAPTER.name):
        rows.add_row("costs here", _cost(explanation))
        if remark := remark_of(plan, explanation.cost, "cpu"):
            rows.add_row("", remark)
        if explanation.missing:
            missing = ", ".join(explanation.missing)
            rows.add_row("missing", f"{missing}, for the first start: {install_of(plan)}")
    commands = explanation.commands()
    # Not wrapped, as people copy them.
    lines = [Text(f"    {line}", no_wrap=True, overflow="ignore") for line in commands]
    steps = ", in one step or in three" if len(commands) == 4 else ""
    title = "Way out:" if explanation.refusal else f"To serve it{steps}:"
    shown: list[RenderableType] = [rows, *([Text(f"\n{title}"), *lines] if commands else [])]
    return Group(*shown)


def _what(plan: Plan) -> str:
    parts = [f"a {'file' if plan.folder.is_file() else 'folder'} {plan.what}"]
    names = ", ".join(filter(None, (plan.architecture, plan.model_type)))
    if names:
        parts.append(names)
    if plan.num_weights:
        stored = ", ".join(sorted(plan.stored_as)) or "a pickle"
        parts.append(f"{_number(plan.num_weights)} weights, stored as {stored}")
    if plan.graph:
        parts.append(f"{plan.graph} ({plan.precision})")
    if plan.num_bytes:
        parts.append(amount(plan.num_bytes))
    return "; ".join(parts)


def _products(plan: Plan, precision: str) -> str:
    """Types of weights whose numbers a graph keeps, and what becomes of the others."""
    kept = ", ".join(plan.kept)
    left = [each for each in plan.stored_as if each not in (*plan.kept, *WHOLE_NUMBERS)]
    others = ", ".join(sorted(left))
    if precision != "stored":
        return f"{kept} become floats, as --precision {precision} computes, or rounds again"
    return f"with the numbers of {kept}, not rounded again" + (
        f"; {others} in float" * bool(others)
    )


def _task(plan: Plan, details: Details | None) -> str:
    if details is None:
        return f"{plan.task}, as its files declare (--task)"
    labels = ", ".join(details.labels[:MAX_LABELS])
    more = f" and {len(details.labels) - MAX_LABELS} more" * (len(details.labels) > MAX_LABELS)
    parts = [f"{details.task} (--task)", f"labels {labels}{more}" if labels else ""]
    return "; ".join(filter(None, [*parts, f"pooling: {details.pooling}" * bool(details.pooling)]))


def _texts(details: "Details") -> str:
    longest = f"at most {details.max_tokens:,} tokens"
    return longest + ("; with a chat template" if details.has_chat_template else "")


def _files(files: Iterable[File]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(overflow="fold")
    listed = sorted(files, key=lambda file: -file.num_bytes)
    for file in listed[:MAX_FILES]:
        table.add_row(file.name, amount(file.num_bytes), file.why)
    if len(listed) > MAX_FILES:
        table.add_row(f"and {len(listed) - MAX_FILES} more")
    return table


def _cost(explanation: Explanation) -> str:
    cost = explanation.cost
    flag = "--variant" if explanation.plan.form == ONNX.name else "--precision"
    fetched = explanation.download_bytes
    return (
        f"{f'{amount(fetched)} to fetch, ' if fetched else ''}"
        f"about {amount(cost.export_memory_bytes)} of memory and {cost.seconds:.0f} s for the "
        f"first start in {cost.precision} ({flag}), {amount(cost.disk_bytes)} on disk, then "
        f"{amount(cost.serve_memory_bytes)} of memory; here {amount(explanation.free_memory_bytes)}"
        f" of memory and {amount(explanation.free_disk_bytes)} of disk are free"
    )


def _number(count: int) -> str:
    for least, name in ((10**9, "billion"), (10**6, "million"), (10**3, "thousand")):
        if count >= least:
            return f"{count / least:.3g} {name}"
    return str(count)
