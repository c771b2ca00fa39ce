"""A sequence's output so far, in the form that penalties read: updated per token, never re-read.

Pure and of one sequence; grows with it, so it is bounded by the model's context.
"""

# ruff: noqa: N803 - suffixes are array layouts: B rows, V vocabulary, R some of the rows,
# P proposals, C candidates

import copy
from collections import deque
from collections.abc import Iterable

import numpy as np

from service.calls.sampling import Sampling
from service.errors import InvalidArgument
from service.families.thought_budget import ThoughtBudget
from service.grammars.state import GrammarState, Matcher


class TokenCounts:
    """Every id that occurred, once, and how often it was generated: 0 if only in the prompt."""

    def __init__(self, prompt_ids: np.ndarray) -> None:
        ids = np.unique(prompt_ids)
        self._places = {token_id: place for place, token_id in enumerate(ids.tolist())}
        capacity = max(64, 2 * ids.size)
        self._ids = np.zeros(capacity, np.int64)
        self._ids[: ids.size] = ids
        self._generated = np.zeros(capacity, np.float32)

    @property
    def ids(self) -> np.ndarray:
        """int64, each once, in order of appearance after the prompt's."""
        return self._ids[: len(self._places)]

    @property
    def generated(self) -> np.ndarray:
        """float32 beside `ids`."""
        return self._generated[: len(self._places)]

    def add(self, token_id: int) -> None:
        place = self._places.setdefault(token_id, len(self._places))
        if place == self._ids.size:
            self._ids = np.concatenate((self._ids, np.zeros_like(self._ids)))
            self._generated = np.concatenate((self._generated, np.zeros_like(self._generated)))
        self._ids[place] = token_id
        self._generated[place] += 1


class NgramFollowers:
    """The tokens that followed earlier occurrences of the last `size - 1` tokens."""

    def __init__(self, size: int, prompt_ids: Iterable[int]) -> None:
        self._last: deque[int] = deque(maxlen=size - 1)
        self._size = size
        self._followers: dict[tuple[int, ...], list[int]] = {}
        for token_id in prompt_ids:
            self.add(token_id)

    def of_last(self) -> list[int]:
        """Ids that would repeat an n-gram if they came next."""
        return self._followers.get(tuple(self._last), [])

    def add(self, token_id: int) -> None:
        if len(self._last) == self._size - 1:
            self._followers.setdefault(tuple(self._last), []).append(token_id)
        self._last.append(token_id)


class BadWords:
    """The tokens that would complete a sequence of tokens which no output may have."""

    def __init__(self, words: Iterable[tuple[int, ...]]) -> None:
        self._words = [(word[:-1], word[-1]) for word in words]
        longest = max((len(before) for before, _ in self._words), default=0)
        self._last: deque[int] = deque(maxlen=longest)

    def __bool__(self) -> bool:
        return bool(self._words)

    def of_last(self) -> list[int]:
        """Ids that would complete one if they came next."""
        said = tuple(self._last)
        return [last for before, last in self._words if said[len(said) - len(before) :] == before]

    def add(self, token_id: int) -> None:
        self._last.append(token_id)


