"""Texts of files, and queries with their documents: what can be sent, and why something cannot."""

import json

from commands.ask.lines import EMPTY

# The fields of a line that is ranked by itself.
QUERY, DOCUMENTS = "query", "documents"
MAX_DOCUMENTS = 1_024  # of one line: half of what one request takes by default (--max-texts)


def checked_text(value: object, name: str, noun: str) -> tuple[str, str]:
    """A text, and the reason why it cannot be sent."""
    if value is None:
        return "", f"has no {noun} '{name}'"
    if not isinstance(value, str):
        return "", f"has a {noun} '{name}' of {type(value).__name__}, expected a text"
    if not value.strip():
        return "", EMPTY
    try:
        value.encode()
    except UnicodeEncodeError:
        return "", f"has a {noun} '{name}' that is no Unicode"
    return value, ""


def checked_ranking(query: object, documents: object) -> tuple[str, str]:
    """JSON of a query and its documents, and the reason why they cannot be sent."""
    if not isinstance(query, str):
        return "", f"has no text '{QUERY}'"
    are_texts = isinstance(documents, list) and all(isinstance(each, str) for each in documents)
    if not are_texts or not documents:
        return "", f"has no list of texts '{DOCUMENTS}'"
    assert isinstance(documents, list), "it was checked"
    if len(documents) > MAX_DOCUMENTS:
        return "", f"has {len(documents)} documents, expected at most {MAX_DOCUMENTS}"
    text = json.dumps([query, documents], ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return "", "has a text that is no Unicode"
    return text, ""
