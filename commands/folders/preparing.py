"""Folders and hub ids made ready to be served: each found among the kept exports, or made now.

The work is done by `worker.py` in a process of its own; here are the plan, the progress, and the
lines that say what was decided and by which flag that is changed. Imports no PyTorch.
docs/how-to/cuda.md says what was verified on CUDA.
"""

import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from commands.folders.adapters import adapter_entry, bases_of, is_adapter, options_for
from commands.folders.cache import Cache, Entry
from commands.folders.cost import Cost, cost_of, cost_of_graph, default_precision, free_memory
from commands.folders.explanation import install_of
from commands.folders.keys import contents_of, key_of
from commands.folders.reports import Reports, decisions
from commands.folders.running import PreparationError, run_worker
from commands.folders.settings import FolderSettings
from commands.folders.sources import Source, commit_of, folder_of, parse_source
from models.checkpoints.graph_files import GraphWish
from models.checkpoints.plan import (
    ONNX,
    Plan,
    check_small_files,
    has_torch,
    is_repository,
    recognise,
)
from models.errors import CheckpointError
from models.writing import amount
from service.contract.files import find_models


@dataclass(frozen=True, slots=True)
class Wishes:
    """All that decides what an export is, beside its source."""

    settings: FolderSettings
    imports: Mapping[str, Any]  # fields of ImportSettings that are not their defaults
    precision: str  # as the server's setting has it
    target: str  # of the export: cpu or cuda
    adapters: tuple[Source, ...] = ()

    def graph_of(self, source: Source) -> GraphWish:
        """The graph of a source that is wished for, where it has graphs."""
        return GraphWish(source.variant or self.settings.variant, self.precision, self.target)


@dataclass(slots=True)
class Served:
    """Models by the name that each is served under, and the folders that links lead to."""

    models: dict[str, Path] = field(default_factory=dict)
    targets: set[Path] = field(default_factory=set)

    def add(self, name: str, model: Path, target: Path) -> None:
        self.models[name] = model.resolve()
        self.targets.add(target.resolve())


@contextmanager
def prepared(given: Sequence[str], wishes: Wishes, reports: Reports) -> Iterator[tuple[Path, str]]:
    """A model repository of links to all that is served, and the folders that they lead to.

    Raises `ModelError`; nothing that was half made is left then.
    """
    cache = Cache(wishes.settings.cache, wishes.settings.folder_cache_bytes)
    cache.clean()
    served = Served()
    bases: dict[str, tuple[Path, Entry]] = {}
    sources = [*map(parse_source, given)]
    alone = tuple(filter(is_adapter, sources))
    sources = [source for source in sources if source not in alone]
    if bases_beside := bases_of(alone, sources):
        sources += bases_beside
        served_as = ", ".join(f"{base.where} as {base.name}" for base in bases_beside)
        reports.say(f"adapters alone are served beside the bases that they name: {served_as}")
    wishes = replace(wishes, adapters=(*wishes.adapters, *alone))
    names = [name for source in sources for name in _names_of(source)]
    _check_names([*names, *(adapter.name for adapter in wishes.adapters)])
    for source in sources:
        if _is_repository(source):
            for name in _names_of(source):
                served.add(name, Path(source.where) / name, Path(source.where))
            reports.say(f"{source.where}: a model repository")
            continue
        folder, entry = _entry_of(source, wishes, cache, reports)
        served.add(source.name, entry.model, entry.folder)
        bases[source.name] = (folder, entry)
    for adapter in wishes.adapters:
        entry = adapter_entry(adapter, bases, cache, reports)
        served.add(adapter.name, entry.model, entry.folder)
    with tempfile.TemporaryDirectory(prefix="attendant-models-") as scratch:
        for name, model in served.models.items():
            (Path(scratch) / name).symlink_to(model, target_is_directory=True)
        yield Path(scratch), ":".join(map(str, sorted(served.targets)))


def _names_of(source: Source) -> list[str]:
    """The names that a source is served under: several of a model repository."""
    return find_models(Path(source.where)) if _is_repository(source) else [source.name]


def _is_repository(source: Source) -> bool:
    folder = Path(source.where)
    return source.is_folder and folder.is_dir() and is_repository(folder)


def _check_names(names: Sequence[str]) -> None:
    """Raise `CheckpointError` where two models have one name, before anything is made."""
    for name, number in Counter(names).items():
        if number > 1:
            raise CheckpointError(
                f"two models would be served as '{name}': name one of them by NAME=FOLDER"
            )


