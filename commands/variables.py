"""Older names of environment variables, which meant one thing in one command and another in others.

Such a variable has its command's name in it now. Until the next release the one without is read
too, with a warning.
"""

import os
from typing import Any

OLDER = {
    **{
        f"ATTENDANT_{command}_TOP_K": "ATTENDANT_TOP_K"
        for command in ("CLASSIFY", "EMBED", "FILL_MASK", "ANSWER", "CLASSIFY_IMAGE")
    },
    **{f"ATTENDANT_{each}_LAYERS": "ATTENDANT_LAYERS" for each in ("ATTENTION", "FEATURES")},
    **{f"ATTENDANT_{each}_PLOT": "ATTENDANT_PLOT" for each in ("ATTENTION", "FILL_MASK")},
}


def read_older(command: Any) -> None:
    """Let the command read an older name where it is set and the newer one is not."""
    for parameter in command.params:
        older = OLDER.get(parameter.envvar) if isinstance(parameter.envvar, str) else None
        if older and os.environ.get(older) and not os.environ.get(parameter.envvar):
            parameter.older_of, parameter.envvar = parameter.envvar, older


def warn_of_older(context: Any) -> None:
    """Print a line on stderr for each value that is taken from an older name."""
    from commands.errors import errors  # rich

    for parameter in context.command.params:
        newer = getattr(parameter, "older_of", None)
        source = context.get_parameter_source(parameter.name)
        if newer and source is not None and source.name == "ENVIRONMENT":
            errors.print(
                f"attendant: warning: {parameter.envvar} means other things in other commands, and "
                f"will not be read any more in the next release: set {newer}",
                soft_wrap=True,
                highlight=False,
            )
