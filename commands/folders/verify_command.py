"""`attendant verify`: arguments in, lines or JSON out."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from commands.ask.client.refusal import CallError
from commands.ask.options import FORMS, MODEL, read_server, server_flags
from commands.errors import FAILURE, print_error
from commands.flags import command_of, flag, flags_of
from commands.folders.adapters import bases_of, is_adapter
from commands.folders.cache import Cache
from commands.folders.settings import FolderSettings
from commands.folders.sources import folder_of, parse_source
from models.checkpoints.folder_plan import ONNX, name_of
from models.checkpoints.graph_files import WEIGHTS, GraphWish
from models.checkpoints.plan import recognise
from models.errors import CheckpointError
from models.recipes.import_settings import ImportSettings

if TYPE_CHECKING:
    from export.certificates.case import Case
    from export.certificates.certificate import Certificate

TIMEOUT_S = 30.0
OF_SERVING_ALONE = ("refresh", "folder_cache_bytes")


def _verify(
    *,
    model: str,
    source: str | None,
    as_json: bool,
    revision: str | None,
    offline: bool,
    folder_cache: Path | None,
    variant: str | None,
    **values: Any,
) -> None:
    from commands.train.messages import messages

    server = read_server(values)
    with messages("verify"):
        folders = FolderSettings(revision=revision, offline=offline, folder_cache=folder_cache)
        origin = _origin_of(model, source, variant, folders)
        from commands.ask.client.client import Client
        from commands.folders.verification import verify as verified

        try:
            with (
                Client(*server) as client,
                _imported(origin, folders.cache) as (case, certificate),
            ):
                served = [each for each in client.models().models if each.name == model]
                if not served:
                    raise CheckpointError(f"the server has no model '{model}'")
                found = verified(client, served[-1], case, certificate)
        except CallError as error:
            print_error(f"{error.status}: {error.text}")
            raise typer.Exit(FAILURE) from error
    typer.echo(json.dumps(found.to_dict(), indent=2) if as_json else "\n".join(found.lines()))
    if not found.is_equal:
        raise typer.Exit(FAILURE)


verify = command_of(
    _verify,
    [
        MODEL,
        flag(
            "source",
            str | None,
            None,
            "Folder or hub id that the model was made of. By default that of the kept export of "
            "attendant serve whose name it has.",
            "ATTENDANT_VERIFY_SOURCE",
            shown="the kept export's",
        ),
        FORMS["json"],
        *flags_of(FolderSettings, "ATTENDANT_FOLDERS", omit=OF_SERVING_ALONE),
        *server_flags(TIMEOUT_S),
    ],
)


@dataclass(frozen=True, slots=True)
class _Origin:
    """A folder that a model was made of, its graph, and the settings of its import."""

    folder: Path
    variant: str | None = None  # the graph, where it was made of one
    imports: Mapping[str, Any] = field(default_factory=dict)


def _origin_of(
    model: str, source: str | None, variant: str | None, settings: FolderSettings
) -> _Origin:
    """The folder of a model, and how it was imported."""
    if source:
        given = parse_source(source)
        wish = GraphWish(given.variant or variant)
        folder = folder_of(given, settings, wish=wish)
        if is_adapter(parse_source(str(folder))):
            (base,) = bases_of([parse_source(str(folder))], [])
            return _Origin(folder_of(base, settings), imports={"adapter": str(folder)})
        return _Origin(folder, wish.variant)
    entries = Cache(settings.cache, settings.folder_cache_bytes).entries()
    for entry in reversed(entries):
        facts = entry.facts
        if name_of(str(facts["source"])) == model or name_of(str(facts["folder"])) == model:
            imports = dict(facts.get("options", {}).get("import", {}))
            if "base_folder" in facts:  # an adapter, which is merged into its base
                imports["adapter"] = str(facts["folder"])
                return _Origin(Path(str(facts["base_folder"])), WEIGHTS, imports)
            return _Origin(Path(str(facts["folder"])), facts.get("graph", WEIGHTS), imports)
    raise CheckpointError(
        f"no kept export in {settings.cache} has the name '{model}': say what it was made of by "
        "--source FOLDER"
    )


@contextmanager
def _imported(origin: _Origin, cache: Path) -> Iterator["tuple[Case, Certificate | None]"]:
    """The model that an import makes of the folder, while this is entered."""
    settings = ImportSettings(**origin.imports)
    plan = recognise(origin.folder, GraphWish(origin.variant))
    plan.check()
    if plan.form == ONNX.name:
        from commands.folders.onnx_remaking import remade

        with remade(plan, origin.imports, cache) as made:
            yield made
        return
    from commands.folders.importing import case_of, read_checkpoint

    checkpoint = read_checkpoint(str(origin.folder), settings)
    with case_of(checkpoint, origin.folder, settings) as case:
        yield case, None
