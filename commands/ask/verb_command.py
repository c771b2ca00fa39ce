"""The command of a verb: its flags, made of a record's fields, and the end of one that fails.

A field says its help and bounds once, for every API and for the command line. Imported when a
command is called, as its record and its body are.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from inspect import Parameter
from typing import Any, Literal, get_args, get_origin

import typer

from commands.ask.asked import Asked
from commands.ask.client.refusal import CallError
from commands.ask.files import FILE_FLAGS, OPTIONAL_TEXTS, Files
from commands.ask.options import FORMS, MODEL, TEXTS, TRUNCATION, read_server, server_flags
from commands.ask.verbs import VERBS, Verb
from commands.errors import FAILURE, print_error
from commands.flags import argument, command_of, flag, own_parameters
from service.calls.record import About, abouts

OF_ALL = ("version", "truncate")  # behind a command's own flags, where its record has them
OF_SEVERAL = ("top_k", "layers")  # whose variables have their command's name
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
        each: Flag(name, fields[each], verb.differs.get(each, {}))
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


class Flag:
    """The flag of a field, or its argument, and its value back in the field's type."""

    def __init__(self, command: str, about: About, differs: Mapping[str, Any]) -> None:
        self._about = about
        self._says: Values = {"help": about.help, **about.says, **differs}
        self._command = command.replace("-", "_").upper()
        self._is_list = get_origin(about.kind) is Sequence
        self.choices = self._says.get("choices") or _choices_of(about.kind)
        self.name: str = self._says.get("flag", about.name)

    def parameter(self) -> Parameter:
        about, says = self._about, self._says
        kind, default = about.kind, says.get("default", about.default)
        text = says["help"]
        if says.get("argument"):
            return argument(about.name, kind, text)
        if self.choices:
            default = says.get("default")
            kind = Literal[self.choices] if default else Literal[self.choices] | None
        elif self._is_list:
            kind, default = list[get_args(kind)[0]] | None, None  # type: ignore[misc]
            text = text if "more than once" in text else f"{text} May be given more than once."
        variable = f"ATTENDANT_{self._command}_" if about.name in OF_SEVERAL else "ATTENDANT_"
        variable += (self.name if self.choices else about.name).upper()
        if about.name == "version":
            variable = "ATTENDANT_MODEL_VERSION"
        spelt = (f"--{self.name.replace('_', '-')}",) if self.name != about.name else ()
        low, high = says.get("low"), says.get("high")
        return flag(about.name, kind, default, text, variable, spelt=spelt, low=low, high=high)

    def value_of(self, given: Any) -> Any:
        if self.choices:
            given = given.replace("-", "_")
            return (given,) if self._is_list else given
        return tuple(given) if self._is_list else given


def _call_fields(verb: Verb, flags: Mapping[str, Flag], values: Values) -> Values:
    """The fields that flags give, and those that follow from them."""
    given = {name: values.pop(name) for name in flags}
    fields = {
        name: flags[name].value_of(value) for name, value in given.items() if value is not None
    }
    if "model" in values:
        fields["model"] = values.pop("model")
    return {**fields, **verb.fixed(fields)}


def _choices_of(kind: Any) -> tuple[str, ...]:
    """The named values of a field that is one of them, or a list of some."""
    if get_origin(kind) is Literal:
        return tuple(value for value in get_args(kind) if value)
    return next(filter(None, map(_choices_of, get_args(kind))), ())


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
