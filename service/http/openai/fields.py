"""Fields of requests that have several forms, and work that several parts of a request are."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import msgspec
from attendant.v1 import generation_pb2 as pb

from service.http.status import HttpError, invalid

T = TypeVar("T")
Prompt: TypeAlias = str | list[int]  # text, or token ids
MAX_ID = 2**32 - 1


def prompts_of(raw: msgspec.Raw, name: str, most: int) -> list[Prompt]:
    """A text, token ids, or a list of one of them, as a list. Raises `HttpError`."""
    value = _decoded(raw, name)
    if isinstance(value, str) or _is_ids(value):
        value = [value]
    if not isinstance(value, list) or not all(isinstance(e, str) or _is_ids(e) for e in value):
        raise invalid(
            f"{name} is expected to be a text, token ids, a list of texts, or a list of lists of "
            "token ids",
            name,
        )
    check_count(len(value), name, most)
    return value


def texts_of(raw: msgspec.Raw, name: str, most: int) -> list[str]:
    """A text, or a list of them, as a list. Raises `HttpError`."""
    value = _decoded(raw, name)
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise invalid(f"{name} is expected to be a text or a list of texts", name)
    check_count(len(texts), name, most)
    return texts


def check_count(count: int, name: str, most: int) -> None:
    if not 1 <= count <= most:
        raise invalid(f"{name} has {count} elements, expected 1 to {most}", name)


def sampling_params_of(named: Mapping[str, Any]) -> pb.SamplingParams:
    """The message of these fields. Raises `HttpError` for a number that its field cannot hold."""
    try:
        return pb.SamplingParams(**named)
    except (ValueError, TypeError) as error:
        odd = next((name for name, value in named.items() if not _fits(name, value)), None)
        what = odd or "a sampling parameter"
        raise invalid(f"{what} is out of range: {error}", odd) from error


def unsupported(name: str, why: str) -> HttpError:
    """The refusal of a field whose meaning would be lost if it were ignored."""
    return invalid(f"{name} is not supported: {why}", name, "unsupported_parameter")


async def together(works: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of works that run at the same time; the first error ends all of them."""
    if len(works) == 1:
        return [await works[0]]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except BaseExceptionGroup as several:
        raise several.exceptions[0] from None
    return [task.result() for task in tasks]


def _fits(name: str, value: object) -> bool:
    """Whether a field of the message can hold a value."""
    fields: dict[str, Any] = {name: value}
    try:
        pb.SamplingParams(**fields)
    except (ValueError, TypeError):
        return False
    return True


def _decoded(raw: msgspec.Raw, name: str) -> Any:  # noqa: ANN401 - any JSON
    """The value of a field, of which reading the body has checked no more than the grammar."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, ValueError) as error:  # no UTF-8; a number too large
        raise invalid(f"{name} cannot be read: {error}", name) from error


def _is_ids(value: object) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(type(each) is int and 0 <= each <= MAX_ID for each in value)
    )
