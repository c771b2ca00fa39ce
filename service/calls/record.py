"""The fields of calls: what each says of itself, and the checks that are made of it.

    class Embed(Call, frozen=True):
        texts: Annotated[Sequence[str], said("Texts to embed.", counted=True)] = ()

What a field says is msgspec's own `Meta`, so that types and JSON schemas need no second reader.
Bounds are checked here and not by msgspec: the error's text is the house's, at every front. Knows
nothing of messages, bodies or models.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, NamedTuple, Self, TypeAlias, get_args, get_origin, get_type_hints

import msgspec

from service.errors import invalid_field

U32 = 2**32 - 1
MAX_SHOWN_CHARACTERS = 64  # of a wrong value, in the error about it
Texts: TypeAlias = Sequence[str]


class About(NamedTuple):
    """A field's account of itself."""

    name: str
    kind: Any  # its type
    default: Any  # msgspec.NODEFAULT where a request must have it
    help: str
    says: dict[str, Any]  # low, high, counted, instead_of, also: see `said`


class Bound(NamedTuple):
    """The numbers that a field may have; those of a whole number are whole."""

    name: str
    low: float
    high: float

    def __str__(self) -> str:
        ends = self.low, self.high
        low, high = (str(end) if isinstance(end, int) else f"{end:g}" for end in ends)
        return f"{low} to {high}"


def said(help: str, **says: object) -> msgspec.Meta:  # noqa: A002 - as Typer has it
    """Account of a field: its help, and what is known of its values.

    `low` and `high` are its bounds. The elements of `counted` fields are what a request has at most
    `--max-texts` of; a field that says `instead_of` may stand in place of a counted one. `paired`
    fields have an element, or a text, for each counted one. `also` has the field's names in the
    dialects that have it, by dialect; an empty name is the field's own. In a command line, an
    `argument` has no flag, and `flag` is a flag's name where that is not the field's.
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
        check_bounds(self)

    def also(self, **more: object) -> Self:
        """A copy of the request, with other values."""
        return msgspec.structs.replace(self, **more)

    def in_background(self) -> Self:
        """A copy that goes behind all other requests; one that computes nothing stays as it is."""
        if "background" in self.__struct_fields__:
            return self.also(background=True)
        return self.also(priority=U32) if "priority" in self.__struct_fields__ else self


def check_bounds(record: msgspec.Struct) -> None:
    """Raise `InvalidArgument` for a number outside its bounds; None is none."""
    for bound in bounds_of(type(record)):
        name, low, high = bound
        value = getattr(record, name)
        if value is not None and not low <= value <= high:  # nor is NaN
            raise invalid_field(name, f"is {shown(value)}, expected {bound}")


def shown(value: object) -> str:
    """A wrong value in an error, whatever it is: short, and of no cost to write."""
    if isinstance(value, int) and abs(value) >= 2**64:
        return f"a whole number of {value.bit_length()} bits"
    if isinstance(value, str):
        cut = value[:MAX_SHOWN_CHARACTERS]
        return repr(cut) if cut == value else f"{cut!r}..."
    if value is None or isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return "a list"
    return "an object" if isinstance(value, Mapping) else f"of type {type(value).__name__}"


@cache
def abouts(record: type[msgspec.Struct]) -> tuple[About, ...]:
    """Accounts of the fields of a record, in their order."""
    hints = get_type_hints(record, include_extras=True)
    return tuple(_about(field, hints[field.name]) for field in msgspec.structs.fields(record))


@cache
def counted(record: type[msgspec.Struct]) -> tuple[str, ...]:
    """The fields whose elements are counted: the first alone, and then with the next."""
    return tuple(each.name for each in abouts(record) if "counted" in each.says)


@cache
def instead(record: type[msgspec.Struct]) -> str:
    """The field that may stand in place of the counted ones, if there is one."""
    return next((each.name for each in abouts(record) if "instead_of" in each.says), "")


@cache
def names_in(dialect: str, record: type[msgspec.Struct]) -> dict[str, str]:
    """A dialect's names of the fields that it has, by the fields' own."""
    return {
        each.name: each.says["also"][dialect] or each.name
        for each in abouts(record)
        if dialect in each.says.get("also", ())
    }


@cache
def bounds_of(record: type[msgspec.Struct]) -> tuple[Bound, ...]:
    """The bounds of a record's numbers."""
    return tuple(
        Bound(each.name, each.says["low"], each.says["high"])
        for each in abouts(record)
        if "low" in each.says and get_origin(each.kind) is not Sequence
    )


def _about(field: msgspec.structs.FieldInfo, hint: object) -> About:  # a type
    kind, *metas = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    meta = next((each for each in metas if isinstance(each, msgspec.Meta)), said(""))
    made = field.default_factory
    default = field.default if made is msgspec.NODEFAULT else made()
    return About(field.name, kind, default, meta.description or "", dict(meta.extra or {}))
