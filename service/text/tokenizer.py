"""Texts to token ids; the one door to the tokenizers library.

Rows come back without padding. The file is Hugging Face's `tokenizer.json`; its
own padding and truncation are switched off, because the request decides about
truncation and the batch about padding; the side that is cut is the file's.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import numpy as np
import tokenizers

from service.contract.prompt_reading import PromptReading
from service.errors import InputTooLong, InvalidArgument, LoadError, ModelFailed, invalid_field
from service.text.places import Place, place_of, place_of_tokens
from service.text.special_texts import Span, SpecialTexts, SpecialToken
from service.text.token_bytes import ByteKind, bytes_of_tokens, kind_of_bytes
from service.text.tokenizer_cost import check_growth, check_ids, has_known_time
from service.text.word_cache import known_words

Text: TypeAlias = str | tuple[str, str]  # the second is of a pair
MAX_REASON = 500  # characters of an error of the library, which may quote the file
MAX_WITHOUT_ROW = 1_024  # tokens that were added without a row of the network's table
MAX_WINDOWS = 1_024  # of the contexts of one request
MIN_WINDOW_TOKENS = 8  # of a context in a window, whatever the question takes
# The overlap of two windows in tokens; at most half of a window's part of the context.
MAX_OVERLAP_TOKENS = 128
MASK_TOKENS = ("[MASK]", "<mask>")  # as vocabularies of BERT's and RoBERTa's kinds spell it
SHORT_CHARACTERS = 1_024
MAX_TOLD_TOKENS = 2**18  # of a text, one by one: each takes some 600 bytes until it is told
# Of a text more than twice as long as its beginning, the beginning is read alone first: where that
# has too many tokens by far, the rest is not read. The beginning has at least the first number of
# characters, and the second for each token that the model takes.
BEGINNING_CHARACTERS, CHARACTERS_PER_TOKEN = 2**15, 8
SURPLUS_TOKENS = 256  # beyond the model's, as the beginning may end within a word
MAX_TEXTS_OF_FULL_SIZE = 4  # of one request, so that all of it stays a bounded piece of work


@dataclass(frozen=True, slots=True)
class EncodedText:
    """One text as the model takes it; both arrays int64 [1, S]."""

    input_ids: np.ndarray
    token_type_ids: np.ndarray
    is_truncated: bool
    encoding: tokenizers.Encoding | None = None  # where tokens are found in the text, if requested
    text_index: int = 0  # among the texts, where one may be read in several rows
    target: "EncodedText | None" = None  # the output of an encoder-decoder, if it is read too

    @property
    def num_tokens(self) -> int:
        return int(self.input_ids.shape[1])


@dataclass(frozen=True, slots=True)
class TokenPieces:
    """One text's tokens for people to look at; offsets are [start, end) in characters."""

    ids: list[int]
    pieces: list[str]
    offsets: list[tuple[int, int]]
    are_special: list[bool]
    are_unknown: list[bool]
    token_bytes: list[bytes]  # each empty if tokens are no bytes


class TokenRows(list[Sequence[int]]):
    """The tokens of texts, in place of these: special tokens included."""


def _encoding(
    tokenizer: tokenizers.Tokenizer,
    text: Text,
    *,
    adds_special: bool = False,
    has_places: bool = True,
) -> tokenizers.Encoding:
    """One text's encoding; the library lets others have the interpreter in calls for batches only.

    Without places no token is found in the text, which takes half the time and memory.
    """
    if isinstance(text, str) and len(text) <= SHORT_CHARACTERS:  # quicker, and soon over
        return tokenizer.encode(text, add_special_tokens=adds_special)
    encode = tokenizer.encode_batch if has_places else tokenizer.encode_batch_fast
    (encoding,) = encode([text], add_special_tokens=adds_special)
    return encoding


