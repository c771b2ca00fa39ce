"""Grammars compiled for a vocabulary; the one door to the llguidance library.

The library is an extra, `attendant[grammar]`. A matcher is of one thread at a time; its copies
share what the library computes of the language, which it locks. What a grammar may cost is bounded
at each step, in the library's units and in seconds; over a bound, the sequence ends with an error.
What compiling may cost is bounded where it is first done, in `service/grammars/checks.py`.

The language is over bytes: a token is allowed if its bytes may come next. The text that the library
reads is made in `service/grammars/source_text.py`.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np

from service.errors import InvalidArgument
from service.grammars.form import Grammar
from service.grammars.source_text import grammar_text

if TYPE_CHECKING:
    import llguidance

MAX_REASON = 300  # characters of an error of the library, which may quote the grammar
# The library's units; its defaults let one mask take 200 ms, these about 30 ms.
LIMITS: dict[str, Any] = {
    "step_max_items": 8_000,
    "step_lexer_fuel": 200_000,
    "initial_lexer_fuel": 300_000,
    "max_lexer_states": 50_000,
    "max_grammar_size": 500_000,
    "verbose_errors": False,
}
# Processor time of a sequence's masks; those of published schemas take 0.05 ms on average.
MASK_S_PER_TOKEN = 0.01
MAX_KEPT, MAX_KEPT_CHARACTERS = 4_096, 64  # of forced texts with their spelling
MASK_S = 0.5  # beside, whatever the number of tokens
# A step that takes longer adds to the library's automaton, which all outputs of a grammar share: at
# most about 130 MB a second. From a quarter of a second on, the next request compiles it anew.
SLOW_STEP_S = 0.001
SPECIAL_BYTE = 0xFF  # before the number of a special token, as the library has it
SLOW_BYTES_PER_S = 130_000_000
MAX_SLOW_S = 0.25


def has_library() -> bool:
    """Whether the extra is installed."""
    try:
        import llguidance  # noqa: F401 - an extra
    except ImportError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class GrammarVocabulary:
    """A model's tokens, as grammars need them."""

    token_bytes: Sequence[bytes]  # by id; empty for special tokens
    eos_token_ids: tuple[int, ...]
    vocab_size: int  # of the logits: ids beyond the tokenizer's are never allowed
    encode: Callable[[str], Sequence[int]]  # the ids of a text, without special tokens


def tokens_of(vocabulary: GrammarVocabulary, text: str) -> tuple[int, ...]:
    """The ids whose bytes are a text's, as the tokenizer chooses them where it does."""
    return tuple(_Tokens(vocabulary)(text))


class Wear:
    """Memory and time that the outputs of one compiled grammar have added to it.

    It is counted without a lock: what a race loses is counted by later steps.
    """

    def __init__(self) -> None:
        self.compiled_bytes = 0  # 0 where it was not measured
        self.slow_s = 0.0
        self.has_failed = False  # an automaton at its bound stays there, for all outputs

    @property
    def num_bytes(self) -> int:
        return self.compiled_bytes + int(self.slow_s * SLOW_BYTES_PER_S)

    @property
    def is_out(self) -> bool:
        """Whether the next request is to compile it anew."""
        return self.has_failed or self.slow_s > MAX_SLOW_S

    def add(self, step_s: float) -> None:
        """Count a step's processor time."""
        if step_s > SLOW_STEP_S:
            self.slow_s += step_s


