"""Texts that stand for those to come: int8 finds its scales on some, and is checked on others.

By default they are the messages that come with the project and paragraphs of Python's
own documentation: short and long, chat and prose. Nothing is downloaded.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from itertools import count

import numpy as np
import onnx
from tokenizers import Tokenizer

from export.errors import ExportError
from export.graphs.int8_cache import Largest
from export.graphs.pieces import MAX_BYTES, Pieces
from export.graphs.tensors import Array
from models.data.generated.python_topics import python_topics
from models.data.tokenizer import cutting_copy
from service.contract.tensors import TensorSpec

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
    on_run: Callable[[int, int], None] = lambda *_: None,
    max_bytes: int = MAX_BYTES,
) -> Largest:
    """The largest value of every channel of keys and values, by a float32 graph, over `rows`.

    Each row has at least one token. `on_run` is given how many runs were made, and of how many.
    """
    caches = [output.name for output in model.graph.output if output.name != "logits"]
    largest = {name: np.zeros((1, 1)) for name in caches}
    pieces, num_runs = Pieces(model, caches, max_bytes), count(1)

    def see(name: str, cache: Array) -> None:  # [1, heads, tokens, size of a head]
        largest[name] = np.maximum(largest[name], np.abs(cache[0]).max(axis=1))

    feeds = [partial(prompt_of, row) for row in rows]
    for _ in pieces.run(feeds, see, lambda: on_run(next(num_runs), len(pieces) * len(rows))):
        pass
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
