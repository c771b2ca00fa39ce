"""Items of comparisons: texts, pairs, conversations and images that both sides are given."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from export.certificates.case import Case, NotComparedError
from export.certificates.probes import (
    COMPARED,
    COMPARED_PAIRS,
    CONVERSATIONS,
    NUM_IMAGES,
    PAIRS,
    PROBES,
)
from models.errors import shown

Texts = tuple[str, ...]  # one text, or a pair
MAX_PROMPTS = 4  # of an embedder that are compared
PAIR_TASKS = "pair-scoring", "question-answering"


class Item(NamedTuple):
    """A value that both sides are given, and its name for people."""

    name: str
    value: Any


def _text_items(rows: Sequence[Texts], case: Case) -> list[Item]:
    """Items of the rows that the model takes as a whole."""
    items = [
        Item(f"the text {shown(' / '.join(row))}", row)
        for row in rows
        if len(case.encoded(row).ids) <= case.checkpoint.max_tokens
    ]
    if not items:
        raise NotComparedError(f"no text has {case.checkpoint.max_tokens} tokens at most")
    return items


def compared(case: Case) -> list[Item]:
    single = [(text,) for text in COMPARED]
    return _text_items(COMPARED_PAIRS if case.checkpoint.task in PAIR_TASKS else single, case)


def probes(case: Case) -> list[Item]:
    rows: list[Texts] = [(text,) for text in PROBES[: len(PROBES) - len(PAIRS)]]
    is_written = case.checkpoint.task == "text-generation"
    rows += [(text,) for text in PROBES[-len(PAIRS) :]] if is_written else list(PAIRS)
    return [Item(f"the text {shown(' / '.join(row))}", row) for row in rows]


def masked(case: Case) -> list[Item]:
    """Texts with a mask in place of a word."""
    mask = case.checkpoint.tokenizer.id_to_token(case.model.mask_token_id) or ""
    split = [text.split(" ") for text in COMPARED]
    rows = [(" ".join([*words[:2], mask, *words[3:]]),) for words in split]
    return _text_items(rows, case)


def prompted(case: Case) -> list[Item]:
    """Texts behind each of the first prompts, and behind that of the folder's own choice."""
    use = case.checkpoint.embedder
    names = [None, *list(use.prompts)[:MAX_PROMPTS]]
    return [
        Item(
            f"{item.name} with the prompt {name or use.default_prompt or 'none'}",
            (name, item.value[0]),
        )
        for name in names
        for item in _text_items([(text,) for text in COMPARED], case)
    ]


def conversations(_: Case) -> list[Item]:
    return [Item(f"the conversation of {each.name}", each) for each in CONVERSATIONS]


def images(case: Case) -> list[Item]:
    config = case.checkpoint.config
    random = torch.Generator().manual_seed(1)
    shape = (1, config.channels, config.height, config.width)
    return [
        Item(f"image {number} of noise", torch.randn(shape, generator=random))
        for number in range(NUM_IMAGES)
    ]
