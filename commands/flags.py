"""Make a command of a function and the flags that a settings class describes.

Knows nothing about any command. A field of the class is the one place where a setting is described:
its flag has the field's name, default, help, choices, limits and panel of `--help`. The settings
check values themselves, so that a wrong one gets the same message from a flag and from a file.
"""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from typing import Any

import typer

INF = float("inf")


def completing(choices: Collection[str]) -> Callable[[], list[str]] | None:
    """A function that completes a value; None, as Typer has it, if any value is allowed."""
    return (lambda: list(choices)) if choices else None


def shown_as(choices: Collection[str]) -> str | None:
    """The choices as `--help` shows them; None where any value may be given."""
    return f"<{'|'.join(choices)}>" if choices else None


def argument(
    name: str,
    kind: object,
    text: str,
    envvar: str | None = None,
    choices: Collection[str] = (),
    *,
    is_optional: bool = False,
) -> inspect.Parameter:
    """An argument; with a variable only if it is the only one of its command.

    Words fill arguments from the first on. A word that is meant for the second would be taken for
    the first, also if a variable names that.
    """
    given = typer.Argument(
        None if is_optional else ...,
        help=text,
        envvar=envvar,
        autocompletion=completing(choices),
    )
    return parameter(name, kind, given)


def flag(
    name: str,
    kind: object,
    default: object,
    text: str,
    envvar: str,
    *,
    shown: bool | str = True,
    spelt: Sequence[str] = (),
    choices: Collection[str] = (),
    metavar: str | None = None,
    panel: str | None = None,
    low: float | None = None,
    high: float | None = None,
) -> inspect.Parameter:
    """The flag of one parameter; `...` as the default makes it one that must be given.

    `shown` is how `--help` words the default, `spelt` the flag's names if they are not the
    parameter's.
    Typer refuses numbers below `low` and above `high`.
    """
    option = typer.Option(
        default,
        *spelt,
        help=text,
        envvar=envvar,
        show_default=shown,
        autocompletion=completing(choices),
        metavar=metavar or shown_as(choices),
        rich_help_panel=panel,
        min=low,
        max=high,
    )
    return parameter(name, kind, option)


def flags_of(
    settings: type,
    prefix: str,
    omit: Collection[str] = (),
    *,
    has_limits: bool = False,
    panel: str | None = None,
) -> list[inspect.Parameter]:
    """One flag for each field but those in `omit`.

    `prefix` begins the environment variable of a field that names none itself. With `has_limits`,
    Typer refuses numbers outside a field's limits; else the settings do, and the help names the
    limits. `panel` is that of fields which name none.
    """
    described = [field for field in fields(settings) if field.name not in omit]
    return [_flag_of(field, prefix, panel, has_limits=has_limits) for field in described]


def _flag_of(
    field: "Field[Any]", prefix: str, panel: str | None, *, has_limits: bool
) -> inspect.Parameter:
    about = field.metadata
    low, high = (about.get("low"), about.get("high")) if has_limits else (None, None)
    variable = about.get("variable") or f"{prefix}_{field.name.upper()}"
    return flag(
        field.name,
        field.type,
        ... if field.default is MISSING else field.default,
        about["help"] if has_limits else with_limits(about),
        variable,
        shown=about.get("shown") or True,
        spelt=about.get("spelt", ()),
        choices=about.get("choices", ()),
        metavar=about.get("metavar"),
        panel=about.get("panel") or panel,
        low=low,
        high=None if high == INF else high,
    )


def command_of(
    function: Callable[..., None], parameters: Sequence[inspect.Parameter]
) -> Callable[..., None]:
    """`function`, called with keywords, as Typer reads functions."""

    def command(**values: Any) -> None:
        function(**values)

    command.__doc__ = function.__doc__
    named = [each.replace(kind=each.KEYWORD_ONLY) for each in parameters]
    command.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
    command.__annotations__ = {flag.name: flag.annotation for flag in parameters}
    return command


def own_parameters(function: Callable[..., None]) -> list[inspect.Parameter]:
    """The parameters that a function names itself, without its `**values`."""
    parameters = inspect.signature(function).parameters.values()
    return [p for p in parameters if p.kind is not p.VAR_KEYWORD]


def with_limits(about: Mapping[str, Any]) -> str:
    """A field's help, followed by its limits."""
    text, low, high = str(about["help"]), about.get("low"), about.get("high")
    if low is None:
        return text
    if high is None or high == INF:
        return f"{text} At least {_written(low)}."
    return f"{text} {_written(low)} to {_written(high)}."


def _written(limit: float) -> str:
    return f"{limit:,}" if isinstance(limit, int) else f"{limit:g}"


def parameter(name: str, kind: object, option: object) -> inspect.Parameter:
    """A parameter of a command, which Typer's option or argument describes."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=kind)
