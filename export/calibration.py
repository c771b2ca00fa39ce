"""Texts that stand for those to come: int8 finds its scales on some, and is checked on others.

By default they are the messages that come with the project and paragraphs of Python's
own documentation: short and long, chat and prose. Nothing is downloaded.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
from tokenizers import Tokenizer

from export.errors import ExportError
from models.data.python_topics import python_topics
from models.tokenizer import cutting_copy

NUM_TEXTS = 192  # more did not measure better
NUM_COMPARED = 160  # to compare answers on, none of them calibrated on: one is 0.6 per cent
CHECKED_SHARE = 4  # one of this number of texts is for the check
MIN_TEXTS = 2 * CHECKED_SHARE
MAX_TOKENS = 256  # of a text: beyond, activations are as before, and take as long again


@dataclass(frozen=True, slots=True)
class SampleRows:
    """Token ids of texts, cut as the server cuts."""

    calibration: list[list[int]]
    checked: list[list[int]]
    compared: tuple[str, ...]  # texts, those of `checked` first


def sample_rows(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    max_tokens: int,
    as_sample: Callable[[list[int]], list[int]] = lambda row: row,
) -> SampleRows:
    """Rows of a random choice of texts, or of `default_texts()` where there are none.

    `as_sample` makes of a text's tokens what the network is to read.
    """
    texts = texts or default_texts()
    if len(texts) < MIN_TEXTS:
        raise ExportError(
            f"there are {len(texts)} texts to calibrate on, at least {MIN_TEXTS} are needed"
        )
    everything = np.random.default_rng(0).permutation(len(texts))
    order, others = everything[:NUM_TEXTS], everything[NUM_TEXTS:]
    cutting = cutting_copy(tokenizer, min(max_tokens, MAX_TOKENS))
    encodings = cutting.encode_batch_fast([texts[i] for i in order])
    rows = [as_sample(encoding.ids) for encoding in encodings]
    checked = rows[::CHECKED_SHARE]
    compared = (*order[::CHECKED_SHARE], *others)[:NUM_COMPARED]
    return SampleRows(
        [row for i, row in enumerate(rows) if i % CHECKED_SHARE],
        checked,
        tuple(texts[i] for i in compared),
    )


def default_texts() -> tuple[str, ...]:
    """Texts, half of them messages and half paragraphs."""
    table = files("models.data").joinpath("spam.tsv").read_text(encoding="utf-8")
    messages = [line.split("\t", 1)[1] for line in table.splitlines() if "\t" in line]
    paragraphs = [text for topic in python_topics() for text in topic.split("\n\n") if text.strip()]
    generator = np.random.default_rng(0)
    chosen = generator.permutation(len(paragraphs))[: len(messages)]
    return (*messages, *(paragraphs[i] for i in chosen))
