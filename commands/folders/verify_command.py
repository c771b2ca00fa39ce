"""`attendant verify`: arguments in, two lines or JSON out."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from commands.ask.options import SERVER, AsJson, Model, Server, asks
from commands.errors import FAILURE
from commands.folders.cache import Cache
from commands.folders.settings import FolderSettings
from commands.folders.sources import folder_of, parse_source
from models.checkpoints.plan import name_of
from models.errors import CheckpointError
from models.recipes.import_settings import ImportSettings

Source = Annotated[
    str,
    typer.Option(
        "--source",
        envvar="ATTENDANT_VERIFY_SOURCE",
        help="Folder or hub id that the model was made of. By default that of the kept exports of "
        "attendant serve whose name it has.",
        show_default="the kept export's",
    ),
]
FolderCache = Annotated[
    Path | None,
    typer.Option(
        "--folder-cache",
        envvar="ATTENDANT_FOLDER_CACHE",
        help="Folder in which exports of served folders are kept for the next start.",
        show_default="~/.cache/attendant, or where XDG_CACHE_HOME says",
    ),
]


@asks
def verify(
    model: Model,
    source: Source = "",
    folder_cache: FolderCache = None,
    as_json: AsJson = False,
    server: Server = SERVER,
) -> None:
    from commands.train.messages import messages

    with messages("verify"):
        folders = FolderSettings(folder_cache=folder_cache)
        folder, imports = _folder_of(model, source, folders)
        from commands.ask.client.client import Client
        from commands.folders.importing import read_checkpoint
        from commands.folders.verification import verify as verified

        checkpoint = read_checkpoint(str(folder), ImportSettings(**imports))
        with Client(*server) as client:
            served = [each for each in client.models().models if each.name == model]
            if not served:
                raise CheckpointError(f"the server has no model '{model}'")
            found = verified(client, served[-1], checkpoint, folder)
    typer.echo(json.dumps(found.to_dict(), indent=2) if as_json else "\n".join(found.lines()))
    if not found.is_equal:
        raise typer.Exit(FAILURE)


def _folder_of(model: str, source: str, settings: FolderSettings) -> tuple[Path, dict[str, Any]]:
    """The folder of a model, and how it was imported."""
    if source:
        return folder_of(parse_source(source), settings), {}
    entries = Cache(settings.cache, settings.folder_cache_bytes).entries()
    for entry in reversed(entries):
        facts = entry.facts
        if name_of(str(facts["source"])) == model or name_of(str(facts["folder"])) == model:
            return Path(str(facts["folder"])), dict(facts.get("options", {}).get("import", {}))
    raise CheckpointError(
        f"no kept export in {settings.cache} has the name '{model}': say what it was made of by "
        "--source FOLDER"
    )
