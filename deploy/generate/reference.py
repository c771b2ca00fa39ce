"""Write the tables of pages that the code has: settings, commands, calls, metrics, keys, rooms.

`python -m deploy.generate.reference`. Each table stands between two marks; what is around them is
written by hand. A test fails if a page is stale.
"""

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from typer import Context
from typer.main import get_command
from typer.models import OptionInfo

from commands.main import COMMANDS, app
from commands.serve import serve_command
from deploy.generate import bounds, calls, metrics, rooms
from models.checkpoints.setting_keys import table_of_keys

FOLDER = Path(__file__).parents[2] / "docs"
BEGIN = "<!-- written by python -m deploy.generate.reference -->\n"
END = "<!-- end of the table -->\n"


def page(text: str, table: Iterator[str]) -> str:
    """The page with its table made anew."""
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    lines = "\n".join(table)
    return f"{before}{BEGIN}{lines}\n{END}{after}"


def _commands() -> Iterator[str]:
    group: Any = get_command(app)
    yield "| to | command | |"
    yield "|---|---|---|"
    for title, names in group.panels(group.list_commands(Context(group))).items():
        for number, name in enumerate(names):
            yield f"| {'' if number else title.lower()} | `{name}` | {COMMANDS[name].help} |"


def _settings() -> Iterator[str]:
    """A table for each panel of `attendant serve --help`, and one of bounds without a flag."""
    parameters = inspect.signature(serve_command).parameters.values()
    options = [each for each in parameters if isinstance(each.default, OptionInfo)]
    for panel in dict.fromkeys(each.default.rich_help_panel for each in options):
        yield f"\n### {panel}\n"
        yield "| flag | default | values | meaning |"
        yield "|---|---|---|---|"
        for each in options:
            if each.default.rich_help_panel == panel:
                yield _row(each.name, each.default)
    yield "\n## Bounds without a flag\n"
    yield from bounds.table()
    yield ""


def _row(name: str, option: OptionInfo) -> str:
    in_words = option.show_default if isinstance(option.show_default, str) else ""
    default = in_words or (f"`{option.default}`" if str(option.default) else "")
    values = ", ".join(f"`{each}`" for each in _choices(option)) or _range(option.min, option.max)
    text = (option.help or "").replace("*", r"\*").replace("|", r"\|")
    return f"| `--{name.replace('_', '-')}` | {default} | {values} | {text} |"


def _choices(option: OptionInfo) -> list[str]:
    """The values that a setting may have; empty where they are not named."""
    return list(option.autocompletion()) if option.autocompletion else []


def _range(low: float | None, high: float | None) -> str:
    if low is None:
        return ""
    return f"at least {low:,}" if high is None else f"{low:,} to {high:,}"


PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "reference/commands.md": _commands,
    "reference/settings.md": _settings,
    "reference/calls.md": calls.tables,
    "reference/metrics.md": metrics.tables,
    "reference/checkpoints.md": lambda: iter(table_of_keys().splitlines()),
    "explanation/architecture.md": rooms.table,
}


def main() -> None:
    for name, table in PAGES.items():
        path = FOLDER / name
        path.write_text(page(path.read_text(encoding="utf-8"), table()), encoding="utf-8")


if __name__ == "__main__":
    main()
