"""Write the table of commands in docs/reference/commands.md, from the commands' own helps.

`python -m deploy.generate.commands`. A test fails if the page is stale.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer import Context
from typer.main import get_command

from commands.main import COMMANDS, app

PATH = Path(__file__).parents[2] / "docs/reference/commands.md"
BEGIN = "<!-- written by python -m deploy.generate.commands -->\n"
END = "<!-- end of the table -->\n"


def page(text: str) -> str:
    """The page with its table made anew."""
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    table = "\n".join(_table())
    return f"{before}{BEGIN}{table}\n{END}{after}"


def _table() -> Iterator[str]:
    group: Any = get_command(app)
    yield "| to | command | |"
    yield "|---|---|---|"
    for title, names in group.panels(group.list_commands(Context(group))).items():
        for number, name in enumerate(names):
            yield f"| {'' if number else title.lower()} | `{name}` | {COMMANDS[name].help} |"


def main() -> None:
    PATH.write_text(page(PATH.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
