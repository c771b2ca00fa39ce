"""Read the JSON objects of a checkpoint folder; every failure names the file and the field.

Knows nothing about what they mean.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from models.errors import CheckpointError, SettingError, reason, shown

MAX_JSON_BYTES = 2**26  # a configuration may list every added token


def read_json(path: Path, most: int = MAX_JSON_BYTES) -> object:
    """The contents of a file of at most `most` bytes. Raises `CheckpointError`."""
    if not path.is_file():
        raise CheckpointError(f"{path} is missing: copy the whole folder of the checkpoint")
    size = path.stat().st_size
    if size > most:
        raise CheckpointError(f"{path} has {size} bytes, but must have at most {most}")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # ValueError: also a number of many digits
        raise CheckpointError(f"{path} is not JSON: {reason(error)}") from error


def read_object(
    path: Path, *, optional: bool = False, most: int = MAX_JSON_BYTES
) -> dict[str, Any]:
    """Return the JSON object in the file; `{}` if it is absent and may be."""
    if optional and not path.is_file():
        return {}
    value = read_json(path, most)
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} holds a {type(value).__name__}, but must hold an object")
    return value


@contextmanager
def fields_of(path: Path, values: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """While reading `values`, say which file lacks a field or has a wrong one."""
    try:
        yield values
    except KeyError as error:
        raise CheckpointError(f"{path} has no field {reason(error)}") from error
    except SettingError as error:
        raise CheckpointError(f"{path}: {error}") from error
    except (TypeError, ValueError, AttributeError, ArithmeticError, LookupError) as error:
        what = _text_in_place_of_a_number(values, error) or reason(error)
        raise CheckpointError(f"{path} has a field of the wrong type: {what}") from error


def _text_in_place_of_a_number(values: object, error: Exception) -> str:
    """Which field has the text that Python could not read as a number; empty where none has."""
    if not isinstance(values, Mapping):  # another kind of JSON in its place
        return ""
    for name, value in values.items():
        is_quoted = isinstance(value, str) and str(error).endswith(f": {value!r}")
        if is_quoted and isinstance(error, ValueError):
            return f"{name} is {shown(value)}, but must be a number"
    return ""


def check_whole(name: str, value: object, low: int, high: int) -> int:
    """The value, if it is a whole number in these bounds; raises `SettingError`."""
    is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not is_whole or not low <= value <= high:  # type: ignore[operator]
        limit = f"a whole number from {low} to {high}" if low < high else str(low)
        raise SettingError(name, value, limit)
    return int(value)  # type: ignore[call-overload, no-any-return]


def check_number(name: str, value: object, low: float, high: float) -> float:
    """The value, if it is a number in these bounds, as NaN is not; raises `SettingError`."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not low <= value <= high:  # type: ignore[operator]
        raise SettingError(name, value, f"a number from {low:g} to {high:g}")
    return float(value)  # type: ignore[arg-type]


def check_only(values: Mapping[str, Any], supported: Mapping[str, object], path: Path) -> None:
    """Refuse by name each field that is given and has another value than the supported one."""
    for field, only in supported.items():
        if values.get(field, only) != only:
            raise CheckpointError(
                f"{path}: {field} is {shown(values[field])}, but only {only!r} is supported"
            )


def check_known(values: Mapping[str, Any], known: Iterable[str], path: Path) -> None:
    """Refuse by name each field that is not known and says anything at all."""
    for field in sorted(values.keys() - set(known)):
        if values[field] not in (None, False):
            raise CheckpointError(
                f"{path}: {shown(field)} is {shown(values[field])}, which is not known, and might "
                "change what is computed"
            )