class _Tokenizer:
    """One file's tokenizer, and the bounds of what it takes."""

    _num_rows: int | None = None  # of the network's table, where it is known

    def __init__(self, path: Path, max_tokens: int, max_text_characters: int) -> None:
        self._max_tokens = max_tokens
        self._max_text_characters = max_text_characters
        self._whole, self._side = _read(path)

    @property
    def whole(self) -> tokenizers.Tokenizer:
        """The library's tokenizer, which neither pads nor cuts."""
        return self._whole

    @cached_property
    def has_known_time(self) -> bool:
        """Whether a text takes a time that follows from its length."""
        return has_known_time(self._whole)

    def check_sizes(self, texts: Sequence[Text]) -> int:
        """The characters of all texts, or `InvalidArgument` where they are over the limit."""
        total = 0
        for index, text in enumerate(texts):
            size = len(text) if isinstance(text, str) else sum(map(len, text))
            if size > self._max_text_characters:
                raise self._place(texts, index).refused(
                    f"has {size} characters, the server takes at most {self._max_text_characters}"
                )
            total += size
        if total > MAX_TEXTS_OF_FULL_SIZE * self._max_text_characters:
            raise InvalidArgument(
                f"the texts have {total} characters in all, the server takes at most "
                f"{MAX_TEXTS_OF_FULL_SIZE * self._max_text_characters}"
            )
        return total

    def _beginning(self, text: Text, max_tokens: int) -> str | None:
        """The beginning of a long text that has more than `max_tokens` tokens, as the text has.

        None where the whole text has to be read. It bounds the memory of texts that are refused or
        cut: the library takes 100 to 350 bytes for each character of what it reads.
        """
        size = max(BEGINNING_CHARACTERS, CHARACTERS_PER_TOKEN * max_tokens)
        if not isinstance(text, str) or len(text) <= 2 * size:
            return None
        num_tokens = len(_encoding(self._whole, text[:size], has_places=False))
        return text[:size] if num_tokens > max_tokens + SURPLUS_TOKENS else None

    def _place(self, texts: Sequence[Text], index: int) -> Place:
        """The place of one of the texts, as errors name it."""
        return place_of(index, is_pair=not isinstance(texts[index], str))

    @property
    def num_tokens(self) -> int:
        """The size of the vocabulary, special tokens included."""
        return int(self._whole.get_vocab_size())

    def spelling(self, token_id: int) -> str:
        """A token as the vocabulary spells it; empty for an id without one."""
        return self._whole.id_to_token(token_id) or ""

    def ids_of(self, word: str) -> list[int]:
        """The one token of that spelling, else those of the text; none where one is unknown."""
        spelt = self._whole.token_to_id(word)
        if spelt is not None:
            return [spelt]
        ids: list[int] = self._whole.encode(word, add_special_tokens=False).ids
        unknown = self._unknown_token
        return [] if unknown and self._whole.token_to_id(unknown) in ids else ids

    @cached_property
    def meaningless_ids(self) -> frozenset[int]:
        """The ids of special tokens, and of the token for unknown words."""
        unknown_id = self._unknown_id
        return self._special_ids | ({unknown_id} if unknown_id is not None else set())

    @cached_property
    def _special_ids(self) -> frozenset[int]:
        added = self._whole.get_added_tokens_decoder()
        return frozenset(token_id for token_id, token in added.items() if token.special)

    @cached_property
    def token_bytes(self) -> tuple[bytes, ...]:
        """By id; empty for special tokens and for ids without one. () if tokens are no bytes."""
        kind = self._byte_kind
        return bytes_of_tokens(self._whole, kind)[: self._num_rows] if kind else ()

    def _bytes_of(self, token_id: int) -> bytes:
        return self.token_bytes[token_id] if token_id < len(self.token_bytes) else b""

    @cached_property
    def _byte_kind(self) -> ByteKind | None:
        return kind_of_bytes(self._whole)

    @property
    def mask_token(self) -> str:
        """The special token for a word to be filled in, as spelled; empty where there is none."""
        return next(
            (word for word in MASK_TOKENS if self._whole.token_to_id(word) in self._special_ids), ""
        )

    def unknown_words(self, text: str) -> list[str]:
        """The words of a text that the vocabulary lacks, as the text spells them."""
        encoding = _encoding(self._whole, text)
        return [
            text[start:end]
            for token_id, (start, end) in zip(encoding.ids, encoding.offsets, strict=True)
            if token_id == self._unknown_id
        ]

    @property
    def _unknown_token(self) -> str:
        """The unknown token as the vocabulary spells it; empty if every text has tokens."""
        return getattr(self._whole.model, "unk_token", None) or ""

    @cached_property
    def _unknown_id(self) -> int | None:
        known: int | None = self._whole.token_to_id(self._unknown_token)
        return known

    def pieces(self, text: str, *, omits_special: bool = False) -> TokenPieces:
        """The tokens of a text of any length."""
        encoding = _encoding(self._whole, text, adds_special=not omits_special)
        if len(encoding) > MAX_TOLD_TOKENS:
            raise invalid_field(
                "texts",
                f"has a text of {len(encoding)} tokens, an answer tells of at most "
                f"{MAX_TOLD_TOKENS}: send it in parts",
            )
        return TokenPieces(
            encoding.ids,
            encoding.tokens,
            encoding.offsets,
            [
                bool(is_added) or token_id in self._special_ids
                for token_id, is_added in zip(
                    encoding.ids, encoding.special_tokens_mask, strict=True
                )
            ],
            [token_id == self._unknown_id for token_id in encoding.ids],
            [self._bytes_of(token_id) for token_id in encoding.ids],
        )

    def pieces_of(self, token_ids: Sequence[int]) -> TokenPieces:
        """Pieces of tokens that no text of a request has, so that they have no place in one."""
        return TokenPieces(
            list(token_ids),
            [self.spelling(token_id) for token_id in token_ids],
            [(0, 0)] * len(token_ids),
            [token_id in self._special_ids for token_id in token_ids],
            [token_id == self._unknown_id for token_id in token_ids],
            [self._bytes_of(token_id) for token_id in token_ids],
        )

    def text_of(self, token_ids: Sequence[int]) -> str:
        """The text that tokens stand for, special ones as the vocabulary spells them.

        Raises `InvalidArgument` for too many, and for an id that the vocabulary lacks.
        """
        if len(token_ids) > self._max_text_characters:
            raise invalid_field(
                "token_ids",
                f"has {len(token_ids)} ids, the server takes at most {self._max_text_characters}",
            )
        for token_id in token_ids:
            if self._whole.id_to_token(token_id) is None:
                raise invalid_field("token_ids", f"has {token_id}, which the vocabulary lacks")
        return self._decoded(token_ids)

    def _decoded(self, token_ids: Sequence[int]) -> str:
        # Only calls for batches let others have the interpreter.
        (text,) = self._whole.decode_batch([list(token_ids)], skip_special_tokens=False)
        return str(text)


