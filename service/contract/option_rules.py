"""Rules for the values of options: from what `config.pbtxt` says to what ONNX Runtime takes.

No value passes that its rule did not read, so that a file can neither ask for what has no effect,
nor have code loaded or files written anywhere.
"""

import json
import re
from collections.abc import Callable, Mapping

from service.errors import LoadError

MAX_THREADS = 1_024
MAX_JSON = 1_024  # characters of a value that is JSON
MAX_SHOWN = 100  # characters of a wrong value in its message
Read = Callable[[str, str], str]  # a field's path and its value to ONNX Runtime's option


def _refusal(path: str, value: str, expected: str) -> LoadError:
    return LoadError(f"config.pbtxt: {path} is '{value[:MAX_SHOWN]}', expected {expected}")


def _value(expected: str, parse: Callable[[str], str | None]) -> Read:
    """A rule: `parse` gives ONNX Runtime's option, or None for an invalid value."""

    def read(path: str, value: str) -> str:
        parsed = parse(value)
        if parsed is None:
            raise _refusal(path, value, expected)
        return parsed

    return read


def meaning(expected: str, meanings: Mapping[str, str]) -> Read:
    """A rule for words and numbers, in any case."""
    return _value(expected, lambda value: meanings.get(value.lower()))


def one_of(*names: str, expected: str = "") -> Read:
    meanings = {name.lower(): name for name in names}
    return meaning(expected or f"one of {', '.join(names)}", meanings)


def whole(high: int) -> Read:
    def parse(value: str) -> str | None:
        is_short = value.isascii() and value.isdecimal() and len(value) <= len(str(2**63))
        return value if is_short and int(value) <= high else None

    return _value(f"a whole number of at most {high}", parse)


def like(pattern: str, expected: str) -> Read:
    return _value(expected, lambda value: value if re.fullmatch(pattern, value) else None)


def properties(devices: Mapping[str, Mapping[str, Read]], expected: str) -> Read:
    """A rule for a JSON object of devices' properties: `{"CPU": {"NUM_STREAMS": "2"}}`.

    OpenVINO would take a file's path in its place, and properties that name libraries and folders:
    the object is written anew, with nothing that was not looked at.
    """

    def read(path: str, value: str) -> str:
        refusal = _refusal(path, value, expected)
        try:
            values = json.loads(value) if len(value) <= MAX_JSON else None
        except (ValueError, RecursionError) as error:
            raise refusal from error
        if not isinstance(values, dict):
            raise refusal
        written: dict[str, dict[str, str]] = {}
        for device, properties in values.items():
            rules = devices.get(device)
            if rules is None or not isinstance(properties, dict):
                raise refusal
            for name, stated in properties.items():
                if name not in rules or not isinstance(stated, str | int):
                    raise refusal
                inner = rules[name](f"{path}: {device}.{name}", str(stated))
                written.setdefault(device, {})[name] = inner
        return json.dumps(written, sort_keys=True)

    return read


def each(rule: Read, names: str) -> dict[str, Read]:
    return dict.fromkeys(names.split(), rule)


_SWITCH_TEXT = "0, 1, false or true"
SWITCH = meaning(_SWITCH_TEXT, {"0": "0", "1": "1", "false": "0", "true": "1"})
WORD_SWITCH = meaning(_SWITCH_TEXT, {"0": "false", "1": "true", "false": "false", "true": "true"})
THREADS, BYTES, INT32 = whole(MAX_THREADS), whole(2**63 - 1), whole(2**31 - 1)
