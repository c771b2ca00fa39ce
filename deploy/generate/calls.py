"""Tables of docs/reference/calls.md: fields of each request, and sampling parameters."""

from collections.abc import Iterator
from types import ModuleType

import msgspec

from service.calls import features, generation, images, reading, texts, tokens
from service.calls.record import U32, About, Call, abouts
from service.calls.sampling import Sampling

MODULES: tuple[ModuleType, ...] = (texts, reading, features, images, tokens, generation)
DIALECTS = {
    "openai": "OpenAI",
    "cohere": "Cohere",
    "huggingface": "Hugging Face",
    "tgi": "text-generation-inference",
}
COMMON = set(Call.__struct_fields__)  # which every call has


def tables() -> Iterator[str]:
    """Lines of a table for each record of a request."""
    for module in MODULES:
        for record in vars(module).values():
            if isinstance(record, type) and record in Call.__subclasses__():
                yield from _table(record.__name__, record)
    yield from _table("Sampling parameters", Sampling)


def _table(title: str, record: type[msgspec.Struct]) -> Iterator[str]:
    yield f"\n### {title}\n"
    yield "| field | default | values | meaning | elsewhere |"
    yield "|---|---|---|---|---|"
    for about in abouts(record):
        if about.name not in COMMON and about.help:
            text = about.help.replace("|", r"\|")
            cells = [_default(about), _values(about), text, _elsewhere(about)]
            note = " (not with beams)" if "off_with_beams" in about.says else ""
            yield f"| `{about.name}`{note} | {' | '.join(cells)} |"


def _default(about: About) -> str:
    """A number or text that stands for a field that a request leaves out."""
    value = about.default
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return ""
    return value if isinstance(value, str) else f"{value:g}"


def _values(about: About) -> str:
    """Bounds of a number, or of the number of elements."""
    says = about.says
    if says.get("counted"):
        return "1 to `--max-texts`"
    if "low" in says:
        low = _number(says["low"])
        return f"at least {low}" if says["high"] >= U32 else f"{low} to {_number(says['high'])}"
    limits = [f"{_number(says['most'])} {says['unit']}"] if "unit" in says else []
    if "longest" in says:
        limits.append(f"{_number(says['longest'])} characters")
    return f"at most {' of '.join(limits)}" if limits else ""


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _elsewhere(about: About) -> str:
    """Names of the field in other dialects."""
    names: dict[str, list[str]] = {}
    for dialect, name in about.says.get("also", {}).items():
        names.setdefault(name or about.name, []).append(DIALECTS[dialect])
    return "; ".join(f"{', '.join(dialects)} `{name}`" for name, dialects in names.items())
