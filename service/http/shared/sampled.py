"""The parameters of generation that a dialect has, as fields of its bodies: made of the record.

Their names, bounds and helps are those that `Sampling` says; null is as good as absent.
"""

from collections.abc import Mapping
from typing import Annotated, Any, get_args, get_origin

import msgspec

from service.calls.record import About, abouts, names_in, said
from service.calls.sampling import Sampling
from service.http.numbers import Whole


def parameters_in(
    dialect: str, base: type[msgspec.Struct] = msgspec.Struct
) -> type[msgspec.Struct]:
    """A structure of the fields that a dialect shares with `Sampling`, each of them optional."""
    names = names_in(dialect, Sampling)
    return msgspec.defstruct(
        f"Parameters of {dialect}",
        [(names[each.name], _kind(each), None) for each in abouts(Sampling) if each.name in names],
        bases=(base,),
        kw_only=True,
        module=__name__,
    )


def named_in(body: object, dialect: str) -> dict[str, Any]:
    """The parameters that a body names, as the record has them."""
    values: dict[str, Any] = {}
    names = names_in(dialect, Sampling)
    for each in abouts(Sampling):
        value = getattr(body, names[each.name]) if each.name in names else None
        aka: Mapping[Any, Any] = each.says.get("aka", {})
        value = aka.get(value, value) if aka else value
        if value is not None:
            values[each.name] = tuple(value) if isinstance(value, list) else value
    return values


def _kind(about: About) -> object:
    """The type of a field in a body: whole numbers may have a fraction of zero."""
    kinds = about.kind, *get_args(about.kind)
    if get_origin(about.kind) is tuple:
        kind: Any = list[str] if str in kinds else list[int]
    elif get_origin(about.kind) is Mapping:
        kind = dict[str, float]  # whose keys are token ids
    else:
        kind = next(_KINDS[each] for each in kinds if each in _KINDS)
    bounds = {name: about.says[name] for name in ("low", "high") if name in about.says}
    return Annotated[kind | None, said(about.help, **bounds)]


_KINDS: dict[Any, Any] = {float: float, int: Whole, bool: bool, str: str}
