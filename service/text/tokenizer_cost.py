"""Cost of a tokenizer's file: how far a text can grow, and whether its time is known.

A file comes with weights, and is a program of a kind: steps that replace characters multiply a
text, and a regular expression that tries all ways to match takes time without bound. Knows nothing
of texts or threads.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

import tokenizers

from service.errors import LoadError

MAX_IDS = 2**24  # the largest published vocabularies have 262,144
MAX_GROWTH = 40  # NFKC makes 33 bytes of the 3 of U+FDFA
MAX_WORD = 1_000  # characters of a word that WordPiece compares with the vocabulary: 100 is usual
# The patterns of published vocabularies, each of which takes about the same time per character.
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_END = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_WORD = r"[^\r\n\p{L}\p{N}]?"
_CASED_END = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_CASED = rf"{_WORD}{_UPPER}*{_LOWER}+|{_WORD}{_UPPER}+{_LOWER}*"
_OPTIONAL = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
KNOWN_PATTERNS = frozenset(
    {
        rf"{_CONTRACTIONS}|{_LETTERS}|\p{{N}}{{1,3}}|{_END}",  # Llama 3, OLMo 2, Phi-4
        rf"{_CONTRACTIONS}|{_LETTERS}|\p{{N}}|{_END}",  # Qwen
        rf"{_CASED}|\p{{N}}|{_CASED_END}",  # Mistral's Tekken
        rf"{_WORD}{_UPPER}*{_LOWER}+{_OPTIONAL}|{_WORD}{_UPPER}+{_LOWER}*{_OPTIONAL}"
        rf"|\p{{N}}{{1,3}}|{_CASED_END}",  # o200k
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",  # GPT-2
        " {2,}",
        r"\s+",
        r"\d",
        r"\d{1,3}",
        r"\p{N}",
        r"\p{N}{1,3}",
        r"[\r\n]",
    }
)


def check_ids(tokenizer: tokenizers.Tokenizer, name: str) -> None:
    """Raise `LoadError` for an id that no vocabulary is large enough to have.

    Tables have a place for each, also the library's own when it writes a tokenizer.
    """
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=0)
    if largest >= MAX_IDS:
        raise LoadError(f"{name} has the id {largest}, the server takes up to {MAX_IDS - 1}")


def check_growth(tokenizer: tokenizers.Tokenizer, name: str) -> None:
    """Raise `LoadError` where a text may become more than `MAX_GROWTH` times as long."""
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        growth = prod(_growth(step) for step in _steps(getattr(tokenizer, part)))
        if growth > MAX_GROWTH:
            raise LoadError(
                f"{name}: its {part} may make a text {growth} times as long, the server takes at "
                f"most {MAX_GROWTH}"
            )


def has_known_time(tokenizer: tokenizers.Tokenizer) -> bool:
    """Whether a text takes a time that follows from its length."""
    patterns = {
        step["pattern"]["Regex"]
        for part in (tokenizer.normalizer, tokenizer.pre_tokenizer)
        for step in _steps(part)
        if isinstance(step.get("pattern"), Mapping) and "Regex" in step["pattern"]
    }
    longest = getattr(tokenizer.model, "max_input_chars_per_word", 0)
    return patterns <= KNOWN_PATTERNS and longest <= MAX_WORD


def _steps(part: Any) -> Iterator[Mapping[str, Any]]:  # noqa: ANN401 - one of the library's many
    """The steps of a normalizer, pre-tokenizer or decoder, those in others included."""
    if part is not None:
        yield from _objects_in(json.loads(part.__getstate__()))


def _objects_in(value: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, Mapping):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _objects_in(each)


def _growth(step: Mapping[str, Any]) -> int:
    """Number of bytes that may come of one."""
    added = step.get("content") if step.get("type") == "Replace" else step.get("prepend")
    if step.get("type") == "Precompiled":
        return _longest(step["precompiled_charsmap"])
    return max(1, len(added)) if isinstance(added, str) else 1


def _longest(encoded: str) -> int:
    """Bytes of the longest text that a SentencePiece's table puts in place of characters."""
    table = base64.b64decode(encoded)
    texts = table[4 + int.from_bytes(table[:4], "little") :]
    return max(1, *map(len, texts.split(b"\0")))
