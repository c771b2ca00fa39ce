"""The names of forms of calls and of thoughts, as settings and manifests choose them. Pure."""

from collections.abc import Iterable, Mapping

from service.families.call_forms import CALL_FORMS
from service.families.thoughts import FORMS

NONE = "none"  # the model has no such form, whatever its template says
TOOL_CALL, REASONING = "tool_call_form", "reasoning_form"
NAMES: Mapping[str, tuple[str, ...]] = {
    TOOL_CALL: (*CALL_FORMS, NONE),
    REASONING: (*FORMS, NONE),
}


def unknown(kind: str, name: object) -> str:
    """Why there is no form of that name; empty where there is, or where none is chosen."""
    if name == "" or name in NAMES[kind]:
        return ""
    return f"{kind} is {name!r}, expected one of {', '.join(NAMES[kind])}"


def forms_of(text: str) -> dict[str, str]:
    """Forms by the names of their models, from `FORM` or `MODEL=FORM,...`; "" names all others."""
    parts = [each.strip() for each in text.split(",") if each.strip()]
    pairs = [each.rpartition("=") for each in parts]
    return {model.strip(): form.strip() for model, _, form in pairs}


def chosen(choices: Iterable[str], found: str) -> str:
    """The first form that is chosen, else the one that was found; empty for none."""
    form = next(filter(None, choices), found)
    return "" if form == NONE else form
