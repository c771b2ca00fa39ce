"""The words that may stand at the masks of texts: a softmax over the vocabulary at each mask.

Over the Open Inference Protocol the request parameters `top_k` and `candidates` (words with spaces
between) choose the number of fills, or the words.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import asdict

from service.calls import reading as records
from service.calls.reading import FilledMask, FilledText, FillMask
from service.contract.tensors import Signature, TensorSpec
from service.errors import InvalidArgument, invalid_field
from service.serving.tasks.task import (
    BYTES,
    TEXT,
    Ask,
    Fields,
    GraphOutput,
    Method,
    Outputs,
    Parameters,
    TextReply,
    TextTask,
    TextTaskModel,
    column,
    row_fields,
)
from service.text.places import place_of
from service.text.tokenizer import EncodedText, Text

DEFAULT_TOP_K = 5
# A mask's logits are of the whole vocabulary, so few masks are much memory; and what is made of
# them is made on the event loop, a quarter of a millisecond for each.
MAX_MASKS_OF_TEXT = 16
MAX_MASKS_OF_REQUEST = 64
MAX_FILLS_OF_REQUEST = 16_384
# Candidates are looked up on the event loop, too.
MAX_CANDIDATES = 2_048
MAX_CANDIDATE_CHARACTERS = 256


@dataclass(frozen=True, slots=True)
class Fill:
    """One token of the vocabulary, and how likely it stands at a mask."""

    token_id: int
    logprob: float  # natural logarithm, of a softmax over the whole vocabulary

    @property
    def score(self) -> float:
        """Probability, 0 to 1."""
        return math.exp(self.logprob)


def best_fills(logits: np.ndarray, top_k: int) -> list[Fill]:
    """The `top_k` likeliest tokens of one mask's logits [V], best first; of equals the lower id."""
    least = np.partition(logits, -top_k)[-top_k]
    return _ranked(logits, np.flatnonzero(logits >= least), top_k)


def fills_among(logits: np.ndarray, token_ids: Sequence[int]) -> list[Fill]:
    """Fills of one mask by the given tokens, best first."""
    return _ranked(logits, np.array(token_ids), len(token_ids))


def _ranked(logits: np.ndarray, token_ids: np.ndarray, count: int) -> list[Fill]:
    largest = logits.max()  # exp() of what remains cannot overflow
    total = largest + np.log(np.exp(logits - largest).sum())
    best = token_ids[np.argsort(-logits[token_ids], kind="stable")[:count]]
    return list(map(Fill, best.tolist(), (logits[best] - total).tolist()))


@dataclass(frozen=True, slots=True)
class FillChoice:
    """The requested fills: the best, or the best among its candidates."""

    top_k: int
    candidate_ids: tuple[int, ...] = ()

    @classmethod
    def of(cls, model: TextTaskModel, top_k: int, candidates: Sequence[str]) -> "FillChoice":
        """The choice of a request, where 0 stands for the default. Raises `InvalidArgument`."""
        if top_k and candidates:
            raise invalid_field("top_k", f"is {top_k} and candidates are given: give one of them")
        if len(candidates) > MAX_CANDIDATES:
            raise invalid_field("candidates", f"are more than {MAX_CANDIDATES}, which is the limit")
        num_tokens = model.manifest.vocab_size or model.tokenizer.num_tokens
        if not 0 <= top_k <= num_tokens:
            raise invalid_field("top_k", f"is {top_k}, the model has {num_tokens} tokens")
        ids = tuple(dict.fromkeys(_candidate(model, word) for word in candidates))
        return cls(top_k or min(DEFAULT_TOP_K, num_tokens), ids)

    def fills(self, logits: np.ndarray) -> list[Fill]:
        """The fills of one mask from its logits [V], best first."""
        if self.candidate_ids:
            return fills_among(logits, self.candidate_ids)
        return best_fills(logits, self.top_k)

    @property
    def num_per_mask(self) -> int:
        return len(self.candidate_ids) or self.top_k


def _candidate(model: TextTaskModel, word: str) -> int:
    if len(word) > MAX_CANDIDATE_CHARACTERS:
        raise InvalidArgument(
            f"a candidate has {len(word)} characters, the server takes at most "
            f"{MAX_CANDIDATE_CHARACTERS}",
            "candidates",
        )
    ids = model.tokenizer.ids_of(word)
    if len(ids) != 1:
        pieces = ", ".join(map(model.tokenizer.spelling, ids)) or "none"
        raise InvalidArgument(
            f"candidate '{word}' is no token of the vocabulary: its tokens are {pieces}",
            "candidates",
        )
    if ids[0] >= (model.manifest.vocab_size or ids[0] + 1):
        raise InvalidArgument(
            f"candidate '{word}' is a token of the tokenizer (id {ids[0]}) that the model does not "
            f"know: it knows ids below {model.manifest.vocab_size}",
            "candidates",
        )
    return ids[0]


