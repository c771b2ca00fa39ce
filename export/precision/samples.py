"""Texts that stand for those to come: int8 finds its scales on some, and is checked on others.

By default they are the messages that come with the project and paragraphs of Python's
own documentation: short and long, chat and prose. Nothing is downloaded.
"""

# ruff: noqa: N806 - suffixes are array layouts: H heads, S tokens, Dh head size

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
import onnx
from tokenizers import Tokenizer

from export.errors import ExportError
from export.graphs.graph import open_session
from export.graphs.int8_cache import Largest
from models.data.generated.python_topics import python_topics
from models.data.tokenizer import cutting_copy
from service.contract.tensors import TensorSpec
from service.generation.decoders.decoder import SLOTS
from service.generation.decoders.shape import DecoderShape

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


def largest_values(
    model: onnx.ModelProto,
    rows: Sequence[Sequence[int]],
    on_row: Callable[[int], None] = lambda _: None,
) -> Largest:
    """The largest value of every channel of keys and values, by a float32 graph, over `rows`.

    Zeros where there are no rows; a row has at least one token.
    """
    session = open_session(model)
    shape = DecoderShape.of(session.signature, SLOTS)
    caches = [spec.name for spec in session.signature.outputs if spec.name != "logits"]
    largest = {name: np.zeros((shape.num_kv_heads, shape.head_size)) for name in caches}
    for done, row in enumerate(rows, start=1):
        feeds = prompt_of(row, session.signature.inputs)
        for name, cache_1HSDh in zip(caches, session.run(feeds, caches), strict=True):
            np.maximum(largest[name], np.abs(cache_1HSDh[0]).max(axis=1), out=largest[name])
        on_row(done)
    return largest


def prompt_of(
    row: Sequence[int], inputs: Sequence[TensorSpec], num_logits: int = 1
) -> dict[str, np.ndarray]:
    """Inputs with which a float32 graph reads one row from its start; it gives the last logits."""
    num_tokens = len(row)
    given = {
        "input_ids": np.array([row]),
        "position_ids": np.arange(num_tokens)[None],
        "seqlens_k": np.array([num_tokens - 1], np.int32),
        "total_sequence_length": np.array(num_tokens, np.int32),
        "logit_positions": np.arange(num_tokens - num_logits, num_tokens),
    }

    def empty_cache(spec: TensorSpec) -> np.ndarray:
        if spec.name.startswith("past_state."):
            return np.zeros((1, *spec.dims[1:]), np.float32)
        _, num_heads, _, head_size = spec.dims
        return np.zeros((1, num_heads, num_tokens, head_size), np.float32)

    return {
        spec.name: given[spec.name] if spec.name in given else empty_cache(spec) for spec in inputs
    }