def _entry_of(source: Source, wishes: Wishes, cache: Cache, reports: Reports) -> tuple[Path, Entry]:
    """The kept export of a source, made now where there is none."""
    folder = Path(source.where)
    commit = None if source.is_folder else commit_of(source, wishes.settings)
    if source.is_folder:
        if not folder.is_dir():
            recognise(folder).check()
        contents: object = contents_of(folder)
    elif commit is None:
        folder = _fetched(source, wishes)
        contents = [source.where, folder.name]
    else:
        contents = [source.where, commit]
    options = {
        "import": wishes.imports,
        "precision": wishes.precision,
        "target": wishes.target,
        "export": options_for(wishes.adapters),
        "pair_template": _text_of(wishes.imports.get("pair_template")),
    }
    wish = wishes.graph_of(source)
    if wish.variant is not None:
        options["variant"] = wish.variant
    keys = [key_of(contents, options)]
    if not has_torch():  # what was made of graphs then is not what PyTorch makes of weights
        keys.append(key_of(contents, {**options, "variant": "without torch"}))
    if wishes.settings.refresh:
        cache.forget(keys[-1])
    entry = next((found for key in keys if (found := cache.find(key)) is not None), None)
    if entry is not None:
        reports.say(f"{source.name}: kept from an earlier start ({decisions(entry.facts)})")
        return Path(str(entry.facts["folder"])), entry
    if commit is not None:
        folder = _fetched(source, wishes)
    plan = recognise(folder, wish)
    plan.check()
    cost = _check_room(source, plan, wishes, cache, reports)
    job = {
        "form": plan.form,
        "folder": str(folder),
        "import": {**wishes.imports, "origin": source.where if not source.is_folder else None},
        "precision": wishes.precision,
        "device": wishes.target,
        "export": options["export"],
        "variant": wish.variant,
    }
    started_s = time.monotonic()
    made = cache.make(
        keys[-1] if plan.form == ONNX.name else keys[0],
        lambda target: {
            "source": source.where,
            "folder": str(folder.resolve()),
            "options": options,
            **run_worker({**job, "target": str(target)}, source.name, cost.seconds, reports),
        },
        lambda: reports.say(
            f"{source.name}: another process makes the same export, and is waited for"
        ),
    )
    seconds = time.monotonic() - started_s
    reports.say(
        f"{source.name}: {decisions(made.facts)}; {amount(made.num_bytes)}, made in {seconds:.0f} s"
    )
    reports.say(f"{source.name}: {made.facts['certificate']}")
    return folder.resolve(), made


def _text_of(path: str | None) -> str | None:
    """The text of a file, which counts for a key rather than the file's name."""
    if path is None:
        return None
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"--pair-template {path} cannot be read: {error}") from error


def _fetched(source: Source, wishes: Wishes) -> Path:
    return folder_of(source, wishes.settings, check_small_files)


def _check_room(source: Source, plan: Plan, wishes: Wishes, cache: Cache, reports: Reports) -> Cost:
    """The estimate of an export. Raises where a library or disk is missing, before it begins."""
    missing = [name for name in plan.needs if find_spec(name) is None]
    if missing:
        raise PreparationError(
            f"the first start of {source.where} needs {', '.join(missing)}, which makes the graph "
            f"of its weights: {install_of(plan)}; later starts, and serving, do not need it"
        )
    cost = _cost_of(plan, wishes)
    cache.check_room(2 * cost.disk_bytes, source.name)  # the graph, and what is made beside it
    free = free_memory()
    what = plan.architecture or plan.model_type
    if plan.form == ONNX.name:
        others = ", ".join(plan.variants)
        reports.say(
            f"{source.name}: {plan.graph} ({plan.precision}, {amount(plan.num_bytes)}) of a folder "
            f"{plan.what}{f', {what}' if what else ''}; also there: {others or 'none'} (--variant)"
        )
    else:
        reports.say(
            f"{source.name}: a folder {plan.what}, {what}, "
            f"{amount(plan.num_bytes)} of weights; the export takes about {cost.seconds:.0f} s, "
            f"{amount(cost.export_memory_bytes)} of memory and {amount(cost.disk_bytes)} of disk"
        )
    if cost.export_memory_bytes > free:
        reports.say(
            f"{source.name}: warning: {amount(free)} of memory are free, so the export may fail: "
            "export it on a larger machine (attendant import, attendant export), and serve the "
            "model repository here"
        )
    return cost


def _cost_of(plan: Plan, wishes: Wishes) -> Cost:
    if plan.form == ONNX.name:
        return cost_of_graph(plan.num_bytes, plan.precision)
    precision = wishes.precision
    if precision == "auto":
        precision = default_precision(plan.num_weights, has_cuda=wishes.target == "cuda")
    return cost_of(plan.num_weights, precision)
