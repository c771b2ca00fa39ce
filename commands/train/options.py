"""Flags that several commands of training have, with texts that are the same for all.

Knows nothing about what the flags do. `prefix` begins the name of an environment variable.
"""

import inspect
from pathlib import Path

from commands.flags import flag


def output_flag(prefix: str, reports: str) -> inspect.Parameter:
    """The flag of the folder for a checkpoint and its reports."""
    return flag(
        "output",
        Path,
        ...,
        f"Folder for the checkpoint, {reports}. An older checkpoint there is replaced at the end; "
        "a folder with other files is refused.",
        f"{prefix}_OUTPUT",
    )


def resume_flag(prefix: str) -> inspect.Parameter:
    """The flag of continuing an interrupted run."""
    return flag(
        "resume",
        bool,
        True,
        "Continue an interrupted run of the same command where it stopped. On by default: the "
        "result is the same, only sooner.",
        f"{prefix}_RESUME",
    )
