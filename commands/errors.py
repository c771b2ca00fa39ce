"""Errors as every command prints them: one line on stderr, and an exit code.

Knows nothing about any command. docs/reference/commands.md has the rule.
"""

from rich.console import Console
from rich.text import Text

FAILURE = 1  # the command line was right, and what it asks for failed
WRONG_USAGE = 2  # the command line itself must be changed, or something must be installed
INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it
errors = Console(stderr=True)


def print_error(text: str) -> None:
    """Print `text` as one line, which a terminal may wrap and a pipe gets whole."""
    line = " ".join(text.split())
    errors.print(Text.assemble("attendant: ", ("error: ", "red"), line), soft_wrap=True)
