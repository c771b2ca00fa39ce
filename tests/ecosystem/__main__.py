"""Install clients, ask a server by each, and write what became of it as a Markdown table.

    python -m tests.ecosystem                     all clients
    python -m tests.ecosystem --client openai     those whose names begin so

Environments are made below `build/ecosystem/`, once; that needs package registries. The clients
then reach no host but this one. Ends with 1 if a client fails.
"""

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from tests.ecosystem.clients import CLIENTS, NotInstalled
from tests.ecosystem.models import served

Names = Annotated[
    list[str] | None, typer.Option("--client", help="Clients whose names begin so; all by default.")
]


def main(client: Names = None) -> None:
    chosen = [
        each for each in CLIENTS if not client or any(each.name.startswith(name) for name in client)
    ]
    if not chosen:
        known = ", ".join(dict.fromkeys(each.name for each in CLIENTS))
        raise typer.BadParameter(f"no client has such a name; there are: {known}")
    rows, failures = [], 0
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as variables:
        for each in chosen:
            try:
                each.install()
                versions, failure = each.versions(), each.run(variables)
            except NotInstalled as error:
                versions, failure = "-", f"not installed: {error}"
            failures += bool(failure)
            outcome = "fail: " + " ".join(failure.split()) if failure else "pass"
            rows.append(f"| {each.title} | {versions} | {each.checks} | {outcome} |")
    table = ["| client | version | what was checked | outcome |", "|---|---|---|---|", *rows]
    typer.echo("\n".join(table))
    if failures:
        sys.exit(1)


if __name__ == "__main__":
    typer.run(main)