def _filled(model: TextTaskModel, choice: FillChoice, reply: TextReply) -> list[list[FilledMask]]:
    """The masks of each text, in their order."""
    num_fills = len(reply.values) * choice.num_per_mask
    if num_fills > MAX_FILLS_OF_REQUEST:
        raise InvalidArgument(
            f"{len(reply.values)} masks with {choice.num_per_mask} fills each are "
            f"{num_fills}, an answer has at most {MAX_FILLS_OF_REQUEST}"
        )
    spelling = model.tokenizer.spelling
    return [
        [
            FilledMask(
                start,
                end,
                [
                    records.Fill(fill.token_id, spelling(fill.token_id), fill.score, fill.logprob)
                    for fill in choice.fills(logits)
                ],
            )
            for (start, end), logits in zip(_places(model, row), rows, strict=True)
        ]
        for row, rows in zip(reply.rows, reply.per_text(), strict=True)
    ]


def _places(model: TextTaskModel, row: EncodedText) -> list[tuple[int, int]]:
    assert row.encoding is not None, "the task's rows are of masks"
    pairs = zip(row.encoding.ids, row.encoding.offsets, strict=True)
    return [place for token_id, place in pairs if token_id == model.manifest.mask_token_id]


def _check_masks(model: TextTaskModel, _: Sequence[Text], rows: Sequence[EncodedText]) -> None:
    counts = [int((row.input_ids == model.manifest.mask_token_id).sum()) for row in rows]
    for index, (row, count) in enumerate(zip(rows, counts, strict=True)):
        if not 1 <= count <= MAX_MASKS_OF_TEXT:
            mask = model.tokenizer.spelling(model.manifest.mask_token_id)
            where = " in the part that was kept" if row.is_truncated else ""
            reason = f"has {count} {mask}{where}, expected 1 to {MAX_MASKS_OF_TEXT}"
            raise place_of(index).refused(reason)
    if sum(counts) > MAX_MASKS_OF_REQUEST:
        raise InvalidArgument(
            f"the texts have {sum(counts)} masks in all, expected at most {MAX_MASKS_OF_REQUEST}"
        )


def _ask(call: FillMask, model: TextTaskModel) -> Ask:
    choice = FillChoice.of(model, call.top_k, call.candidates)

    def answer(reply: TextReply) -> Fields:
        pairs = zip(reply.rows, _filled(model, choice, reply), strict=True)
        return {"results": [FilledText(masks, **row_fields(row)) for row, masks in pairs]}

    return Ask(call.texts, answer)


def _tensors(
    model: TextTaskModel, parameters: Parameters
) -> Callable[[Sequence[Text], TextReply], Outputs]:
    """`fills`: a JSON list of masks for each text."""
    top_k = parameters.get("top_k", 0)
    if isinstance(top_k, bool) or not isinstance(top_k, int):
        raise InvalidArgument(f"the parameter top_k is {top_k!r}, expected a whole number")
    candidates = str(parameters.get("candidates", "")).split(maxsplit=MAX_CANDIDATES)
    choice = FillChoice.of(model, top_k, candidates)

    def read(_: Sequence[Text], reply: TextReply) -> Outputs:
        by_text = _filled(model, choice, reply)
        return {
            "fills": column(
                [json.dumps(list(map(_rounded, masks))).encode() for masks in by_text], object
            )
        }

    return read


def _rounded(mask: FilledMask) -> Fields:
    fills = [
        {**asdict(fill), "score": round(fill.score, 6), "logprob": round(fill.logprob, 6)}
        for fill in mask.fills
    ]
    return {**asdict(mask), "fills": fills}


FILL_MASK = TextTask(
    name="fill-mask",
    verb="fill masks",
    outputs=(GraphOutput("logits", lambda _: (-1,), "mask"),),
    signature=lambda _: Signature(TEXT, (TensorSpec("fills", BYTES, (1,)),)),  # JSON
    check=_check_masks,
    tensors=_tensors,
)
METHODS = (Method(FILL_MASK, FillMask, _ask),)
