"""The flag of a field of a call's record, which says its help and bounds once for every API."""

from collections.abc import Mapping, Sequence
from inspect import Parameter
from typing import Any, Literal, get_args, get_origin

from commands.flags import argument, flag
from service.calls.record import About


class CallFlag:
    """The flag of a field, or its argument, and its value back in the field's type.

    `differs` has what a command says in place of the field: `help`, `default`, `choices`, `low`,
    `high`, `panel`, and `variable`, which is by default ATTENDANT_ and the field's name.
    """

    def __init__(self, about: About, differs: Mapping[str, Any]) -> None:
        self._about = about
        self._says: dict[str, Any] = {"help": about.help, **about.says, **differs}
        self._is_list = get_origin(about.kind) in (Sequence, tuple)
        self.choices = self._says.get("choices") or _choices_of(about.kind)
        self.name: str = self._says.get("flag", about.name)

    def parameter(self) -> Parameter:
        name, kind, says = self._about.name, self._about.kind, self._says
        text, default = says["help"], says.get("default", self._about.default)
        if says.get("argument"):
            return argument(name, kind, text)
        if self.choices:
            kind, default = Literal[self.choices], says.get("default")
        elif self._is_list:
            kind, default = list[get_args(kind)[0]], None  # type: ignore[misc]
            is_said = "more than once" in text or "several" in text
            text = text if is_said else f"{text} May be given more than once."
        return flag(
            name,
            kind if default is not None else kind | None,
            default,
            text,
            says.get("variable") or f"ATTENDANT_{(self.name if self.choices else name).upper()}",
            spelt=(f"--{self.name}",) if self.name != name else (),
            panel=says.get("panel"),
            low=says.get("low"),
            high=says.get("high"),
        )

    def value_of(self, given: Any) -> Any:
        """The field's value."""
        if self.choices:
            given = given.replace("-", "_")
            return (given,) if self._is_list else given
        return tuple(given) if self._is_list else given


def _choices_of(kind: Any) -> tuple[str, ...]:
    """The named values of a field that is one of them, or a list of some."""
    if get_origin(kind) is Literal:
        return tuple(value for value in get_args(kind) if value)
    return next(filter(None, map(_choices_of, get_args(kind))), ())
