"""`attendant explain`: arguments in, a page or JSON out."""

import json
from inspect import Parameter
from pathlib import Path
from shlex import quote
from typing import Any, Literal

import typer
from rich.console import Console

from commands.errors import FAILURE
from commands.flags import argument, command_of, flag, flags_of
from commands.folders.settings import FolderSettings
from commands.folders.sources import folder_of, outline_of, parse_source
from commands.train.messages import messages
from models.recipes.import_settings import ImportSettings
from service.contract.precision import CHOICES

PREFIX, IMPORT = "ATTENDANT_EXPLAIN", "ATTENDANT_IMPORT"
ONLY_SOURCES = ("refresh", "folder_cache_bytes")


def _explain(
    *,
    asked: typer.Context,
    source: str,
    precision: str,
    as_json: bool,
    revision: str | None,
    offline: bool,
    folder_cache: Path | None,
    variant: str | None,
    **values: Any,
) -> None:
    with messages("explain"):
        from commands.folders.explanation import explain as explained
        from commands.folders.explanation import page
        from models.checkpoints.graph_files import GraphWish
        from models.checkpoints.plan import recognise

        settings = ImportSettings(**values)
        folders = FolderSettings(revision=revision, offline=offline, folder_cache=folder_cache)
        given = parse_source(source)
        wish = GraphWish(given.variant or variant, precision)
        with outline_of(given, folders) as outline:
            folder = outline.folder if outline else folder_of(given, folders, wish=wish)
            plan = recognise(folder, wish)
            explanation = explained(
                source, plan, settings, precision, folders.cache, has_values=outline is None
            ).told_by(_given(asked), values)
            if outline is not None:
                explanation = explanation.of_outline(given.where, outline)
    if as_json:
        typer.echo(json.dumps(explanation.to_dict(), indent=2, ensure_ascii=False))
    else:
        Console(highlight=False).print(page(explanation), crop=False)
    if explanation.refusal:
        raise typer.Exit(FAILURE)


def _given(asked: typer.Context) -> dict[str, str]:
    """The flags of the command line that `attendant serve` has too, as they are written there."""
    written = {}
    for each in asked.command.params:
        name = str(each.name)
        source, value = asked.get_parameter_source(name), asked.params.get(name)
        is_flag = each.param_type_name == "option" and name != "as_json" and value is not False
        if is_flag and source is not None and source.name == "COMMANDLINE":
            written[name] = each.opts[0] + ("" if value is True else f" {quote(str(value))}")
    return written


explain = command_of(
    _explain,
    [
        Parameter("asked", Parameter.KEYWORD_ONLY, annotation=typer.Context),
        argument("source", str, "Folder or hub id, as `attendant serve` takes it."),
        flag(
            "precision",
            Literal[CHOICES],
            "auto",
            "Precision to estimate the cost for; by default the one that `attendant serve` takes.",
            f"{PREFIX}_PRECISION",
            choices=CHOICES,
        ),
        flag(
            "as_json",
            bool,
            False,
            "Print JSON in place of the page.",
            f"{PREFIX}_JSON",
            spelt=["--json"],
        ),
        *flags_of(FolderSettings, "ATTENDANT_FOLDERS", omit=ONLY_SOURCES),
        *flags_of(ImportSettings, IMPORT, omit=["adapter", "origin"]),
    ],
)