class TextTokenizer(_Tokenizer):
    """Encodes texts, and pairs, of at most `max_tokens`, special tokens included."""

    def __init__(
        self,
        path: Path,
        max_tokens: int,
        max_text_characters: int,
        *,
        has_encodings: bool = False,
    ) -> None:
        super().__init__(path, max_tokens, max_text_characters)
        self._cutting, _ = _read(path)
        self.cuts_left = self._side == "left"
        self._cutting.enable_truncation(max_tokens, direction=self._side)
        self._has_encodings = has_encodings
        whole = self._whole
        self._encode = whole.encode_batch if has_encodings else whole.encode_batch_fast
        self._words = None if has_encodings or self.cuts_left else known_words(whole)

    def encode(self, texts: Sequence[Text], can_truncate: bool) -> list[EncodedText]:
        """Encode texts, or raise `InvalidArgument` for one without tokens, or with too many."""
        texts = [self._begun(texts, index, can_truncate) for index in range(len(texts))]
        known = [self._known_ids(text) for text in texts]
        others = [text for text, ids in zip(texts, known, strict=True) if ids is None]
        encodings = iter(self._encode(others) if others else ())
        rows = []
        for index, word_ids in enumerate(known):
            encoding = next(encodings) if word_ids is None else None
            ids = word_ids if encoding is None else encoding.ids
            if not ids:
                raise self._place(texts, index).refused("has no tokens")
            is_long = len(ids) > self._max_tokens
            if is_long and not can_truncate:
                raise self._too_long(texts, index, len(ids))
            if encoding is None:
                rows.append(self._row_of_words(ids, is_long))
                continue
            kept = self._cut(texts[index]) if is_long else encoding
            row, types = np.array([kept.ids], np.int64), np.array([kept.type_ids], np.int64)
            rows.append(EncodedText(row, types, is_long, kept if self._has_encodings else None))
        return rows

    def _begun(self, texts: Sequence[Text], index: int, can_truncate: bool) -> Text:
        """A text, or as much of it as is kept where it is far too long and may be cut."""
        if self.cuts_left and can_truncate:
            return texts[index]
        beginning = self._beginning(texts[index], self._max_tokens)
        if beginning is None:
            return texts[index]
        if not can_truncate:
            raise self._too_long(texts, index, f"more than {self._max_tokens}")
        return beginning

    def _known_ids(self, text: Text) -> list[int] | None:
        """A text's ids from those of its words; None where the library has to read it."""
        return None if self._words is None or isinstance(text, tuple) else self._words.ids_of(text)

    def _row_of_words(self, ids: list[int], is_long: bool) -> EncodedText:
        assert self._words is not None, "the ids are those of its words"
        row = np.array([self._words.cut(ids, self._max_tokens) if is_long else ids], np.int64)
        return EncodedText(row, np.zeros_like(row), is_long)

    def _too_long(self, texts: Sequence[Text], index: int, num_tokens: int | str) -> InputTooLong:
        return self._place(texts, index).too_long(num_tokens, self._max_tokens)

    def take(self, rows: TokenRows, can_truncate: bool) -> list[EncodedText]:
        """Rows of tokens as they are, or `InvalidArgument` as `encode` raises it."""
        return [self._taken(ids, place_of_tokens(n), can_truncate) for n, ids in enumerate(rows)]

    def _taken(self, ids: Sequence[int], place: Place, can_truncate: bool) -> EncodedText:
        is_long = len(ids) > self._max_tokens
        if not ids:
            raise place.refused("has no tokens")
        if is_long and not can_truncate:
            raise place.too_long(len(ids), self._max_tokens)
        kept = ids[-self._max_tokens :] if self.cuts_left else ids[: self._max_tokens]
        row = np.array([kept], np.int64)
        unknown = row[(row < 0) | (row >= self.num_tokens)]
        if unknown.size:
            raise place.refused(
                f"has {unknown[0]}, expected 0 to {self.num_tokens - 1}", "tokenizer"
            )
        return EncodedText(row, np.zeros_like(row), is_long)

    def _cut(self, text: Text) -> tokenizers.Encoding:
        return _encoding(self._cutting, text, adds_special=True)


