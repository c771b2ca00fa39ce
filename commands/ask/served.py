"""Names of served models, where a shell completes a command's model.

A shell waits for them while a person types: a server that does not answer at once has none, and no
error is printed between the words of a command line.
"""

from typing import Any

import typer

from commands.ask.client.access import ACCESS_FLAGS, own_address, read_access
from commands.ask.verbs import VERBS

PATIENCE_S = 1.0
OF_ALL_MODELS = ("infer",)  # commands that can ask a model of any task


def names_of_models(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names that begin with a text, of models that the server has for the command."""
    from commands.ask.client.client import Client  # protobuf and gRPC

    given = {each: ctx.params.get(each.name) for each in ACCESS_FLAGS}
    flags: dict[str, Any] = {
        each.name: each.kind(value) if value else None for each, value in given.items()
    }
    address = ctx.params.get("address") or own_address()
    try:
        access = read_access(**flags | {"tls_name": flags["tls_name"] or ""})
        with Client(address, PATIENCE_S, access) as client:
            models = client.models().models
    except Exception:
        return []
    command = ctx.info_name or ""
    tasks = VERBS[command].tasks
    is_any = not tasks or command in OF_ALL_MODELS
    names = dict.fromkeys(each.name for each in models if is_any or each.task in tasks)
    return [name for name in names if name.startswith(incomplete)]
