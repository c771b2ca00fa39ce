"""`attendant words`: arguments in, messages and exit codes out.

Imports no PyTorch until a command runs.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from commands.flags import argument, command_of, flag, flags_of
from commands.help import Command
from commands.train.messages import messages
from models.recipes.word_settings import WordSettings

words = typer.Typer(no_args_is_help=True)
Vectors = Annotated[str, typer.Argument(help="Folder of word vectors.")]
Count = Annotated[
    int,
    typer.Option(min=1, max=1_000, envvar="ATTENDANT_WORDS_COUNT", help="Number of words to show."),
]


def _train(*, corpus: list[Path], output: Path, **values: Any) -> None:
    """Train word vectors on plain text: skip-gram with negative sampling."""
    with messages("words train"):
        settings = WordSettings(**values)
        from commands.train.words_runs import train

        train(corpus, output, settings)


words.command("train", cls=Command)(
    command_of(
        _train,
        [
            argument(
                "corpus",
                list[Path],
                "Plain text in UTF-8, one or more files; blank lines separate paragraphs, and no "
                "window crosses one.",
                "ATTENDANT_WORDS_CORPUS",
            ),
            flag(
                "output",
                Path,
                ...,
                "Folder for the word vectors: new, empty, or an older checkpoint, "
                "which is replaced.",
                "ATTENDANT_WORDS_OUTPUT",
                shown=False,
            ),
            *flags_of(WordSettings, "ATTENDANT_WORDS"),
        ],
    )
)


@words.command(cls=Command)
def nearest(
    vectors: Vectors,
    words: Annotated[list[str], typer.Argument(help="One or more words.")],
    count: Count = 10,
) -> None:
    """Show the words with the nearest vectors."""
    with messages("words nearest"):
        from commands.train.words_runs import nearest

        nearest(vectors, words, count)


@words.command(cls=Command)
def analogy(
    vectors: Vectors,
    first: Annotated[
        str,
        typer.Argument(help="First word of the analogy, such as king."),
    ],
    minus: Annotated[str, typer.Argument(help="Word to subtract, such as man.")],
    plus: Annotated[str, typer.Argument(help="Word to add, such as woman.")],
    count: Count = 10,
) -> None:
    """Show the words that are to PLUS as FIRST is to MINUS: king - man + woman."""
    with messages("words analogy"):
        from commands.train.words_runs import analogy

        analogy(vectors, first, minus, plus, count)
