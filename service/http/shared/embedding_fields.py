"""Fields of requests for embeddings that several APIs have: the prompt, the width, the encoding."""

import base64
import math
from array import array
from collections.abc import Sequence
from typing import TypeAlias, cast

import numpy as np

from service.calls.models import ModelFacts
from service.calls.texts import Embedding, Encoding
from service.http.shared.fields import MAX_ID
from service.http.status import invalid

Written: TypeAlias = str | list[float] | list[int]
FLOAT, BASE64 = "float", "base64"
# As Cohere, Jina and sentence-transformers call them.
ENCODINGS = FLOAT, "int8", "uint8", "binary", "ubinary"
TYPES = (*ENCODINGS, BASE64)
# What a text is for, and the names that publishers have for its prompt, the likeliest first.
PROMPTS_FOR = {
    "search_query": ("query", "search_query", "retrieval.query", "retrieval-query"),
    "search_document": (
        *("document", "passage", "corpus", "search_document"),
        *("retrieval.passage", "retrieval-document"),
    ),
    "classification": ("classification",),
    "clustering": ("clustering", "separation"),
}
PURPOSES = {
    "query": "search_query",
    "document": "search_document",
    "passage": "search_document",
    # Jina's
    "retrieval.query": "search_query",
    "retrieval.passage": "search_document",
    "separation": "clustering",
}


def prompt_for(model: ModelFacts, purpose: str, field: str = "input_type") -> str:
    """The name of the model's prompt for a purpose; empty where it has none. Raises `HttpError`."""
    known = PROMPTS_FOR.get(PURPOSES.get(purpose, purpose))
    if known is None:
        expected = ", ".join((*PROMPTS_FOR, *PURPOSES))
        raise invalid(f"{field} is '{purpose[:64]}', expected one of {expected}", field)
    names = {prompt.name.lower(): prompt.name for prompt in model.prompts}
    return next((names[name] for name in known if name in names), "")


def width_in(dimensions: int | None, field: str = "dimensions") -> int:
    """The number of values as the typed API has it, 0 for all. Raises `HttpError`."""
    return 0 if dimensions is None else whole_in(dimensions, field, 1)


def whole_in(number: int, field: str, least: int) -> int:
    """The number, if the typed API's field can hold it. Raises `HttpError`."""
    if not least <= number <= MAX_ID:
        expected = f"{least} or more" if number < least else f"at most {MAX_ID}"
        raise invalid(f"{field} is {number}, expected {expected}", field)
    return number


def unit_vector(values: Sequence[float]) -> list[float]:
    """The vector of length 1; one without direction stays what it is."""
    norm = math.sqrt(math.fsum(value * value for value in values)) or 1.0
    return [value / norm for value in values]


def encoding_of(name: str, field: str) -> Encoding:
    """The encoding of that name; base64 is of floats. Raises `HttpError`."""
    if name not in TYPES:
        expected = ", ".join(TYPES)
        raise invalid(f"{field} is '{name[:64]}', expected one of {expected}", field)
    return cast("Encoding", FLOAT if name == BASE64 else name)


def written(
    result: Embedding, name: str, *, is_base64: bool = False, is_unit: bool = False
) -> Written:
    """One vector in an encoding: numbers, or base64 of them, floats as little-endian float32.

    With `is_unit` floats have length 1.
    """
    if name in (FLOAT, BASE64):
        values = np.asarray(result.values, "<f4")
        if is_unit:
            values = values / np.float32(np.linalg.norm(values) or 1.0)
        if is_base64 or name == BASE64:
            return base64.b64encode(values.tobytes()).decode()
        numbers: list[float] = values.tolist()
        return numbers
    (raw,) = (each.values for each in result.encoded if each.encoding == name)
    if is_base64:
        return base64.b64encode(raw).decode()
    return array("B" if name.startswith("u") else "b", raw).tolist()
