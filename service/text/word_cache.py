"""Token ids of texts from those of their words, which are remembered: WordPiece's, of ASCII texts.

BERT's tokenizers cut a text at spaces and punctuation and then spell each word by itself, so that a
text's ids are its words' one after the other. The library has no memory of words: two thirds of
what it does for a text is done again for each word that it has spelled a thousand times. What it
makes of a word is asked of it once; of everything that is not plainly ASCII and such a tokenizer's,
nothing is known here and the library reads the text. Words may be looked up on any thread.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

MAX_WORDS = 2**15  # then it begins anew; with its ids a word takes some 200 bytes, all of them 7 MB
MAX_WORD = 32  # characters of one that is kept: longer ones are rarely met twice
MAX_ADDED = 64  # tokens that a text may spell; a pattern of more would take its time
UNREADABLE = re.compile(r"[^\t\n\r -~]")  # control characters are dropped, which joins words
WORD = re.compile(r"[A-Za-z0-9]+|[!-/:-@\[-`{-~]")
Ids = tuple[int, ...]


class KnownWords:
    """The words of one tokenizer so far."""

    def __init__(
        self,
        spell: Callable[[Sequence[str]], Sequence[Ids]],
        before: Ids,
        after: Ids,
        added: Sequence[str],
        *,
        is_lowercased: bool,
    ) -> None:
        """`spell` gives words' ids; `before` and `after` are those around every text's.

        `added` are the tokens that stand for themselves wherever a text has them.
        """
        self._spell = spell
        self._before, self._after = before, after
        self._is_lowercased = is_lowercased
        spelled = "|".join(map(re.escape, added)) or r"(?!)"
        self._added = re.compile(spelled, re.IGNORECASE)
        self._ids: dict[str, Ids] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def ids_of(self, text: str) -> list[int] | None:
        """A whole text's ids; None where the library has to read it."""
        if not text.isascii() or UNREADABLE.search(text) or self._added.search(text):
            return None
        words = WORD.findall(text.lower() if self._is_lowercased else text)
        known = self._ids
        try:
            ids = [known[word] for word in words]
        except KeyError:
            ids = self._spelled(words)
        return [*self._before, *chain.from_iterable(ids), *self._after]

    def cut(self, ids: list[int], max_tokens: int) -> list[int]:
        """The ids of a text that is cut on the right, as the library cuts it."""
        end = max_tokens - len(self._after)
        return [*ids[:end], *self._after]

    def _spelled(self, words: Sequence[str]) -> list[Ids]:
        """Each word's ids, those that were not known from the library."""
        known = {word: ids for word in words if (ids := self._ids.get(word)) is not None}
        unknown = [word for word in dict.fromkeys(words) if word not in known]
        new = dict(zip(unknown, self._spell(unknown), strict=True))
        kept = {word: ids for word, ids in new.items() if len(word) <= MAX_WORD}
        if len(self._ids) + len(kept) > MAX_WORDS:
            self._ids = {}
        self._ids.update(kept)
        known.update(new)
        return [known[word] for word in words]


def known_words(whole: Any) -> KnownWords | None:  # noqa: ANN401 - a tokenizer, see `tokenizer.py`
    """The words of a tokenizer; None where a text's ids are not those of its words."""
    added = [token.content for token in whole.get_added_tokens_decoder().values()]
    normalizer = _state(whole.normalizer)
    is_bert = (
        type(whole.model).__name__ == "WordPiece"
        and normalizer.get("type") == "BertNormalizer"
        and normalizer["clean_text"]
        and _state(whole.pre_tokenizer).get("type") == "BertPreTokenizer"
    )
    if not is_bert or len(added) > MAX_ADDED or not all(added):
        return None

    def spell(words: Sequence[str]) -> list[Ids]:
        encodings = whole.encode_batch_fast(words, add_special_tokens=False)
        return [tuple(encoding.ids) for encoding in encodings]

    nothing, letter = whole.encode(""), whole.encode("a")
    (word,) = spell(["a"])
    num_before = next((i for i, is_one in enumerate(letter.special_tokens_mask) if not is_one), 0)
    before, after = tuple(letter.ids[:num_before]), tuple(letter.ids[num_before + len(word) :])
    is_around = tuple(letter.ids) == before + word + after and tuple(nothing.ids) == before + after
    if not is_around or any(letter.type_ids) or any(nothing.type_ids):
        return None
    return KnownWords(spell, before, after, added, is_lowercased=normalizer["lowercase"])


def _state(part: Any) -> Mapping[str, Any]:  # noqa: ANN401 - one of the library's many
    """The settings of a normalizer or pre-tokenizer; nothing of none."""
    state: Mapping[str, Any] = {} if part is None else json.loads(part.__getstate__())
    return state
