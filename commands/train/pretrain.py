"""`attendant pretrain`: a command for each kind of model, with a flag for each of its settings."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from commands.flags import command_of, flags_of
from commands.help import Command
from commands.train import options
from commands.train.messages import messages, parse_validation
from models.recipes.kinds import PRETRAIN_KINDS, PretrainKind


def pretrain_command(kind: PretrainKind) -> Callable[..., None]:
    """The command that trains one kind of model, with a flag for each of its settings."""

    def run(
        *,
        corpus: list[Path],
        output: Path,
        validation: str,
        tokenizer: Path | None,
        start: str | None,
        resume: bool,
        **values: Any,
    ) -> None:
        with messages("pretrain"):
            fraction, validation_file = parse_validation(validation)
            settings = kind.settings(validation_fraction=fraction, **values)
            from commands.train.pretrain_runs import CorpusFiles, pretrain_kind

            files = CorpusFiles(corpus, validation_file, tokenizer, start)
            pretrain_kind(kind, files, output, settings, resume=resume)

    run.__doc__ = f"Train {kind.what} on plain text, from random weights or from a checkpoint."
    flags = flags_of(kind.settings, "ATTENDANT_PRETRAIN", omit=["validation_fraction"])
    return command_of(run, [*options.PRETRAIN, *flags])


pretrain = typer.Typer(help="Train a language model on plain text.")
for _kind in PRETRAIN_KINDS:
    pretrain.command(_kind.name, cls=Command)(pretrain_command(_kind))
