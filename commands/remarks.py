"""Warnings about data and pictures, shown by a command each once."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from commands.pictures import MissingFontWarning
from models.remarks import DataWarning

SHOWN = (DataWarning, MissingFontWarning)


@contextmanager
def showing_remarks(show: Callable[[str], None]) -> Iterator[None]:
    """While this is entered, `show` each remark once, when it is made."""
    shown: set[str] = set()
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show_warning(message: Any, category: type[Warning], *place: Any) -> None:
            if not issubclass(category, SHOWN):
                usual(message, category, *place)
            elif str(message) not in shown:
                shown.add(str(message))
                show(str(message))

        for category in SHOWN:
            warnings.simplefilter("always", category)
        warnings.showwarning = show_warning  # type: ignore[assignment] # called with places
        yield
