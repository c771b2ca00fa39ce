"""The fields of calls: what each says of itself, and the checks that are made of it.

    class Embed(Call, frozen=True):
        texts: Annotated[Sequence[str], said("Texts to embed.", counted=True)] = ()

What a field says is msgspec's own `Meta`, so that types and JSON schemas need no second reader.
Bounds are checked here and not by msgspec: the error's text is the house's, at every front. Knows
nothing of messages, bodies or models.
"""

from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, NamedTuple, Self, TypeAlias, get_args, get_origin

import msgspec

from service.errors import invalid_field

U32 = 2**32 - 1
Texts: TypeAlias = Sequence[str]


class About(NamedTuple):
    """A field's account of itself."""

    name: str
    type: Any
    default: Any  # `msgspec.NODEFAULT` where it must be given
    help: str
    says: dict[str, Any]  # low, high, counted, instead_of, also: see `said`


def said(help: str, **says: Any) -> msgspec.Meta:  # noqa: A002, ANN401 - as Typer has it
    """Account of a field: its help, and what is known of its values.

    `low` and `high` are its bounds. The elements of `counted` fields are what a request has at most
    `--max-texts` of; a field that says `instead_of` may stand in place of a counted one. `paired`
    fields have an element, or a text, for each counted one. In a command line, an `argument` has
    no flag, and `flag` is the flag's name where it is not the field's.
    """
    bounds = {"minimum": says.get("low"), "maximum": says.get("high")}
    schema = {name: bound for name, bound in bounds.items() if bound is not None}
    return msgspec.Meta(description=help, extra_json_schema=schema, extra=says)


class Call(msgspec.Struct, frozen=True):
    """The fields of every request. Raises `InvalidArgument` for a number outside its bounds."""

    model: Annotated[str, said("Name of a served model.")]
    version: Annotated[
        str, said("Version of the model; by default the highest version that is served.")
    ] = ""

    def __post_init__(self) -> None:
        for name, low, high in _bounds(type(self)):
            if not low <= (value := getattr(self, name)) <= high:  # nor is NaN
                raise invalid_field(name, f"is {value}, expected {low} to {high}")

    def also(self, **more: object) -> Self:
        """A copy of the request, with other values."""
        return msgspec.structs.replace(self, **more)


@cache
def abouts(record: type[msgspec.Struct]) -> tuple[About, ...]:
    """Accounts of the fields of a record, in their order."""
    return tuple(map(_about, msgspec.structs.fields(record)))


@cache
def counted(record: type[msgspec.Struct]) -> tuple[str, ...]:
    """The fields whose elements are counted: the first alone, and then with the next."""
    return tuple(each.name for each in abouts(record) if "counted" in each.says)


@cache
def instead(record: type[msgspec.Struct]) -> str:
    """The field that may stand in place of the counted ones, if there is one."""
    return next((each.name for each in abouts(record) if "instead_of" in each.says), "")


@cache
def _bounds(record: type[msgspec.Struct]) -> tuple[tuple[str, float, float], ...]:
    return tuple(
        (each.name, each.says["low"], each.says["high"])
        for each in abouts(record)
        if "low" in each.says and get_origin(each.type) is not Sequence
    )


def _about(field: msgspec.structs.FieldInfo) -> About:
    kind, *metas = get_args(field.type) if get_origin(field.type) is Annotated else [field.type]
    meta = next((each for each in metas if isinstance(each, msgspec.Meta)), said(""))
    says = dict(meta.extra or {})
    return About(field.name, kind, field.default, meta.description or "", says)
