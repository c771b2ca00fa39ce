"""`attendant seq2seq`: arguments in, messages and exit codes out.

Imports no PyTorch until it runs, as `commands/train/train.py`.
"""

from pathlib import Path
from typing import Any

from commands.flags import argument, command_of, flag, flags_of
from commands.train.messages import messages
from commands.train.options import resume_flag
from models.recipes.seq2seq_settings import Seq2SeqSettings
from models.recipes.seq2seq_systems import TASKS

ENVIRONMENT = "ATTENDANT_SEQ2SEQ"


def _seq2seq(*, pairs: str, output: Path, resume: bool, **values: Any) -> None:
    with messages("seq2seq"):
        settings = Seq2SeqSettings(**values)
        from commands.train.seq2seq_runs import train_seq2seq

        train_seq2seq(pairs, output, settings, resume=resume)


seq2seq = command_of(
    _seq2seq,
    [
        argument(
            "pairs",
            str,
            "A task with generated pairs: "
            + "; ".join(f"{name}, {task.what}" for name, task in TASKS.items())
            + "; or a file of source<TAB>target lines.",
            f"{ENVIRONMENT}_PAIRS",
            choices=tuple(TASKS),
        ),
        flag(
            "output",
            Path,
            ...,
            "Folder for the checkpoint, training.json and pictures; with --attention all, one for "
            "each attention in it. An older one is replaced; a folder with other files is refused.",
            f"{ENVIRONMENT}_OUTPUT",
        ),
        *flags_of(Seq2SeqSettings, ENVIRONMENT),
        resume_flag(ENVIRONMENT),
    ],
)
