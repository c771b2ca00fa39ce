"""The flags that name the columns of labelled texts, for every command that reads them.

Imports no PyTorch, and the records of data only when a command runs.
"""

from typing import TYPE_CHECKING, Any

from commands.flags import flag

if TYPE_CHECKING:
    from models.data.datasets import Columns

NAMES = {"label_column": "label", "text_column": "text", "pair_column": "text_pair"}
SAID = {
    "label_column": "the label, or the score of a pair",
    "text_column": "the text",
    "pair_column": "the second text of a pair",
}


def column_flags(prefix: str, data: str) -> list[Any]:
    """A flag for each column of the file that `data` names in its help."""
    return [
        flag(
            name,
            str,
            default,
            f"Column or field of {data} that has {SAID[name]}.",
            f"{prefix}_{name.upper()}",
        )
        for name, default in NAMES.items()
    ]


def columns_of(label_column: str, text_column: str, pair_column: str) -> "Columns":
    """The names that the flags have."""
    from models.data.datasets import Columns

    return Columns(label_column, text_column, pair_column)
