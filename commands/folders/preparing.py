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
from pathlib import Path
from typing import Any

from commands.folders.adapters import adapter_entry, bases_of, by_base, is_adapter, options_for
from commands.folders.cache import Cache, Entry
from commands.folders.configuration import name_in
from commands.folders.cost import ExportTarget
from commands.folders.fetching import showing_progress
from commands.folders.keys import contents_of, key_of
from commands.folders.reports import Reports, cost_of_rounding, decisions
from commands.folders.room import check_outline, check_room
from commands.folders.running import run_worker
from commands.folders.settings import FolderSettings
from commands.folders.sources import Source, commit_of, folder_of, outline_of, parse_source
from models.checkpoints.folder_plan import ADAPTER, ONNX, Plan, name_of
from models.checkpoints.graph_files import GraphWish
from models.checkpoints.plan import (
    check_small_files,
    has_torch,
    is_repository,
    is_served_model,
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
    for source in sources:
        if source.is_folder and not (_is_served_model(source) or _is_repository(source)):
            recognise(Path(source.where), wishes.graph_of(source)).check()
    adapters = (*wishes.adapters, *alone)
    names = [name for source in sources for name in _names_of(source)]
    _check_names([*names, *(adapter.name for adapter in adapters)])
    kept = [each for each in sources if not (_is_served_model(each) or _is_repository(each))]
    adapters_of = by_base(adapters, kept)
    for source in sources:
        if _is_served_model(source):
            served.add(_served_name(source), Path(source.where), Path(source.where))
            reports.say(f"{source.where}: a model as attendant export writes it")
            continue
        if _is_repository(source):
            for name in _names_of(source):
                served.add(name, Path(source.where) / name, Path(source.where))
            reports.say(f"{source.where}: a model repository")
            continue
        beside = adapters_of.get(source.name, ())
        folder, entry = _entry_of(source, replace(wishes, adapters=beside), cache, reports)
        served.add(source.name, entry.model, entry.folder)
        bases[source.name] = (folder, entry)
    for base, beside in adapters_of.items():
        for adapter in beside:
            entry = adapter_entry(adapter, base, bases[base], cache, reports)
            served.add(adapter.name, entry.model, entry.folder)
    with tempfile.TemporaryDirectory(prefix="attendant-models-") as scratch:
        for name, model in served.models.items():
            (Path(scratch) / name).symlink_to(model, target_is_directory=True)
        yield Path(scratch), ":".join(map(str, sorted(served.targets)))


def _names_of(source: Source) -> list[str]:
    """The names that a source is served under: several of a model repository."""
    if _is_served_model(source):
        return [_served_name(source)]
    return find_models(Path(source.where)) if _is_repository(source) else [source.name]


def _is_repository(source: Source) -> bool:
    folder = Path(source.where)
    return source.is_folder and folder.is_dir() and is_repository(folder)


def _served_name(source: Source) -> str:
    """The name of a model that is exported already, which its configuration may state.

    Raises `CheckpointError` where another name was given.
    """
    stated = name_in(Path(source.where))
    is_given = source.name != name_of(Path(source.where).resolve().name)
    if stated and is_given and source.name != stated:
        raise CheckpointError(
            f"{source.where}/config.pbtxt names the model '{stated}', and it would be served as "
            f"'{source.name}': leave {source.name}= out, or take the name out of config.pbtxt"
        )
    return stated or source.name


def _is_served_model(source: Source) -> bool:
    return source.is_folder and is_served_model(Path(source.where))


def _check_names(names: Sequence[str]) -> None:
    """Raise `CheckpointError` where two models have one name, before anything is made."""
    for name, number in Counter(names).items():
        if number > 1:
            raise CheckpointError(
                f"two models would be served as '{name}': name one of them by NAME=FOLDER"
            )


def _entry_of(source: Source, wishes: Wishes, cache: Cache, reports: Reports) -> tuple[Path, Entry]:
    """The kept export of a source, made now where there is none."""
    commit = None if source.is_folder else commit_of(source, wishes.settings)
    folder, contents = _contents_of(source, wishes, commit)
    wish = wishes.graph_of(source)
    options = {
        "import": wishes.imports,
        "precision": wishes.precision,
        "target": wishes.target,
        "export": options_for(wishes.adapters),
        "pair_template": _text_of(wishes.imports.get("pair_template")),
        **({} if wish.variant is None else {"variant": wish.variant}),
    }
    keys = [key_of(contents, options)]
    if not has_torch():  # what was made of graphs then is not what PyTorch makes of weights
        keys.append(key_of(contents, {**options, "variant": "without torch"}))
    if wishes.settings.refresh:
        cache.forget(keys[-1])
    entry = next((found for key in keys if (found := cache.find(key)) is not None), None)
    if entry is not None:
        reports.say(f"{source.name}: kept from an earlier start ({decisions(entry.facts)})")
        return Path(str(entry.facts["folder"])), entry
    target, is_checked = ExportTarget(wishes.precision, wishes.target), False
    if commit is not None:
        folder, is_checked = _fetched_with_room(source, wishes, target, cache, reports)
    plan = recognise(folder, wish)
    plan.check()
    if plan.form == ADAPTER.name:
        raise CheckpointError(
            f"{source.where} is a folder {ADAPTER.what}: attendant serve BASE --adapter {folder}"
        )
    if not is_checked:
        check_room(source, plan, target, cache, reports)
    key = keys[-1] if plan.form == ONNX.name else keys[0]
    return folder.resolve(), _made(source, plan, wishes, (key, options), cache, reports)


def _contents_of(source: Source, wishes: Wishes, commit: str | None) -> tuple[Path, object]:
    """The folder of a source, and what tells its contents.

    A hub id with a commit is not fetched for it; its folder is that of no file.
    """
    folder = Path(source.where)
    if source.is_folder:
        return folder, contents_of(folder)
    if commit is None:  # the hub does not answer, and its cache is asked
        folder = _fetched(source, wishes)
        return folder, [source.where, folder.name]
    return folder, [source.where, commit]


def _fetched_with_room(
    source: Source, wishes: Wishes, target: ExportTarget, cache: Cache, reports: Reports
) -> tuple[Path, bool]:
    """The folder of a hub id, fetched now, and whether there is room for its export."""
    with outline_of(source, wishes.settings) as outline:
        if outline is None:
            return _fetched(source, wishes), False
        wish = wishes.graph_of(source)
        to_fetch = check_outline(source, outline, wish, target, cache, reports)
        with showing_progress(source.name, outline.snapshot, to_fetch, reports):
            return _fetched(source, wishes), True


def _made(
    source: Source,
    plan: Plan,
    wishes: Wishes,
    keyed: tuple[str, Mapping[str, Any]],
    cache: Cache,
    reports: Reports,
) -> Entry:
    """The export of a folder under a key of the cache, with the options that are in it."""
    (key, options), name = keyed, source.name
    job = {
        "form": plan.form,
        "folder": str(plan.folder),
        "import": {**wishes.imports, "origin": source.where if not source.is_folder else None},
        "precision": wishes.precision,
        "device": wishes.target,
        "export": options["export"],
        "variant": wishes.graph_of(source).variant,
    }
    estimate_s = ExportTarget(wishes.precision, wishes.target).cost(plan).seconds
    started_s = time.monotonic()
    made = cache.make(
        key,
        lambda target: {
            "source": source.where,
            "folder": str(plan.folder.resolve()),
            "options": options,
            **run_worker({**job, "target": str(target)}, name, estimate_s, reports),
        },
        lambda: reports.say(f"{name}: another process makes the same export, and is waited for"),
    )
    seconds = time.monotonic() - started_s
    reports.say(
        f"{name}: {decisions(made.facts)}; {amount(made.num_bytes)}, made in {seconds:.0f} s"
    )
    reports.say(f"{name}: {made.facts['certificate']}")
    changed = cost_of_rounding(made.facts["precision"], made.facts.get("parity", {}))
    if changed:
        reports.say(f"{name}: {changed}")
    return made


def _text_of(path: str | None) -> str | None:
    """The text of a file, which counts for a key rather than the file's name."""
    if path is None:
        return None
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"--pair-template {path} cannot be read: {error}") from error


def _fetched(source: Source, wishes: Wishes) -> Path:
    return folder_of(source, wishes.settings, check_small_files, wishes.graph_of(source))
