"""`attendant verify`: arguments in, lines or JSON out."""

import json
from pathlib import Path
from typing import Any

import typer

from commands.ask.client.refusal import CallError
from commands.ask.options import FORMS, MODEL, read_server, server_flags
from commands.errors import FAILURE, print_error
from commands.flags import command_of, flag, flags_of
from commands.folders.cache import Cache
from commands.folders.settings import FolderSettings
from commands.folders.sources import folder_of, parse_source
from models.checkpoints.folder_plan import name_of
from models.errors import CheckpointError
from models.recipes.import_settings import ImportSettings

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
    **values: Any,
) -> None:
    from commands.train.messages import messages

    server = read_server(values)
    with messages("verify"):
        folders = FolderSettings(revision=revision, offline=offline, folder_cache=folder_cache)
        folder, imports = _folder_of(model, source, folders)
        from commands.ask.client.client import Client
        from commands.folders.importing import case_of, read_checkpoint
        from commands.folders.verification import verify as verified

        settings = ImportSettings(**imports)
        checkpoint = read_checkpoint(str(folder), settings)
        try:
            with Client(*server) as client, case_of(checkpoint, folder, settings) as case:
                served = [each for each in client.models().models if each.name == model]
                if not served:
                    raise CheckpointError(f"the server has no model '{model}'")
                found = verified(client, served[-1], case)
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


def _folder_of(
    model: str, source: str | None, settings: FolderSettings
) -> tuple[Path, dict[str, Any]]:
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
