"""Remarks on usable but questionable data, as Python's warnings.

Knows nothing about terminals: a command says how each is shown, a test catches it.
"""

import warnings


class DataWarning(UserWarning):
    """Something about the data; names the file, how many rows and the first."""


def remark(message: str) -> None:
    warnings.warn(message, DataWarning, stacklevel=2)
