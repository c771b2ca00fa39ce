"""A text model of word vectors: unknown words have no vector.

A text's vector is the mean of its known words, and unknown ones are left out. A text without any
known word would be zeros, and is refused with its unknown words named.
"""

from collections.abc import Sequence

from service.errors import InvalidArgument
from service.models import TextModel
from service.tokenizer import EncodedText, Text

MAX_NAMED_WORDS = 8  # in one error
MAX_WORD_CHARACTERS = 64


class WordVectorModel(TextModel):
    """Answers with vectors of texts that have a known word."""

    async def _encode(self, texts: Sequence[Text], can_truncate: bool) -> list[EncodedText]:
        rows = await super()._encode(texts, can_truncate)
        meaningless = self.tokenizer.meaningless_ids
        for index, (text, row) in enumerate(zip(texts, rows, strict=True)):
            if meaningless.issuperset(row.input_ids[0].tolist()):
                raise InvalidArgument(f"text {index} {self._reason(text)}")
        return rows

    def _reason(self, text: Text) -> str:
        """The error text for a text without a known word."""
        assert isinstance(text, str), "an embedder takes no pairs"
        words = list(dict.fromkeys(self.tokenizer.unknown_words(text)))
        if not words:
            return "has no words, and the model has vectors of words"
        named = ", ".join(f"'{word[:MAX_WORD_CHARACTERS]}'" for word in words[:MAX_NAMED_WORDS])
        more = f" and {len(words) - MAX_NAMED_WORDS} more" if len(words) > MAX_NAMED_WORDS else ""
        noun = "unknown word" if len(words) == 1 else "unknown words"
        return f"has no word that the model knows: {noun} {named}{more}"