class GrammarCompiler:
    """Compiles grammars for one vocabulary, on any number of threads once it is prepared."""

    def __init__(self, vocabulary: GrammarVocabulary) -> None:
        self._vocabulary = vocabulary

    @cached_property
    def _tokenizer(self) -> "llguidance.LLTokenizer":
        """The library's view of the vocabulary: about a second for 100,000 tokens."""
        import llguidance

        tokens = _Tokens(self._vocabulary)
        return llguidance.LLTokenizer(
            llguidance.TokenizerWrapper(tokens), eos_token=tokens.eos_token_ids
        )

    @property
    def tokens(self) -> tuple[list[bytes], list[int]]:
        """The bytes of each token, and the ids that end a text, as the library reads them."""
        tokens = _Tokens(self._vocabulary)
        return tokens.tokens, tokens.eos_token_ids

    def prepare(self) -> None:
        """Read the vocabulary, which the first grammar would wait for."""
        _ = self._tokenizer

    def compile(self, grammar: Grammar) -> "GrammarMatcher":
        """A matcher at the beginning of an output. Raises `InvalidArgument`."""
        import llguidance

        limits = llguidance.LLParserLimits(**LIMITS)
        text = grammar_text(grammar)
        matcher = llguidance.LLMatcher(self._tokenizer, text, limits=limits, log_level=0)
        if matcher.is_error():
            raise cannot(grammar, matcher.get_error())
        vocab_size = self._vocabulary.vocab_size
        num_known = min(vocab_size, self._tokenizer.vocab_size)
        compiled = GrammarMatcher(matcher, grammar, vocab_size, num_known, Wear())
        # An empty language is known by its mask. It holds no lock of Python's while it follows a
        # forced text; `forced` would.
        _ = compiled.mask
        _ = compiled.forced
        return compiled

    def close(self) -> None:
        """No-op: there is no process to end."""


