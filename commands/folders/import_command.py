"""`attendant import`: arguments in, messages and exit codes out. No PyTorch until it runs."""

from pathlib import Path
from typing import Any

from commands.flags import argument, command_of, flags_of
from commands.train.messages import messages
from models.checkpoints.known import known_names
from models.recipes.import_settings import ImportSettings

IMPORT = "ATTENDANT_IMPORT"


def _import(*, source: str, output: Path, **values: Any) -> None:
    with messages("import"):
        settings = ImportSettings(**values)
        from commands.folders.importing import import_model

        import_model(source, output, settings)


import_checkpoint = command_of(
    _import,
    [
        argument(
            "source",
            str,
            "A hub id, or a Hugging Face folder (config.json, model.safetensors, tokenizer.json) "
            f"of {known_names()}.",
        ),
        argument(
            "output",
            Path,
            "Folder for the checkpoint. An older checkpoint there is replaced; a folder with "
            "other files is refused.",
        ),
        *flags_of(ImportSettings, IMPORT),
    ],
)
