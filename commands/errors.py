"""Errors as every command prints them: one line on stderr, and an exit code.

Knows nothing about any command, and imports rich only where something is printed.
docs/reference/commands.md has the rule.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

FAILURE = 1  # the command line was right, and what it asks for failed
WRONG_USAGE = 2  # the command line itself must be changed, or something must be installed
INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it
ERROR = "attendant: error: "
errors: "Console"  # of stderr


def __getattr__(name: str) -> Any:
    """The console of stderr, made when it is first used."""
    if name != "errors":
        raise AttributeError(f"module 'commands.errors' has no attribute '{name}'")
    from rich.console import Console

    console = globals()["errors"] = Console(stderr=True)
    return console


def print_error(text: str) -> None:
    """Print `text` as one line, which a terminal may wrap and a pipe gets whole."""
    from rich.text import Text

    console = globals().get("errors") or __getattr__("errors")
    line = " ".join(text.split())
    console.print(Text.assemble("attendant: ", ("error: ", "red"), line), soft_wrap=True)
