"""The fields of every call as tables, from their records."""

from collections.abc import Iterable, Iterator

import msgspec

from commands.ask.call_flags import CallFlag
from service.calls.generation import Generate
from service.calls.methods import ANSWERS
from service.calls.record import About, Call, abouts

OF_ALL = Call.__struct_fields__


def tables() -> Iterator[str]:
    """A table for each request that has fields, and one for those that each has."""
    yield "\n## Fields of requests\n"
    yield "The command line has its flags of these.\n"
    yield "### Every request\n"
    yield from _table(abouts(Call))
    records: list[type[msgspec.Struct]] = [*ANSWERS, Generate]
    for record in records:
        own = [each for each in abouts(record) if each.help and each.name not in OF_ALL]
        if own:
            yield f"\n### {record.__name__}\n"
            yield from _table(own)
    yield ""


def _table(fields: Iterable[About]) -> Iterator[str]:
    yield "| field | values | meaning |"
    yield "|---|---|---|"
    for each in fields:
        text = each.help.replace("*", r"\*").replace("|", r"\|")
        yield f"| `{each.name}` | {_values(each)} | {text} |"


def _values(about: About) -> str:
    """The bounds of a number, the values of a choice, or what a list has at most."""
    says = about.says
    if "low" in says:
        return f"{says['low']:,} to {says['high']:,}"
    if "most" in says:
        return f"at most {says['most']:,}"
    if choices := CallFlag(about, {}).choices:
        return ", ".join(f"`{each}`" for each in choices)
    return "required" if about.default is msgspec.NODEFAULT else ""
