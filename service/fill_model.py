"""A text model that says what may stand at the masks of texts.

Over the Open Inference Protocol the request parameters `top_k` and `candidates` (words with spaces
between) say how many fills are wanted, or which.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from service.errors import InvalidArgument
from service.fills import Fill, best_fills, fills_among
from service.models import InferReply, InferRequest, TextModel, TextReply
from service.tokenizer import EncodedText, Text

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
class WantedFills:
    """The best, or the best among some."""

    top_k: int
    candidate_ids: tuple[int, ...] = ()

    def of(self, logits: np.ndarray) -> list[Fill]:
        if self.candidate_ids:
            return fills_among(logits, self.candidate_ids)
        return best_fills(logits, self.top_k)

    @property
    def num_per_mask(self) -> int:
        return len(self.candidate_ids) or self.top_k


@dataclass(frozen=True, slots=True)
class FilledMask:
    """One mask of a text, [start, end) in its characters."""

    start: int
    end: int
    fills: list[Fill]


class FillMaskModel(TextModel):
    """Fills the masks of texts, each of which has one or more."""

    def wanted(self, top_k: int, candidates: Sequence[str]) -> WantedFills:
        """What a request wants; 0 stands for the default. `InvalidArgument` where it cannot be."""
        if top_k and candidates:
            raise InvalidArgument(f"top_k is {top_k} and candidates are given: give one of them")
        if len(candidates) > MAX_CANDIDATES:
            raise InvalidArgument(f"candidates are more than {MAX_CANDIDATES}, which is the limit")
        num_tokens = self.tokenizer.num_tokens
        if not 0 <= top_k <= num_tokens:
            raise InvalidArgument(f"top_k is {top_k}, the model has {num_tokens} tokens")
        ids = tuple(dict.fromkeys(map(self._candidate, candidates)))
        return WantedFills(top_k or min(DEFAULT_TOP_K, num_tokens), ids)

    def filled(self, reply: TextReply, wanted: WantedFills) -> list[list[FilledMask]]:
        """The masks of each text, in their order."""
        num_fills = len(reply.values) * wanted.num_per_mask
        if num_fills > MAX_FILLS_OF_REQUEST:
            raise InvalidArgument(
                f"{len(reply.values)} masks with {wanted.num_per_mask} fills each are "
                f"{num_fills}, an answer has at most {MAX_FILLS_OF_REQUEST}"
            )
        return [
            [
                FilledMask(*place, wanted.of(logits))
                for place, logits in zip(self._places(row), rows, strict=True)
            ]
            for row, rows in zip(reply.rows, reply.per_text(), strict=True)
        ]

    async def _encode(self, texts: Sequence[Text], can_truncate: bool) -> list[EncodedText]:
        rows = await super()._encode(texts, can_truncate)
        counts = [int((row.input_ids == self.manifest.mask_token_id).sum()) for row in rows]
        for index, (row, count) in enumerate(zip(rows, counts, strict=True)):
            if not 1 <= count <= MAX_MASKS_OF_TEXT:
                mask = self.tokenizer.spelling(self.manifest.mask_token_id)
                where = " in the part that was kept" if row.is_truncated else ""
                raise InvalidArgument(
                    f"text {index} has {count} {mask}{where}, expected 1 to {MAX_MASKS_OF_TEXT}"
                )
        if sum(counts) > MAX_MASKS_OF_REQUEST:
            raise InvalidArgument(
                f"the texts have {sum(counts)} masks in all, expected at most "
                f"{MAX_MASKS_OF_REQUEST}"
            )
        return rows

    async def _compute_reply(self, request: InferRequest) -> InferReply:
        with self.counted_failures(request.caller.received_s):
            self._wanted_by(request)  # before any work
        return await super()._compute_reply(request)

    def _outputs_of(self, reply: TextReply, request: InferRequest) -> dict[str, np.ndarray]:
        """`fills`: a JSON list of masks for each text."""
        masks_by_text = self.filled(reply, self._wanted_by(request))
        found = [json.dumps(list(map(self._fields, masks))).encode() for masks in masks_by_text]
        return {"fills": np.array(found, object)[:, None]}

    def _wanted_by(self, request: InferRequest) -> WantedFills:
        top_k = request.parameters.get("top_k", 0)
        if isinstance(top_k, bool) or not isinstance(top_k, int):
            raise InvalidArgument(f"the parameter top_k is {top_k!r}, expected a whole number")
        candidates = str(request.parameters.get("candidates", ""))
        return self.wanted(top_k, candidates.split(maxsplit=MAX_CANDIDATES))

    def _fields(self, mask: FilledMask) -> dict[str, object]:
        fills = [
            {
                "token_id": fill.token_id,
                "token": self.tokenizer.spelling(fill.token_id),
                "score": round(fill.score, 6),
                "logprob": round(fill.logprob, 6),
            }
            for fill in mask.fills
        ]
        return {"start": mask.start, "end": mask.end, "fills": fills}

    def _places(self, row: EncodedText) -> list[tuple[int, int]]:
        assert row.encoding is not None, "its task's rows are of masks"
        pairs = zip(row.encoding.ids, row.encoding.offsets, strict=True)
        return [place for token_id, place in pairs if token_id == self.manifest.mask_token_id]

    def _candidate(self, word: str) -> int:
        if len(word) > MAX_CANDIDATE_CHARACTERS:
            raise InvalidArgument(
                f"a candidate has {len(word)} characters, the server takes at most "
                f"{MAX_CANDIDATE_CHARACTERS}"
            )
        found = self.tokenizer.ids_of(word)
        if len(found) != 1:
            pieces = ", ".join(map(self.tokenizer.spelling, found)) or "none"
            raise InvalidArgument(
                f"candidate '{word}' is no token of the vocabulary: its tokens are {pieces}"
            )
        return found[0]
