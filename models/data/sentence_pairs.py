"""Cut documents into pairs of texts of which one follows the other, or does not.

Knows nothing about models or masks. A text is a few sentences in a row; of half of all pairs the
second is what follows the first, of the others it is as long a piece from elsewhere, so that its
length tells nothing (Devlin et al. 2018, section 3.1). Both texts end where their documents do.

The one idea: a pair is a function of the seed and its number, so a resumed run needs no stored
order. Numbers do not end; each draws its place, so that no text is always cut alike.
"""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from models.errors import DatasetError

SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
FOLLOWS, IS_ELSEWHERE = 0, 1  # what next-sentence prediction tells apart, in BERT's order
SHORT_SHARE = 0.1  # of pairs that are made short, so that short texts are learnt too; as for BERT
ENCODED_SENTENCES = 4_096  # at once, by all cores
MAX_DRAWS = 16  # of a document that is long enough for a second text from elsewhere


@dataclass(frozen=True, slots=True)
class Pair:
    """Token ids of two texts without special tokens; neither is empty."""

    first: np.ndarray  # int32 [tokens]
    second: np.ndarray
    relation: int  # FOLLOWS or IS_ELSEWHERE


@dataclass(frozen=True, slots=True)
class Sentences:
    """The tokens of all documents that have two sentences or more, and where these begin."""

    tokens: np.ndarray  # int32 [T]
    starts: np.ndarray  # int64 [N + 1]: where sentence i begins, and the last ends
    documents: np.ndarray  # int64 [documents + 1]: their first sentences, and N

    def __len__(self) -> int:
        return len(self.starts) - 1

    def document_of(self, sentence: int) -> tuple[int, int]:
        """The first sentence of its document, and the first of the next."""
        after = int(np.searchsorted(self.documents, sentence, side="right"))
        return int(self.documents[after - 1]), int(self.documents[after])

    def latest_before(self, end: int, num_tokens: int) -> int:
        """The last sentence that begins at least that many tokens before sentence `end`; or -1."""
        place = self.starts[end] - num_tokens
        return int(np.searchsorted(self.starts, place, side="right")) - 1

    @classmethod
    def of(cls, documents: Sequence[str], tokenizer: Tokenizer) -> "Sentences":
        """Raises DatasetError where no document has two sentences: nothing would follow."""
        plain = Tokenizer.from_str(tokenizer.to_str())
        plain.encode_special_tokens = True  # where a text spells one, it is ordinary characters
        rows: list[np.ndarray] = []
        first_sentences = [0]
        for document in documents:
            ids = [ids for ids in _encoded(sentences_of(document), plain) if len(ids)]
            if len(ids) > 1:
                rows += ids
                first_sentences.append(len(rows))
        if not rows:
            raise DatasetError(
                "no document has two sentences, so that one could follow another; a sentence ends "
                "with a full stop, a question or exclamation mark, or a line"
            )
        starts = np.cumsum([0, *map(len, rows)])
        return cls(np.concatenate(rows), starts, np.array(first_sentences))


def sentences_of(document: str) -> list[str]:
    return [part for part in SENTENCE_END.split(document) if part.strip()]


def _encoded(texts: Sequence[str], plain: Tokenizer) -> Iterator[np.ndarray]:
    for start in range(0, len(texts), ENCODED_SENTENCES):
        some = list(texts[start : start + ENCODED_SENTENCES])
        for encoding in plain.encode_batch_fast(some, add_special_tokens=False):
            yield np.array(encoding.ids, np.int32)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs without end, of at most `max_tokens` in both texts together."""

    sentences: Sentences
    max_tokens: int
    seed: str

    def __getitem__(self, number: int) -> Pair:
        source = random.Random(f"pair {number} of {self.seed}")  # noqa: S311 - to reproduce
        is_short = source.random() < SHORT_SHARE
        wanted = source.randint(2, self.max_tokens) if is_short else self.max_tokens
        first, middle, last = self._stretch(source, wanted)
        relation = source.choice((FOLLOWS, IS_ELSEWHERE))
        start, split, end = (int(self.sentences.starts[place]) for place in (first, middle, last))
        # What is cut off is what is furthest from where they meet.
        num_first, num_second = shortened(split - start, end - split, wanted)
        is_after = relation == FOLLOWS
        place = split if is_after else self._elsewhere(source, first, num_second)
        tokens = self.sentences.tokens
        second = tokens[place : min(place + num_second, self._end_at(place))]
        return Pair(tokens[split - num_first : split], second, relation)

    def _stretch(self, source: random.Random, wanted: int) -> tuple[int, int, int]:
        """Two sentences or more, of this number of tokens if possible: first, split, and end."""
        sentences = self.sentences
        starts = sentences.starts
        drawn = source.randrange(len(sentences))
        begin, end = sentences.document_of(drawn)
        latest = sentences.latest_before(end, wanted)
        first = max(begin, min(drawn, latest, end - 2))
        enough = int(np.searchsorted(starts, starts[first] + wanted))
        last = min(end, max(first + 2, enough))
        return first, source.randrange(first + 1, last), last

    def _elsewhere(self, source: random.Random, sentence: int, num_tokens: int) -> int:
        """Where a sentence begins: of another document, if there is one, that goes on so far.

        Where no document drawn is long enough, the last one is taken from its beginning.
        """
        sentences = self.sentences
        begin, end = sentences.document_of(sentence)
        num_others = len(sentences) - (end - begin)
        for _ in range(MAX_DRAWS):
            chosen = source.randrange(num_others or len(sentences))
            if num_others and chosen >= begin:
                chosen += end - begin
            first, after = sentences.document_of(chosen)
            latest = sentences.latest_before(after, num_tokens)
            if latest >= first:
                break
        return int(sentences.starts[max(first, min(chosen, latest))])

    def _end_at(self, token: int) -> int:
        """The end of the document that a token is of."""
        sentences = self.sentences
        sentence = int(np.searchsorted(sentences.starts, token, side="right")) - 1
        return int(sentences.starts[sentences.document_of(sentence)[1]])


def shortened(num_first: int, num_second: int, wanted: int) -> tuple[int, int]:
    """Two lengths cut to `wanted` in sum: the longer one is cut."""
    excess = max(0, num_first + num_second - wanted)
    from_longer = min(excess, abs(num_first - num_second))
    if num_first > num_second:
        num_first -= from_longer
    else:
        num_second -= from_longer
    rest = excess - from_longer
    return num_first - rest // 2, num_second - (rest - rest // 2)
