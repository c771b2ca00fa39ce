"""Fields of requests that have several forms, and work that several parts of a request are."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeAlias, TypeVar

import msgspec

from service.http.shared.peer_fields import unsupported
from service.http.status import invalid
from service.http.wire.json_faults import told

T = TypeVar("T")
Prompt: TypeAlias = str | list[int]  # text, or token ids
MAX_ID = 2**32 - 1
AT_ONCE = 8  # works that begin in one turn of the event loop
PROMPTS = "a text, token ids, a list of texts, or a list of lists of token ids"


def prompts_of(raw: msgspec.Raw, name: str, most: int) -> list[Prompt]:
    """A text, token ids, or a list of one of them, as a list. Raises `HttpError`."""
    value = _decoded(raw, name)
    if isinstance(value, str) or (isinstance(value, list) and value and _is_number(value[0])):
        _check_prompt(value, name, name)
        return [value]
    if not isinstance(value, list):
        raise invalid(f"{name} is {told(value)}, expected {PROMPTS}", name)
    check_count(len(value), name, most)
    for index, each in enumerate(value):
        _check_prompt(each, name, f"{name}[{index}]")
    return value


def texts_of(raw: msgspec.Raw, name: str, most: int) -> list[str]:
    """A text, or a list of them, as a list. Raises `HttpError`."""
    value = _decoded(raw, name)
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list):
        raise invalid(f"{name} is {told(texts)}, expected a text or a list of texts", name)
    check_count(len(texts), name, most)
    for index, each in enumerate(texts):
        if not isinstance(each, str):
            raise invalid(f"{name}[{index}] is {told(each)}, expected a text", name)
    return texts


def is_cut(truncate_prompt_tokens: int | None, max_tokens: int | None = None) -> bool:
    """Whether long texts are cut to the model's length, -1 or the number of its tokens or more.

    Raises `HttpError` for another length.
    """
    is_whole = max_tokens is not None and (truncate_prompt_tokens or 0) >= max_tokens
    if truncate_prompt_tokens not in (None, -1) and not is_whole:
        raise unsupported("truncate_prompt_tokens", "-1 cuts texts to the model's length")
    return truncate_prompt_tokens is not None


def check_count(count: int, name: str, most: int) -> None:
    if not 1 <= count <= most:
        setting = " (--max-texts)" if count else ""
        raise invalid(f"{name} has {count} elements, expected 1 to {most}{setting}", name)


async def together(works: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of works that run at the same time; the first error ends all of them."""
    if len(works) == 1:
        return [await works[0]]
    tasks = []
    try:
        async with asyncio.TaskGroup() as group:
            for place, work in enumerate(works):
                tasks.append(group.create_task(work))
                if place % AT_ONCE == AT_ONCE - 1:  # others have the event loop in between
                    await asyncio.sleep(0)
    except BaseExceptionGroup as several:
        for work in works[len(tasks) :]:
            work.close()
        raise several.exceptions[0] from None
    return [task.result() for task in tasks]


def _decoded(raw: msgspec.Raw, name: str) -> object:
    """The value of a field, of which reading the body has checked no more than the grammar."""
    try:
        return msgspec.json.decode(raw)
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise invalid(f"{name} is not UTF-8: a text has the byte 0x{byte:02x}", name) from error
    except (msgspec.DecodeError, ValueError) as error:  # a number too large
        raise invalid(f"{name} cannot be read: {error}", name) from error


def _check_prompt(value: object, name: str, path: str) -> None:
    """Raise `HttpError` for what is neither a text nor token ids."""
    if isinstance(value, str):
        return
    if not isinstance(value, list):
        raise invalid(f"{path} is {told(value)}, expected a text or a list of token ids", name)
    if not value:
        raise invalid(f"{path} has 0 token ids, expected 1 or more", name)
    for index, each in enumerate(value):
        if type(each) is not int or not 0 <= each <= MAX_ID:
            raise invalid(f"{path}[{index}] is {told(each)}, expected a token id", name)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
