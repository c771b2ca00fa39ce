"""The special tokens in a mark of a model's family, and the texts between them. Pure."""

import re
from collections.abc import Mapping


def marks_in(text: str, special_tokens: Mapping[str, int]) -> list[str | int]:
    """Texts and ids of special tokens, in turn; the longest token at each place."""
    known = sorted((each for each in special_tokens if each and each in text), key=len)
    if not known:
        return [text] if text else []
    pattern = f"({'|'.join(map(re.escape, reversed(known)))})"
    parts = re.split(pattern, text)
    return [special_tokens.get(part, part) for part in parts if part]