class SourceAndTargetTokenizer(TextTokenizer):
    """Encodes a pair's texts each by itself: what was read, and what was written of it."""

    def encode(self, texts: Sequence[Text], can_truncate: bool) -> list[EncodedText]:
        """One row per text or pair, which keeps its encoding."""
        if not texts or isinstance(texts[0], str):
            return super().encode(texts, can_truncate)
        read, written = zip(*texts, strict=True)
        sources = super().encode(read, can_truncate)
        try:
            targets = super().encode(written, can_truncate)
        except InvalidArgument as error:
            raise error.at({"texts": "text_pairs"}) from error
        pairs = zip(sources, targets, strict=True)
        return [replace(source, target=target) for source, target in pairs]


class WindowTokenizer(TextTokenizer):
    """Encodes questions with their contexts, long ones in windows that overlap: nothing is cut."""

    def encode(self, texts: Sequence[Text], can_truncate: bool) -> list[EncodedText]:  # noqa: ARG002
        """One row per window. Raises `InvalidArgument` for an empty part or too long a question."""
        rows: list[EncodedText] = []
        for index, text in enumerate(texts):
            rows += self._windows(index, text, len(rows))
        return rows

    def _windows(self, index: int, text: Text, num_before: int) -> list[EncodedText]:
        assert not isinstance(text, str), "a question and a context"
        for name, part in zip(("question", "context"), text, strict=True):
            if not part.strip():
                raise Place(f"{name} {index}", name).refused("is empty")
        question, context = (_encoding(self._whole, part) for part in text)
        most = self._max_tokens - self._whole.num_special_tokens_to_add(is_pair=True)
        room = most - len(question.ids)
        if room < MIN_WINDOW_TOKENS:
            raise Place(f"question {index}", "question").refused(
                f"has {len(question.ids)} tokens, the model takes at most "
                f"{most - MIN_WINDOW_TOKENS}"
            )
        overlap = min(MAX_OVERLAP_TOKENS, room // 2)
        num_windows = 1 + -(-max(0, len(context.ids) - room) // (room - overlap))
        if num_before + num_windows > MAX_WINDOWS:
            others = f", and those before it take {num_before}" if num_before else ""
            raise Place(f"context {index}", "context").refused(
                f"takes {num_windows} windows, the server reads {MAX_WINDOWS} of a request{others}"
            )
        context.truncate(room, stride=overlap)
        rows = []
        for window in (context, *context.overflowing):
            encoding = self._whole.post_process(question, window)
            ids, types = np.array([encoding.ids], np.int64), np.array([encoding.type_ids], np.int64)
            rows.append(EncodedText(ids, types, False, encoding, index))
        return rows


class PromptTokenizer(_Tokenizer):
    """Encodes prompts of at most `max_tokens` for generation, and knows every token's bytes.

    Special tokens that a prompt spells are tokens, as in the library.
    """

    def __init__(
        self,
        path: Path,
        max_tokens: int,
        max_text_characters: int,
        *,
        num_rows: int | None = None,
    ) -> None:
        """`num_rows` are those of the network's table, beyond which the file may have tokens."""
        super().__init__(path, max_tokens, max_text_characters)
        self._num_rows = num_rows
        if self._byte_kind is None:
            kind = type(self._whole.decoder).__name__
            raise LoadError(
                f"{path.name}: its decoder is {kind}, generation needs ByteLevel, Metaspace, or "
                "SentencePiece's Replace and ByteFallback: only their tokens are bytes, whatever "
                "stands around them"
            )
        _ = self.token_bytes  # made while the model loads, not for the first request
        added = self._whole.get_added_tokens_decoder()
        self.special_texts = SpecialTexts(
            SpecialToken(token.content, token.lstrip, token.rstrip)
            for token in added.values()
            if token.special
        )

    @cached_property
    def special_bytes(self) -> dict[int, bytes]:
        """By the id of each special token: the bytes of its spelling."""
        return {each: self.spelling(each).encode() for each in self._special_ids}

    @property
    def strips_space(self) -> bool:
        """Whether a whole text is its tokens' without the first space."""
        return self._byte_kind is not None and self._byte_kind.strips_space

    def bytes_of(self, token_id: int) -> bytes:
        """A token's bytes; a special token as the vocabulary spells it."""
        return self._bytes_of(token_id) or self.spelling(token_id).encode()

    def _decoded(self, token_ids: Sequence[int]) -> str:
        text = b"".join(map(self.bytes_of, token_ids)).decode(errors="replace")
        return text.removeprefix(" ") if self.strips_space else text

    def encode(self, prompt: str, reading: PromptReading | None = None) -> np.ndarray:
        """Token ids int64 [S], 1 <= S <= `max_tokens`, or `InvalidArgument` with the counts.

        What is cut of a prompt is its own: special tokens that are added stay.
        """
        reading = reading or PromptReading(max_tokens=self._max_tokens)
        if len(prompt) > self._max_text_characters:
            raise InvalidArgument(
                f"the prompt has {len(prompt)} characters, "
                f"the server takes at most {self._max_text_characters}",
                "prompt",
            )
        self._check_beginning(prompt, reading)
        adds = not reading.omits_special
        (encoding,) = self._whole.encode_batch_fast([prompt], add_special_tokens=adds)
        ids: list[int] = encoding.ids
        if reading.kept_tokens is not None and len(ids) > reading.kept_tokens and adds:
            ids = self._cut_inside(prompt, reading)
        return self._known(_checked(ids, reading))

    def _check_beginning(self, text: str, reading: PromptReading) -> None:
        """Raise `InputTooLong` where the beginning of a prompt that is not cut has too many."""
        if reading.kept_tokens is None and self._beginning(text, reading.max_tokens) is not None:
            raise _too_long_prompt(f"more than {reading.max_tokens}", reading.max_tokens)

    def _known(self, ids: np.ndarray) -> np.ndarray:
        """The ids, or `InvalidArgument` for a token that the network does not know."""
        if self._num_rows is not None:
            check_rows(Place("the prompt", "prompt"), ids, self._num_rows, self.spelling)
        return ids

    def _cut_inside(self, prompt: str, reading: PromptReading) -> list[int]:
        """The ids of a prompt that is cut, with all special tokens where there is room for them."""
        assert reading.kept_tokens is not None, "the caller checked that it is cut"
        encoding = _encoding(self._whole, prompt)
        num_own = reading.kept_tokens - self._whole.num_special_tokens_to_add(is_pair=False)
        if num_own < 1:
            ids: list[int] = encoding.ids
            return ids
        side = "right" if reading.keeps_beginning else "left"
        encoding.truncate(num_own, direction=side)
        whole: list[int] = self._whole.post_process(encoding).ids
        return whole

    def encode_part(self, text: str) -> list[int]:
        """The ids of a part of an output, without special tokens around it."""
        with without_panics():
            ids: list[int] = self._of_outputs.encode(text, add_special_tokens=False).ids
        return ids

    @cached_property
    def _of_outputs(self) -> tokenizers.Tokenizer:
        """The tokenizer without tokens that the network does not know, which no output has."""
        if self._num_rows is None or largest_id(self._whole) < self._num_rows:
            return self._whole
        fields = json.loads(self._whole.to_str())
        fields["added_tokens"] = [
            token for token in fields["added_tokens"] if token["id"] < self._num_rows
        ]
        return tokenizers.Tokenizer.from_str(json.dumps(fields))

    def encode_marked(
        self, prompt: str, mark: str, reading: PromptReading | None = None
    ) -> np.ndarray:
        """Token ids of a prompt that a template wrote, with marks in users' texts.

        Special tokens are those that the template wrote; the tokenizer adds none.
        """
        try:
            prompt.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgument(
                "the messages have a half of a surrogate pair", "messages"
            ) from error
        text, spans = self.special_texts.split(prompt, mark)
        reading = reading or PromptReading(max_tokens=self._max_tokens)
        self._check_beginning(text, reading)
        ids: list[int] = _encoding(self._whole, text, has_places=False).ids
        if sum([token_id in self._special_ids for token_id in ids]) != len(spans):
            ids = self._encode_apart(text, spans)
        return self._known(_checked(ids, reading))

    def _encode_apart(self, text: str, spans: Sequence[Span]) -> list[int]:
        """The ids of a text where special tokens stand at these spans and nowhere else."""
        ids: list[int] = []
        place = 0
        for start, end in (*spans, (len(text), len(text))):
            ids += _encoding(self._literal, text[place:start], has_places=False).ids
            ids += _encoding(self._whole, text[start:end], has_places=False).ids
            place = end
        return ids

    @cached_property
    def _literal(self) -> tokenizers.Tokenizer:
        """The tokenizer for which the spelling of a special token is a text as any other."""
        literal = tokenizers.Tokenizer.from_str(self._whole.to_str())
        literal.encode_special_tokens = True
        return literal


def _checked(ids: Sequence[int], reading: PromptReading) -> np.ndarray:
    ids = reading.cut(ids)
    check_num_tokens(len(ids), reading.max_tokens)
    return np.array(ids, np.int64)


def check_rows(place: Place, ids: np.ndarray, num_rows: int, spell: Callable[[int], str]) -> None:
    """Raise `InvalidArgument` for a token that the network's table of `num_rows` has no row for."""
    largest = int(ids.max(initial=-1))
    if largest >= num_rows:
        raise place.refused(
            f"has the token {spell(largest)!r} (id {largest}), which the tokenizer knows "
            f"and the model does not: its table of tokens has {num_rows} rows; leave it out"
        )


def check_num_tokens(num_tokens: int, most: int) -> None:
    """Raise `InvalidArgument` for a prompt without tokens, or with more than `most`."""
    if num_tokens > most:
        raise _too_long_prompt(num_tokens, most)
    if num_tokens < 1:
        raise InvalidArgument(f"the prompt has 0 tokens, the model takes 1 to {most}", "prompt")


def _too_long_prompt(num_tokens: int | str, most: int) -> InputTooLong:
    text = f"the prompt has {num_tokens} tokens, the model takes 1 to {most}"
    return InputTooLong(text, "prompt")


@contextmanager
def without_panics() -> Iterator[None]:
    """Turn a panic of the library, which is no `Exception`, into `ModelFailed`."""
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise ModelFailed(f"the tokenizer failed: {str(error)[:MAX_REASON]}") from error


def largest_id(tokenizer: tokenizers.Tokenizer, *, is_added: bool = True) -> int:
    """The largest id of a tokenizer, with tokens that were added or without; -1 of none."""
    ids: int = max(tokenizer.get_vocab(with_added_tokens=is_added).values(), default=-1)
    return ids


def check_table(tokenizer: _Tokenizer, num_rows: int, name: str) -> None:
    """Raise `LoadError` for tokens without a row in the network's table, but for a few added.

    A prompt that has one of these is refused.
    """
    whole = tokenizer.whole
    of_texts, most = largest_id(whole, is_added=False), largest_id(whole)
    around = max(whole.encode("").ids, default=-1)
    if of_texts >= num_rows or around >= num_rows or most >= num_rows + MAX_WITHOUT_ROW:
        raise LoadError(f"{name} has ids up to {most}, the model knows {num_rows}")


def _read(path: Path) -> tuple[tokenizers.Tokenizer, str]:
    """A tokenizer that neither pads nor cuts, and the side of a text on which it is to be cut.

    The file's own limit is not read.
    """
    try:
        with without_panics():
            tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception
        raise LoadError(f"{path.name}: {str(error)[:MAX_REASON]}") from error
    check_ids(tokenizer, path.name)
    check_growth(tokenizer, path.name)
    side = str((tokenizer.truncation or {}).get("direction", "right"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer, side
