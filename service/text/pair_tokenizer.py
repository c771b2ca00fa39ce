"""Pairs of texts to token ids, and a query with its documents, of which only these are cut.

The parts of a pair are tokenized by themselves and then joined, so that the tokens of a document
are those of the pair without the query's and the special ones.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from service.contract.manifest import DOCUMENT_PLACE, QUERY_PLACE
from service.errors import InputTooLong
from service.text.places import Place, place_of
from service.text.tokenizer import EncodedText, Text, TextTokenizer

QUERY = "query"


class QueriedDocuments(list[Text]):
    """Pairs of one query and a document each; 0 tokens bound no document."""

    def __init__(self, query: str, documents: Iterable[str], max_document_tokens: int = 0) -> None:
        super().__init__((query, document) for document in documents)
        self.query = query
        self.max_document_tokens = max_document_tokens


class PairTokenizer(TextTokenizer):
    """Encodes pairs; a pair of any texts is cut in the longer one, a document at its end."""

    def encode(self, texts: Sequence[Text], can_truncate: bool) -> list[EncodedText]:
        """One row per pair.

        Raises `InputTooLong` for a pair that is too long, or for a query that leaves no document
        any room.
        """
        if not isinstance(texts, QueriedDocuments):
            return super().encode(texts, can_truncate)
        query = self._whole.encode(texts.query, add_special_tokens=False)
        num_others = len(query.ids) + self._whole.num_special_tokens_to_add(is_pair=True)
        room = self._max_tokens - num_others
        bound = texts.max_document_tokens
        rows = []
        for index, encoding in enumerate(self._encode(list(texts))):
            num_document = len(encoding.ids) - num_others
            num_kept = min(num_document, bound or num_document)
            if num_kept > room and room < 1:
                raise InputTooLong(
                    f"has {len(query.ids)} tokens, the model takes at most "
                    f"{len(query.ids) + room - 1} and a document: shorten it",
                    QUERY,
                    subject=QUERY,
                )
            if num_kept > room and not can_truncate:
                raise self._too_long(texts, index, len(encoding.ids))
            num_kept = min(num_kept, room)
            if num_kept < num_document:
                document = self._whole.encode(texts[index][1], add_special_tokens=False)
                document.truncate(num_kept, direction=self._side)
                encoding = self._whole.post_process(query, document)
            ids, types = np.array([encoding.ids], np.int64), np.array([encoding.type_ids], np.int64)
            rows.append(EncodedText(ids, types, num_kept < num_document))
        return rows

    def _place(self, texts: Sequence[Text], index: int) -> Place:
        if not isinstance(texts, QueriedDocuments):
            return super()._place(texts, index)
        path = f"documents[{index}]"
        return Place(f"{path} with its {QUERY}", path, QUERY)


class TemplatePairTokenizer(PairTokenizer):
    """Encodes pairs as one text each: query and document in a template, of which the end is cut.

    What the tokenizer itself puts around a text is never cut, and no text of a request has special
    tokens: the spelling of one is a text as any other.
    """

    def __init__(
        self, path: Path, max_tokens: int, max_text_characters: int, template: str
    ) -> None:
        super().__init__(path, max_tokens, max_text_characters)
        self._before, rest = template.split(QUERY_PLACE)
        self._between = rest.removesuffix(DOCUMENT_PLACE)
        self._whole.encode_special_tokens = True
        self._room = max_tokens - self._whole.num_special_tokens_to_add(is_pair=False)

    def encode(self, texts: Sequence[Text], can_truncate: bool) -> list[EncodedText]:
        """One row per pair. Raises as `PairTokenizer`, and `InvalidArgument` for a single text."""
        bounds = self._bounds(texts)
        bodies = [f"{self._before}{text[0]}{self._between}{text[1]}" for text in texts]
        encodings = self._whole.encode_batch_fast(bodies, add_special_tokens=False)
        rows = []
        for index, (encoding, most) in enumerate(zip(encodings, bounds, strict=True)):
            num_tokens = len(encoding.ids)
            if num_tokens > self._room and not can_truncate:
                raise self._too_long(texts, index, num_tokens + self._max_tokens - self._room)
            if num_tokens > most:
                encoding.truncate(most)
            whole = self._whole.post_process(encoding)
            ids, types = np.array([whole.ids], np.int64), np.array([whole.type_ids], np.int64)
            rows.append(EncodedText(ids, types, num_tokens > most))
        return rows

    def _bounds(self, texts: Sequence[Text]) -> list[int]:
        """The tokens that each body may have."""
        if isinstance(texts, QueriedDocuments):
            num_others = self._num_others(texts.query, Place(QUERY, QUERY))
            most = num_others + (texts.max_document_tokens or self._room)
            return [min(self._room, most)] * len(texts)
        for index, text in enumerate(texts):
            if isinstance(text, str):
                raise place_of(index).refused("is no pair, and the model reads pairs")
            self._num_others(text[0], place_of(index))
        return [self._room] * len(texts)

    def _num_others(self, query: str, place: Place) -> int:
        """The tokens in front of a document; raises `InputTooLong` where they leave it no room."""
        before = f"{self._before}{query}{self._between}"
        num_tokens = len(self._whole.encode(before, add_special_tokens=False).ids)
        if num_tokens >= self._room:
            raise InputTooLong(
                f"has with the model's template {num_tokens} tokens in front of a document, "
                f"the model takes at most {self._room - 1}: shorten it",
                place.field,
                subject=place.subject,
            )
        return num_tokens
