"""The table of commands that ask: rows name what there is, and flags are those of the fields."""

from importlib import import_module
from inspect import signature
from typing import Any

import pytest

from commands.ask.call_flags import CallFlag
from commands.ask.verb_command import command_of_verb, named
from commands.ask.verbs import VERBS
from commands.flags import own_parameters
from service.calls.methods import ANSWERS
from service.calls.record import abouts


@pytest.mark.parametrize("name", VERBS)
def test_a_row_names_modules_fields_and_parameters_that_there_are(name: str) -> None:
    verb = VERBS[name]
    body = named("commands.ask.", verb.body)
    fields = {each.name for each in abouts(named("service.calls.", verb.call))} if verb.call else {}
    assert set(verb.flags.split()) <= {*fields, *(each.name for each in own_parameters(body))}
    assert verb.differs.keys() <= set(verb.flags.split())
    for place in filter(None, (verb.draw, verb.draw_rows, verb.brief)):
        assert callable(named("commands.ask.shown.", place))
    assert verb.help.endswith(".")


@pytest.mark.parametrize(
    ("name", "field"),
    [
        (name, field)
        for name, verb in VERBS.items()
        if verb.call
        for field in verb.flags.split()
        if "help" not in verb.differs.get(field, {})
    ],
)
def test_a_flag_has_the_help_and_the_bounds_of_its_field(name: str, field: str) -> None:
    verb = VERBS[name]
    fields = {each.name: each for each in abouts(named("service.calls.", verb.call))}
    own = {each.name for each in own_parameters(named("commands.ask.", verb.body))}
    if field not in fields or field in own or field == "texts":
        return
    about = fields[field]
    option = signature(command_of_verb(name)).parameters[field].default
    assert option.help.startswith(about.help)
    if "low" in about.says:
        assert (option.min, option.max) == (about.says["low"], about.says["high"])


def test_a_new_field_is_a_flag_by_its_name_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag of a record's field needs no more than its name in the row."""
    verb = VERBS["classify-tokens"]
    monkeypatch.setitem(VERBS, "classify-tokens", verb._replace(flags="texts aggregation"))
    parameter = signature(command_of_verb("classify-tokens")).parameters["aggregation"]
    assert parameter.default.envvar == "ATTENDANT_AGGREGATION"
    assert parameter.default.help == "How tokens make a word; none given is first."
    flag = CallFlag({each.name: each for each in abouts(_record(verb))}["aggregation"], {})
    assert flag.choices == ("none", "simple", "first", "average", "max")
    assert flag.value_of("simple") == "simple"


def test_every_request_of_a_task_has_a_command_or_is_named_here() -> None:
    asked = {_record(verb) for verb in VERBS.values() if verb.call != "record:Call" and verb.call}
    without = {call.__name__ for call in ANSWERS if call not in asked}
    assert without == {"Similarity", "Tokenize", "Detokenize", "ListModels", "AttendImage"}


def test_the_table_imports_no_record_and_nothing_that_draws() -> None:
    module = import_module("commands.ask.verbs")
    names = {getattr(each, "__module__", "") for each in vars(module).values()}
    assert not {each for each in names if str(each).startswith(("service", "rich", "typer"))}


def _record(verb: Any) -> Any:
    return named("service.calls.", verb.call)