class SamplerState:
    """The state for choosing one sequence's tokens, independent of its neighbours.

    With a seed, the same tokens for the same logits: the samples of one request differ by
    `sample_index`. Ids must be within the vocabulary (`check_vocabulary`).
    """

    def __init__(
        self,
        params: Sampling,
        prompt_ids: np.ndarray,
        eos_token_ids: tuple[int, ...],
        sample_index: int = 0,
        *,
        first_token_ids: tuple[int, ...] = (),
        banned_token_ids: tuple[int, ...] = (),
        matcher: Matcher | None = None,
        bad_words: tuple[tuple[int, ...], ...] = (),
        budget: ThoughtBudget | None = None,
    ) -> None:
        """The model's own tokens, as `Vocabulary` has them, come before what a request says.

        A matcher and a budget are this sequence's own, at the beginning of its output.
        """
        self.params = params
        self.is_greedy = params.is_greedy
        self.is_unfiltered = params.is_unfiltered
        self.num_generated = 0
        seeds = None if params.seed is None else [params.seed, sample_index]
        self.random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seeds)))
        # An ignored end is a token like others.
        ends = params.stop_token_ids + (() if params.ignore_eos else eos_token_ids)
        self.ends = frozenset(ends)
        self._ends = np.array(ends, np.int64)
        self._allowed = np.array(params.allowed_token_ids, np.int64)
        self._banned = np.array(params.banned_token_ids + banned_token_ids, np.int64)
        self._first_token_ids = first_token_ids
        self._biased = np.fromiter(params.logit_bias.keys(), np.int64)
        self._biases = np.fromiter(params.logit_bias.values(), np.float32)
        self._counts = _counts_for(params, prompt_ids)
        self._followers: NgramFollowers | None = None
        if params.no_repeat_ngram_size:
            self._followers = NgramFollowers(params.no_repeat_ngram_size, prompt_ids.tolist())
        self._bad_words = BadWords(bad_words)
        self._budget = budget
        self._always_edits = bool(
            self._allowed.size
            or self._banned.size
            or self._biased.size
            or self._counts is not None
            or self._followers is not None
            or bad_words
        )
        self.grammar: GrammarState | None = None
        if matcher is not None:
            is_plain = self.is_greedy or self.is_unfiltered
            needs_all = self._always_edits or params.has_beams or not is_plain
            self.grammar = GrammarState(matcher, self._ends, needs_all=needs_all)

    def append(self, token_id: int) -> None:
        """Count a token as generated; `sample` does so for what it chooses."""
        is_own = self._first is None and token_id not in self.ends
        self.num_generated += 1
        if self._budget is not None:
            self._budget.take(token_id)
        if self.grammar is not None and is_own:
            self.grammar.take(token_id)
        if self._counts is not None:
            self._counts.add(token_id)
        if self._followers is not None:
            self._followers.add(token_id)
        if self._bad_words:
            self._bad_words.add(token_id)

    def fork(self) -> "SamplerState":
        """One that has seen the same, and goes on by itself; both draw from one generator."""
        other = copy.copy(self)
        other._counts = copy.deepcopy(self._counts)  # noqa: SLF001 - of its own class
        other._followers = copy.deepcopy(self._followers)  # noqa: SLF001 - the same
        other._bad_words = copy.deepcopy(self._bad_words)  # noqa: SLF001 - the same
        other.grammar = self.grammar and self.grammar.fork()
        other._budget = self._budget and self._budget.fork()  # noqa: SLF001 - the same
        return other

    def draw(self) -> float:
        """The next uniform number in [0, 1)."""
        return self.random.random()

    @property
    def failure(self) -> InvalidArgument | None:
        """Why the grammar allows no token, if it failed."""
        return self.grammar.failure if self.grammar is not None else None

    @property
    def forced(self) -> int | None:
        """The next token where the model's outputs all begin with it, or thoughts must end."""
        if (first := self._first) is not None:
            return first
        return self._budget.forced if self._budget is not None else None

    @property
    def _first(self) -> int | None:
        is_first = self.num_generated < len(self._first_token_ids)
        return self._first_token_ids[self.num_generated] if is_first else None

    @property
    def edits(self) -> bool:
        """Whether the next token is chosen from other logits than come from the model."""
        return self._has_own_edits or (self.grammar is not None and not self.is_tried)

    @property
    def is_tried(self) -> bool:
        """Whether a token is drawn from the model's own logits, and again if `keeps` refuses it.

        That gives the distribution of a draw among those that the grammar allows.
        """
        if self.grammar is None or self.is_greedy or not self.grammar.trusts_model:
            return False
        return not self._has_own_edits and not self.grammar.forced

    def keeps(self, token_id: int) -> bool:
        """Whether the model's own choice stays: only a grammar edits, and it allows this token."""
        if self.grammar is None or self._has_own_edits:
            return False
        return self.grammar.allows(token_id)

    @property
    def few(self) -> np.ndarray | None:
        """The ids int64 that a grammar allows, ascending, if it alone edits, and they are few."""
        return None if self.grammar is None or self._has_own_edits else self.grammar.few

    @property
    def _has_own_edits(self) -> bool:
        """Whether more than a grammar edits."""
        is_early = self.num_generated < self.params.min_tokens and self._ends.size > 0
        return self._always_edits or is_early or self.forced is not None

    def edit(self, logits_V: np.ndarray, edited_V: np.ndarray) -> np.ndarray:
        """The logits after bans, biases and penalties: in `edited_V`, or as they came if none."""
        if not self.edits:
            return logits_V
        is_early = self.num_generated < self.params.min_tokens and self._ends.size
        if (forced := self.forced) is not None:
            edited_V.fill(-np.inf)
            edited_V[forced] = logits_V[forced]
            return edited_V
        if self._allowed.size:
            edited_V.fill(-np.inf)
            edited_V[self._allowed] = logits_V[self._allowed]
        else:
            np.copyto(edited_V, logits_V)
        if is_early:
            edited_V[self._ends] = -np.inf
        edited_V[self._banned] = -np.inf
        edited_V[self._biased] += self._biases
        if self._followers is not None:
            edited_V[self._followers.of_last()] = -np.inf
        if self._bad_words:
            edited_V[self._bad_words.of_last()] = -np.inf
        if self._counts is not None:
            _penalize(edited_V, self._counts, self.params)
        if self.grammar is not None:
            self.grammar.edit(edited_V)
        return edited_V


def _counts_for(params: Sampling, prompt_ids: np.ndarray) -> TokenCounts | None:
    """Counts where a penalty reads them, of the prompt too where it matters."""
    if params.repetition_penalty != 1.0:
        return TokenCounts(prompt_ids)
    is_read = params.presence_penalty != 0.0 or params.frequency_penalty != 0.0
    return TokenCounts(prompt_ids[:0]) if is_read else None


def _penalize(logits_V: np.ndarray, counts: TokenCounts, params: Sampling) -> None:
    ids, generated = counts.ids, counts.generated
    logits, factor = logits_V[ids], np.float32(params.repetition_penalty)
    logits = np.where(logits > 0, logits / factor, logits * factor)
    logits -= np.float32(params.frequency_penalty) * generated
    logits -= np.float32(params.presence_penalty) * (generated > 0)
    logits_V[ids] = logits
