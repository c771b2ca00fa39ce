"""`attendant ladder`: one task of text classification, in five ways from simple to pretrained.

Imports no PyTorch until the command runs; what it does is in `demos/comparison.py`.
"""

from pathlib import Path
from typing import Any

from commands.flags import argument, command_of, flag, flags_of
from commands.train.messages import messages
from demos.ladder_settings import LadderSettings
from export.settings import REPOSITORY_FLAGS

PREFIX = "ATTENDANT_LADDER"


def _ladder(
    *,
    data: Path,
    test: Path,
    output: Path,
    repository: Path | None,
    encoder: str,
    gpt: str,
    **values: Any,  # noqa: ANN401
) -> None:
    with messages("ladder"):
        settings = LadderSettings(**values)
        from demos.comparison import Files, run_all

        run_all(
            Files(data, test, encoder, gpt), output, repository or output / "repository", settings
        )


ladder = command_of(
    _ladder,
    [
        argument("data", Path, "Labelled texts to train on.", f"{PREFIX}_DATA"),
        flag("test", Path, ..., "Labelled texts to measure accuracy on.", f"{PREFIX}_TEST"),
        flag(
            "output",
            Path,
            ...,
            "New folder for checkpoints, figures and picture.",
            f"{PREFIX}_OUTPUT",
        ),
        flag(
            "repository",
            Path | None,
            None,
            "Model repository that the five models are exported to and served from.",
            f"{PREFIX}_REPOSITORY",
            shown="repository in the output folder",
            spelt=REPOSITORY_FLAGS,
        ),
        flag(
            "encoder",
            str,
            "build/checkpoints/minilm",
            "Pretrained encoder: a checkpoint folder or a hub id.",
            f"{PREFIX}_ENCODER",
        ),
        flag(
            "gpt",
            str,
            "",
            "A pretrained GPT. By default one is pretrained on the training texts: a small GPT of "
            "other texts knows neither their words nor their style.",
            f"{PREFIX}_GPT",
            shown="none",
        ),
        *flags_of(LadderSettings, PREFIX),
    ],
)
