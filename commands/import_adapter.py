"""`attendant import-adapter`: arguments in, messages and exit codes out."""

from pathlib import Path
from typing import Any

import typer

from commands.errors import FAILURE, WRONG_USAGE, errors, print_error
from commands.flags import argument, command_of, flags_of
from export.errors import ExportError
from export.settings import AdapterSettings
from models.errors import ModelError

PREFIX = "ATTENDANT_ADAPTER"


def _import_adapter(*, source: Path, **values: Any) -> None:
    try:
        from export.adapters import import_adapter as run
    except ImportError as error:
        print_error(
            f"attendant import-adapter needs PyTorch: pip install 'attendant[cpu,train]' ({error})"
        )
        raise typer.Exit(WRONG_USAGE) from error
    try:
        folder, adapter = run(source, AdapterSettings(**values))
    except (ExportError, ModelError, OSError) as error:
        print_error(str(error))
        raise typer.Exit(FAILURE) from error
    modules = len(adapter.factors)
    errors.print(
        f"{folder}: adapter of '{adapter.base}', rank {adapter.rank}, {modules} products",
        highlight=False,
        soft_wrap=True,
    )


import_adapter = command_of(
    _import_adapter,
    [
        argument(
            "source",
            Path,
            "Folder of the adapter: adapter_config.json and adapter_model.safetensors.",
            f"{PREFIX}_SOURCE",
        ),
        *flags_of(AdapterSettings, PREFIX, has_limits=True),
    ],
)
