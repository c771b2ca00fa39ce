"""`attendant pretrain`: a command for each kind of model, with a flag for each of its settings."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from commands.flags import command_of, flag, flags_of
from commands.help import Command
from commands.train.messages import messages, parse_validation
from commands.train.options import output_flag, resume_flag
from models.recipes.kinds import PRETRAIN_KINDS, PretrainKind
from models.training.pretrain_settings import PretrainSettings

PREFIX = "ATTENDANT_PRETRAIN"
FILES = (
    flag(
        "corpus",
        list[Path],
        ...,
        "Plain text in UTF-8; give the flag once for each file. A file is one document, or several "
        "with form feeds between them. All of it is held in memory.",
        f"{PREFIX}_CORPUS",
    ),
    output_flag(PREFIX, "training.json and loss.png"),
    flag(
        "validation",
        str,
        str(PretrainSettings().validation_fraction),
        "A file, or the fraction of the corpus to hold out for choosing the best weights: its "
        "end, after its documents were shuffled. A tenth: enough to measure, little lost.",
        f"{PREFIX}_VALIDATION",
    ),
    flag(
        "tokenizer",
        Path | None,
        None,
        "A tokenizer.json, or a folder with GPT-2's or BERT's files, to use. By default one is "
        "trained on the corpus: its tokens are those that the corpus has most.",
        f"{PREFIX}_TOKENIZER",
        shown="trained",
    ),
    flag(
        "start",
        str | None,
        None,
        "Checkpoint of the same kind to continue training from: a folder of Attendant or Hugging "
        "Face, or a hub id. Tokenizer, sizes and dropout are then those of the checkpoint.",
        f"{PREFIX}_FROM",
        shown="fresh weights",
        spelt=["--from"],
    ),
    resume_flag(PREFIX),
)


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
    flags = flags_of(kind.settings, PREFIX, omit=["validation_fraction"])
    return command_of(run, [*FILES, *flags])


pretrain = typer.Typer()
for _kind in PRETRAIN_KINDS:
    pretrain.command(_kind.name, cls=Command)(pretrain_command(_kind))