class GrammarMatcher:
    """Place of one output in its grammar, and the tokens that may come next.

    `forced` are the tokens that must come next, spelled as the tokenizer spells their text, where
    the grammar leaves one text only; else `mask` says which may. Both are computed when they are
    first read after a token.
    """

    def __init__(
        self,
        matcher: "llguidance.LLMatcher",
        grammar: Grammar,
        vocab_size: int,
        num_known: int,  # ids from here on are the model's only
        wear: Wear,  # which its copies share
    ) -> None:
        self._matcher = matcher
        self._grammar = grammar
        self._vocab_size, self._num_known = vocab_size, num_known
        self.wear = wear
        self._left_s = MASK_S
        self._forced: tuple[int, ...] | None = None
        self._mask: np.ndarray | None = None

    @property
    def forced(self) -> tuple[int, ...]:
        """The ids that come next, whatever the logits; mostly none. Raises `InvalidArgument`."""
        if self._forced is None:
            started_s = time.thread_time()
            self._forced = tuple(self._matcher.compute_ff_tokens())
            self._count_since(started_s)
        return self._forced

    @property
    def mask(self) -> np.ndarray:
        """A bit per token, the lowest first, uint8 in whole words of 64; raises `InvalidArgument`.

        It is for where nothing is forced, and the caller's own to write to.
        """
        if self._mask is None:
            started_s = time.thread_time()
            self._mask = self._filled()
            self._count_since(started_s)
        return self._mask.copy()

    def allows(self, token_id: int) -> bool:
        """Whether this token may come next, nothing being forced. Raises `InvalidArgument`."""
        return self.num_valid((token_id,)) == 1

    def take(self, token_id: int) -> None:
        """The output's next token. Raises `InvalidArgument`."""
        started_s = time.thread_time()
        if not self._matcher.consume_token(token_id):
            raise self._failed(self._matcher.get_error())
        self._left_s += MASK_S_PER_TOKEN
        self._count_since(started_s)
        is_as_forced = self._forced is not None and self._forced[:1] == (token_id,)
        rest = self._forced[1:] if self._forced and is_as_forced else ()
        self._forced, self._mask = rest or None, None

    def num_valid(self, token_ids: Sequence[int]) -> int:
        """Number of these tokens that may follow, one after the other."""
        started_s = time.thread_time()
        # An id that the library does not know is an error to it, of which it does not recover.
        known = list(takewhile(self._num_known.__gt__, token_ids))
        count = int(self._matcher.validate_tokens(known)) if known else 0
        self._count_since(started_s)
        return count

    def copy(self) -> "GrammarMatcher":
        """One that has taken the same, and goes on by itself."""
        other = GrammarMatcher(
            self._matcher.deep_copy(),
            self._grammar,
            self._vocab_size,
            self._num_known,
            self.wear,
        )
        other._left_s, other._forced, other._mask = self._left_s, self._forced, self._mask
        return other

    @property
    def is_accepting(self) -> bool:
        """Whether the output may end here."""
        return bool(self._matcher.is_accepting())

    @property
    def is_complete(self) -> bool:
        """Whether nothing can follow but the output's end."""
        return bool(self._matcher.is_stopped())

    def _count_since(self, started_s: float) -> None:
        """Count processor time. Raises `InvalidArgument` where it is over the limit."""
        step_s = time.thread_time() - started_s
        self._left_s -= step_s
        self.wear.add(step_s)
        if self._left_s < 0:
            raise self._failed("its masks take too long to compute")

    def _failed(self, reason: str) -> InvalidArgument:
        self.wear.has_failed = True
        return cannot(self._grammar, reason)

    def _filled(self) -> np.ndarray:
        known = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        if self._matcher.is_error():
            raise self._failed(self._matcher.get_error())
        mask = np.zeros(-(-self._vocab_size // 64) * 8, np.uint8)
        whole, rest = divmod(self._vocab_size, 8)
        mask[: known.size] = known[: mask.size]
        mask[whole : whole + 1] &= (1 << rest) - 1  # ids beyond the model's
        mask[whole + 1 :] = 0
        return mask


class _Tokens:
    """A vocabulary as the library reads it."""

    bos_token_id = None

    def __init__(self, vocabulary: GrammarVocabulary) -> None:
        self._encode, self._bytes = vocabulary.encode, vocabulary.token_bytes
        self._kept: dict[str, list[int]] = {}  # forced texts, which outputs of one form share
        self.tokens = list(vocabulary.token_bytes)
        # Where a model has no end, the library's is a token of its own.
        self.eos_token_ids = list(vocabulary.eos_token_ids) or [len(self.tokens)]
        self.tokens += [b""] * (max(self.eos_token_ids) + 1 - len(self.tokens))
        self.eos_token_id = self.eos_token_ids[0]
        empty = {token_id for token_id, each in enumerate(self.tokens) if not each}
        self.special_token_ids = sorted(empty | {*self.eos_token_ids})
        for token_id in self.special_token_ids:  # no text has such a byte, and no two are alike
            self.tokens[token_id] = b"%c[%d]" % (SPECIAL_BYTE, token_id)

    def __call__(self, text: str | bytes) -> list[int]:
        """The ids whose bytes are the text's, as the tokenizer chooses them where it does."""
        if isinstance(text, bytes):
            raise TypeError("a text, not bytes")  # the library asks which it may give
        if len(text) > MAX_KEPT_CHARACTERS:
            return self._spelled(text)
        if text not in self._kept:
            while len(self._kept) >= MAX_KEPT:
                self._kept.pop(next(iter(self._kept)), None)
            self._kept[text] = self._spelled(text)
        return self._kept[text]

    def _spelled(self, text: str) -> list[int]:
        for before in ("", "\n"):  # some put a space before a text's first word
            ids = list(self._encode(before + text))
            for skipped in range(min(len(ids), 3)):
                if self._bytes_of(ids[skipped:]) == text.encode():
                    return ids[skipped:]
        return self._longest(text.encode())

    def _bytes_of(self, ids: Sequence[int]) -> bytes:
        return b"".join(self._bytes[token_id] for token_id in ids)

    def _longest(self, text: bytes) -> list[int]:
        """The longest token at each place; the rest is left out where no token fits."""
        ids: list[int] = []
        place = 0
        while place < len(text):
            ends = range(min(len(text), place + self._most_bytes), place, -1)
            end = next((end for end in ends if text[place:end] in self._ids), None)
            if end is None:
                break
            ids.append(self._ids[text[place:end]])
            place = end
        return ids

    @cached_property
    def _ids(self) -> dict[bytes, int]:
        return {each: token_id for token_id, each in enumerate(self._bytes) if each}

    @cached_property
    def _most_bytes(self) -> int:
        return max(map(len, self._ids), default=1)


def cannot(grammar: Grammar, reason: str) -> InvalidArgument:
    """The refusal of a grammar that cannot be kept to; logs have no part of the grammar."""
    if "panic" in reason:  # with the places in the library's code, and a backtrace
        reason = "the library that compiles it failed"
    reason = reason.replace("<non-verbose/>", "").strip()[:MAX_REASON]
    refused = f"{grammar.kind} cannot be kept to"
    return InvalidArgument(f"{refused}: {reason}", grammar.kind, f"{refused} [reason left out]")
