"""LoRA adapters of PEFT that are served beside the base that their files name."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from commands.folders.cache import Cache, Entry
from commands.folders.cost import START_S
from commands.folders.keys import contents_of, key_of
from commands.folders.reports import ADAPTER, Reports, decisions
from commands.folders.running import run_worker
from commands.folders.sources import Source, parse_source
from export.settings import TARGETS_BY_PEFT
from models.checkpoints import file_names
from models.checkpoints.plan import recognise
from models.errors import CheckpointError
from models.json_files import read_object


def options_for(adapters: Sequence[Source]) -> dict[str, Any]:
    """Settings of the export that adapters ask for."""
    if not adapters:
        return {}
    ranks, targets = [], set()
    for adapter in adapters:
        config = config_of(adapter)
        ranks.append(int(config.get("r", 0)))
        targets |= {
            TARGETS_BY_PEFT[name] for name in config["target_modules"] if name in TARGETS_BY_PEFT
        }
    return {
        "lora_rank": max(ranks),
        "lora_slots": max(4, len(ranks)),
        "lora_targets": ",".join(sorted(targets)) or "query,value",
    }


def is_adapter(source: Source) -> bool:
    """Whether a folder has an adapter of PEFT, and no network."""
    folder = Path(source.where)
    if not source.is_folder or not (folder / file_names.ADAPTER_CONFIG).is_file():
        return False
    return not file_names.weights_in({path.name for path in folder.iterdir()})


def bases_of(adapters: Sequence[Source], sources: Sequence[Source]) -> list[Source]:
    """The bases that adapters name, where they are none of the sources: folders, or hub ids.

    Raises `CheckpointError` for one that is not there.
    """
    bases: dict[str, Source] = {}
    for adapter in adapters:
        stated = str(config_of(adapter).get("base_model_name_or_path") or "")
        given = (*sources, *bases.values())
        if any(_is_named(each, stated) for each in given):
            continue
        beside = Path(adapter.where).resolve().parent / Path(stated).name
        if stated and not Path(stated).exists() and beside.is_dir():
            stated = str(beside)
        base = parse_source(stated) if stated else None
        if base is None or (base.is_folder and not Path(base.where).is_dir()):
            raise CheckpointError(
                f"{adapter.where} is a folder of an adapter, and its base is '{stated}', which is "
                f"no folder here: attendant serve BASE --adapter {adapter.where}"
            )
        bases[stated] = base
    return list(bases.values())


def config_of(adapter: Source) -> dict[str, Any]:
    path = Path(adapter.where) / file_names.ADAPTER_CONFIG
    config = read_object(path)
    modules, rank = config.get("target_modules"), config.get("r")
    if not isinstance(modules, list) or not isinstance(rank, int):
        raise CheckpointError(f"{path}: r and target_modules must be a number and a list of names")
    return config


def by_base(adapters: Sequence[Source], sources: Sequence[Source]) -> dict[str, tuple[Source, ...]]:
    """The adapters of each source, by its name: of the one that their files name, or the only one.

    Raises `CheckpointError` for an adapter that several sources, or none, may be the base of.
    """
    found: dict[str, tuple[Source, ...]] = {}
    for adapter in adapters:
        stated = str(config_of(adapter).get("base_model_name_or_path") or "")
        bases = [each for each in sources if _is_named(each, stated)]
        bases = bases or [each for each in sources if _may_write(each)]
        if len(bases) != 1:
            names = ", ".join(each.name for each in bases)
            raise CheckpointError(
                f"{adapter.where} is a folder of an adapter, and its base is '{stated}': "
                + (
                    f"several of the folders may be that ({names}): leave all but one of them out"
                    if bases
                    else "no folder that is served is that or continues texts: give the base's too"
                )
            )
        found[bases[0].name] = (*found.get(bases[0].name, ()), adapter)
    return found


def _is_named(source: Source, stated: str) -> bool:
    return stated == source.where or Path(stated).name == Path(source.where).resolve().name


def _may_write(source: Source) -> bool:
    """Whether a source continues texts; that of a hub id is known later."""
    return not source.is_folder or recognise(Path(source.where)).task == "text-generation"


def adapter_entry(
    adapter: Source, base: str, found_base: tuple[Path, Entry], cache: Cache, reports: Reports
) -> Entry:
    """The kept adapter beside its base, which is served under the name `base`."""
    folder, entry = found_base
    made_of = {"base_folder": str(folder), "options": entry.facts.get("options", {})}
    key = key_of(
        contents_of(Path(adapter.where)), {"base": base, "entry": entry.folder.name, **made_of}
    )
    found = cache.find(key)
    if found is None:
        job = {
            "form": ADAPTER,
            "folder": str(Path(adapter.where).resolve()),
            "base": base,
            "base_model": str(entry.model.resolve()),
            "base_folder": str(folder),
        }
        found = cache.make(
            key,
            lambda target: {
                "source": adapter.where,
                "folder": str(Path(adapter.where).resolve()),
                **made_of,
                **run_worker({**job, "target": str(target)}, adapter.name, START_S, reports),
            },
            lambda: reports.say(f"{adapter.name}: another process makes it, and is waited for"),
        )
    reports.say(f"{adapter.name}: {decisions(found.facts)}")
    return found
