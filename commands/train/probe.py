"""`attendant probe`: arguments in, messages and exit codes out; PyTorch only when it runs."""

from pathlib import Path
from typing import Any

from commands.flags import argument, command_of, flags_of
from commands.train.messages import messages
from models.recipes.probe_settings import ProbeSettings

PREFIX = "ATTENDANT_PROBE"


def _probe(*, checkpoint: str, train: Path, test: Path, **values: Any) -> None:
    with messages("probe"):
        settings = ProbeSettings(**values)
        from commands.train.probe_runs import probe_checkpoint

        probe_checkpoint(checkpoint, train, test, settings)


probe = command_of(
    _probe,
    [
        argument("checkpoint", str, "A checkpoint with an encoder, or an ELMo."),
        argument(
            "train",
            Path,
            "Sentences to learn from: a word, a tab and its IOB tag per line, a blank line between "
            "sentences.",
        ),
        argument("test", Path, "Sentences to evaluate on, in the same format."),
        *flags_of(ProbeSettings, PREFIX),
    ],
)
