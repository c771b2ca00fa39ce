"""Read the JSON objects of a checkpoint folder; every failure names the file and the field.

Knows nothing about what they mean.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from models.errors import CheckpointError, SettingError


def read_json(path: Path) -> object:
    if not path.is_file():
        raise CheckpointError(f"{path} is missing")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from error


def read_object(path: Path, *, optional: bool = False) -> dict[str, Any]:
    """Return the JSON object in the file; `{}` if it is absent and may be."""
    if optional and not path.is_file():
        return {}
    value = read_json(path)
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} holds a {type(value).__name__}, but must hold an object")
    return value


@contextmanager
def fields_of(path: Path, values: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """While reading `values`, say which file lacks a field or has a wrong one."""
    try:
        yield values
    except KeyError as error:
        raise CheckpointError(f"{path} has no field {error}") from error
    except SettingError as error:
        raise CheckpointError(f"{path}: {error}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{path} has a field of the wrong type: {error}") from error


def check_only(values: Mapping[str, Any], supported: Mapping[str, object], path: Path) -> None:
    """Refuse by name each field that is given and has another value than the supported one."""
    for field, only in supported.items():
        if values.get(field, only) != only:
            raise CheckpointError(
                f"{path}: {field} is {values[field]!r}, but only {only!r} is supported"
            )
