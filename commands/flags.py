"""Make a command of a function and the flags that a settings class describes.

Knows nothing about any command. A field of the class that `models/training/settings.py:setting`
made is the one place that a setting is described: its flag has the field's name, default, help and
limits.
"""

import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import Field, fields
from typing import Any

import typer


def completing(choices: Collection[str]) -> Callable[[], list[str]] | None:
    """A function that completes a value; None, as Typer has it, if any value is allowed."""
    return (lambda: list(choices)) if choices else None


def argument(
    name: str, kind: object, text: str, envvar: str, choices: Collection[str] = ()
) -> inspect.Parameter:
    given = typer.Argument(help=text, envvar=envvar, autocompletion=completing(choices))
    return _parameter(name, kind, given)


def flag(
    name: str,
    kind: object,
    default: object,
    text: str,
    envvar: str,
    shown: bool | str = True,
    spelt: str = "",
    choices: Collection[str] = (),
) -> inspect.Parameter:
    """`...` as the default makes it one that must be given; `shown` may be words for it.

    `spelt` is for a flag that is not named as the function's parameter is.
    """
    names = [spelt] if spelt else []
    option = typer.Option(
        default,
        *names,
        help=text,
        envvar=envvar,
        show_default=shown,
        autocompletion=completing(choices),
    )
    return _parameter(name, kind, option)


def flags_of(settings: type, prefix: str, omit: Collection[str] = ()) -> list[inspect.Parameter]:
    """One flag for each field but those in `omit`; `prefix` begins its environment variable."""
    return [
        flag(
            field.name,
            field.type,
            field.default,
            _help_of(field),
            f"{prefix}_{field.name.upper()}",
            shown=field.metadata["shown"] or True,
            choices=field.metadata["choices"],
        )
        for field in fields(settings)
        if field.name not in omit
    ]


def command_of(
    function: Callable[..., None], parameters: Sequence[inspect.Parameter]
) -> Callable[..., None]:
    """`function`, called with keywords, as Typer reads functions."""

    def command(**values: Any) -> None:
        function(**values)

    command.__doc__ = function.__doc__
    command.__signature__ = inspect.Signature(list(parameters))  # type: ignore[attr-defined]
    command.__annotations__ = {flag.name: flag.annotation for flag in parameters}
    return command


def _help_of(field: "Field[Any]") -> str:
    low, high, choices = (field.metadata[key] for key in ("low", "high", "choices"))
    if choices:
        return f"{field.metadata['help']} One of {', '.join(choices)}."
    if low is None:
        return str(field.metadata["help"])
    limit = f"At least {low:g}." if high == float("inf") else f"{low:g} to {high:g}."
    return f"{field.metadata['help']} {limit}"


def _parameter(name: str, kind: object, option: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=kind)
