"""Choices of a request for embeddings: the prompt in front of texts, width and encoding.

As sentence-transformers has it: a prompt by its name, or the default one; vectors cut to a width
that they were trained for; values in whole numbers (`quantize_embeddings`). Pure.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: N texts, D values

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from service.calls.texts import EncodedVector
from service.contract.embedder_use import MAX_PROMPT_CHARACTERS, EmbedderUse
from service.contract.manifest import Manifest
from service.errors import invalid_field
from service.serving.tasks.task import Choice, Parameters, TextTaskModel
from service.text.tokenizer import Text

FLOAT, WITH_RANGES = "float", ("int8", "uint8")
ENCODINGS = (FLOAT, *WITH_RANGES, "binary", "ubinary")
STEPS = 255  # of a range
MAX_SHOWN_CHARACTERS = 64  # of a name that is not known
MAX_SHOWN_NAMES = 32


def use_of(manifest: Manifest) -> EmbedderUse:
    """The use of a model, whose manifest may be older than it."""
    return manifest.embedder or EmbedderUse()


def prompt_of(
    model: TextTaskModel, name: str, text: str | None = None, field: str = "prompt_name"
) -> str:
    """Prompt in front of texts, by its name, itself, or by default; raises `InvalidArgument`.

    `text` is None where a request has none.
    """
    use = use_of(model.manifest)
    if text is not None:
        if name:
            raise invalid_field("prompt", f"stands in place of {field}, expected one of them")
        if len(text) > MAX_PROMPT_CHARACTERS:
            raise invalid_field(
                "prompt", f"has {len(text)} characters, expected at most {MAX_PROMPT_CHARACTERS}"
            )
        return text
    if not name:
        return use.prompts.get(use.default_prompt, "")
    if name not in use.prompts:
        shown = name if len(name) <= MAX_SHOWN_CHARACTERS else f"{name[:MAX_SHOWN_CHARACTERS]}..."
        names = list(use.prompts)
        more = ", ..." if len(names) > MAX_SHOWN_NAMES else ""
        known = f"expected one of {', '.join(names[:MAX_SHOWN_NAMES])}{more}"
        none = f"but model '{model.name}' has no prompts: put the text itself in front"
        raise invalid_field(field, f"is '{shown}', {known if names else none}")
    return use.prompts[name]


def in_front(prompt: str, texts: Sequence[Text]) -> Sequence[Text]:
    """The texts with the prompt in front of each."""
    return [f"{prompt}{text}" for text in texts] if prompt else texts


def parameters_in_front(
    model: TextTaskModel, parameters: Parameters, texts: Sequence[Text]
) -> Sequence[Text]:
    """Texts behind a tensor request's prompt, of the parameters `prompt_name` and `prompt`."""
    text = parameters.get("prompt")
    prompt = prompt_of(
        model, str(parameters.get("prompt_name", "")), None if text is None else str(text)
    )
    return in_front(prompt, texts)


def width_of(manifest: Manifest, dimensions: object) -> int:  # a parameter of any type
    """The number of values that is requested, 0 for all. Raises `InvalidArgument`."""
    whole = manifest.embedding_size or manifest.sparse_size
    shorter = use_of(manifest).dimensions
    if not dimensions:
        return whole
    if isinstance(dimensions, bool) or dimensions not in (whole, *shorter):
        expected = (
            f"expected one of {', '.join(map(str, (whole, *shorter)))}"
            if shorter
            else f"expected {whole}: the model was not trained for shorter vectors"
        )
        raise invalid_field("dimensions", f"is {dimensions}, {expected}")
    return int(dimensions)


def encodings_of(manifest: Manifest, encodings: Sequence[Choice], width: int) -> tuple[str, ...]:
    """The encodings of a request by name, float for none. Raises `InvalidArgument`."""
    for choice in encodings:
        if isinstance(choice, int):
            raise invalid_field("encodings", f"has {choice}, expected 0 to {len(ENCODINGS)}")
    chosen = tuple(dict.fromkeys(str(each) or FLOAT for each in encodings)) or (FLOAT,)
    for each in chosen:
        if each in WITH_RANGES and use_of(manifest).range_of(width) is None:
            raise invalid_field(
                "encodings",
                f"has {each}, but the model's manifest has no ranges of its values: export it "
                "again, or ask for binary or ubinary",
            )
    return chosen


def encoded(vectors_ND: np.ndarray, encoding: str, use: EmbedderUse) -> np.ndarray:
    """[N, D] of int8 or uint8; of bits [N, D / 8], rounded up."""
    if encoding in WITH_RANGES:
        ranges = use.range_of(vectors_ND.shape[1])
        assert ranges is not None, "the request was checked"
        least_D, greatest_D = ranges
        step_D = (greatest_D - least_D) / STEPS
        step_D = np.where(step_D == 0, 1, step_D)
        steps_ND: np.ndarray = np.clip(np.floor((vectors_ND - least_D) / step_D), 0, STEPS)
        if encoding == "uint8":
            return steps_ND.astype(np.uint8)
        return (steps_ND - 128).astype(np.int8)
    bits: np.ndarray = np.packbits(vectors_ND > 0, axis=-1)
    return bits if encoding == "ubinary" else (bits.astype(np.int16) - 128).astype(np.int8)


def vector_fields(
    vectors_ND: np.ndarray, encodings: Sequence[str], use: EmbedderUse
) -> list[Mapping[str, Any]]:
    """Fields of an answer for each vector: the array, and its other encodings."""
    others = [each for each in encodings if each != FLOAT]
    written = [encoded(vectors_ND, each, use) for each in others]
    rows: list[Mapping[str, Any]] = []
    for index, vector in enumerate(vectors_ND):
        fields: dict[str, Any] = {"values": vector} if FLOAT in encodings else {}
        if others:
            fields["encoded"] = [
                EncodedVector(name, all_of[index].tobytes())
                for name, all_of in zip(others, written, strict=True)
            ]
        rows.append(fields)
    return rows
