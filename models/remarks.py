"""Remarks on usable but questionable files, as Python's warnings.

Knows nothing about terminals: a command says how each is shown, a test catches it.
"""

import warnings


class DataWarning(UserWarning):
    """Something about data or a checkpoint; names the file, and what of it is meant."""


def remark(message: str) -> None:
    warnings.warn(message, DataWarning, stacklevel=2)
