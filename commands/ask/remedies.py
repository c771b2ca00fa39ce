"""Remedies for a refused request that names a wrong model: the models that there are.

The server's texts are Triton's, on which programs match; the command line asks the server for its
models and adds the way out.
"""

from collections.abc import Sequence

from commands.ask.client.client import Client
from commands.ask.client.refusal import CallError
from commands.ask.options import Server
from commands.ask.verbs import commands_of
from service.calls.models import ModelFacts

MAX_WAIT_S = 5.0  # for the list of models
MAX_NAMED = 8  # models in one line


def remedy(error: CallError, model: str, server: Server) -> str:
    """Addition to the server's text; empty where nothing is known, or the list is refused."""
    if error.status not in ("NOT_FOUND", "FAILED_PRECONDITION"):
        return ""
    try:
        wait_s = min(server.timeout_s, MAX_WAIT_S)
        with Client(server.address, wait_s, server.access) as client:
            models = client.models().models
    except CallError:
        return ""
    versions = [each for each in models if each.name == model]
    if error.status == "FAILED_PRECONDITION":
        return _commands_of(versions)
    if versions:
        return f"; its versions here: {_listed([each.version for each in versions])}"
    if not models:
        return "; the server serves no models"
    names = list(dict.fromkeys(each.name for each in models))
    return f"; the models here: {_listed(names)}; 'attendant models' describes them"


def _commands_of(versions: Sequence[ModelFacts]) -> str:
    """The commands for a model, if it is served and its task is one that this client knows."""
    task = versions[-1].task if versions else ""
    commands = " or ".join(f"'attendant {command}'" for command in commands_of(task))
    return f": its task is {task}, use {commands}" if commands else ""


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more
