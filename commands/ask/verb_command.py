"""The command of a verb: its flags, made of a record's fields, and the end of one that fails.

A field says its help and bounds once, for every API and for the command line. Imported when a
command is called, as its record and its body are.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from inspect import Parameter
from typing import Any

import typer

from commands.ask.asked import Asked
from commands.ask.call_flags import CallFlag
from commands.ask.client.refusal import CallError
from commands.ask.files import FILE_FLAGS, OPTIONAL_TEXTS, Files
from commands.ask.options import FORMS, MODEL, TEXTS, TRUNCATION, read_server, server_flags
from commands.ask.verbs import VERBS, Verb
from commands.errors import FAILURE, print_error
from commands.flags import command_of, own_parameters
from service.calls.record import abouts

OF_SEVERAL = ("top_k", "layers")  # whose variables have their command's name
OF_ALL = ("version", "truncate")  # behind a command's own flags, where its record has them
SHOWN = "commands.ask.shown."
# The start of what a server says of one of a request's texts, which it numbers from 0.
NUMBERED = re.compile(r"(text|context|image) (\d+) ")
Values = dict[str, Any]


def command_of_verb(name: str) -> Callable[..., None]:
    """The command, as Typer reads functions."""
    verb = VERBS[name]
    body = named("commands.ask.", verb.body)
    record = named("service.calls.", verb.call) if verb.call else None
    fields = {each.name: each for each in abouts(record)} if record else {}
    own = {each.name: each for each in own_parameters(body) if each.name != "asked"}
    flags = {
        each: CallFlag(fields[each], {**_variable(name, each), **verb.differs.get(each, {})})
        for each in (*verb.flags.split(), *OF_ALL)
        if each in fields and each not in own and each != "texts"
    }

    def parameters() -> Iterator[Parameter]:
        if record is not None:
            yield MODEL
        for each in verb.flags.split():
            if each == "texts" and each not in own:
                yield OPTIONAL_TEXTS if verb.takes_files else TEXTS
            else:
                yield own[each] if each in own else flags[each].parameter()
        yield from (each for each in own.values() if each.name not in verb.flags.split())
        yield from (flags[each].parameter() for each in OF_ALL if each in flags)
        yield from (FORMS[each] for each in verb.forms)
        yield from FILE_FLAGS if verb.takes_files else ()
        yield from server_flags(verb.timeout_s)

    def run(**values: Any) -> None:
        server, given = read_server(values), {each: values.pop(each) for each in own}
        files = {each.name: values.pop(each.name) for each in FILE_FLAGS if verb.takes_files}
        asked = Asked(
            record=record,
            fields=_call_fields(verb, flags, values),
            texts=values.pop("texts", None),
            server=server,
            draw=named(SHOWN, verb.draw),
            draw_rows=named(SHOWN, verb.draw_rows or verb.draw),
            files=Files(**files) if files else None,
            **{f"as_{form}": values.pop(f"as_{form}") for form in verb.forms},
        )
        try:
            body(asked=asked, **given)
        except CallError as error:
            _end(error, asked, has_several=bool({"texts", "files"} & {*verb.flags.split()}))

    return command_of(run, [*parameters()])


def _variable(command: str, field: str) -> Mapping[str, str]:
    """The variable of a field that has another meaning, or another name, in other commands."""
    if field in OF_SEVERAL:
        return {"variable": f"ATTENDANT_{command.replace('-', '_').upper()}_{field.upper()}"}
    return {"variable": "ATTENDANT_MODEL_VERSION"} if field == "version" else {}


def _call_fields(verb: Verb, flags: Mapping[str, CallFlag], values: Values) -> Values:
    """The fields that flags give, and those that follow from them."""
    given = {name: values.pop(name) for name in flags}
    fields = {
        name: flags[name].value_of(value) for name, value in given.items() if value is not None
    }
    if "model" in values:
        fields["model"] = values.pop("model")
    return {**fields, **verb.fixed(fields)}


def named(package: str, place: str) -> Any:
    """The function or class at a place; None for no place."""
    module, _, name = place.partition(":")
    return getattr(import_module(package + module), name) if place else None


def _end(error: CallError, asked: Asked, *, has_several: bool) -> None:
    """Print why a call failed, in the words of the command line, and end with exit code 1."""
    text = _numbered_from_1(error.text, has_several=has_several)
    if "truncate" in asked.fields:
        text = text.replace(*TRUNCATION)
    if "model" in asked.fields:
        from commands.ask.remedies import remedy  # for errors only

        text += remedy(error, asked.fields["model"], asked.server)
    print_error(f"{error.status}: {text}")
    raise typer.Exit(FAILURE) from error


def _numbered_from_1(text: str, *, has_several: bool) -> str:
    """A refusal with the number that a user counts, or without one where there is one text."""

    def number(found: re.Match[str]) -> str:
        return f"{found[1]} {int(found[2]) + 1} " if has_several else f"the {found[1]} "

    return NUMBERED.sub(number, text, count=1) if NUMBERED.match(text) else text
