"""The logits of a run as the engine sees them: whole rows, or the likeliest tokens of each.

Where a graph computes on a device, its logits stay there: of 50,000 per row, a step reads the 256
largest. These decide most choices. Where they do not, or where a parameter needs the whole row, as
penalties and beams do, the row is fetched.

What is decided is exact: the same token as from the whole row, by the same numbers of the same
generator. A token that is no candidate has at most the logit of the last candidate, so whatever is
above that one is known. Pure but for `Fetch`, which the decoder passes in.
"""
# ruff: noqa: N806 - suffixes are array layouts: B rows, K candidates, V vocabulary

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from service.generation.choosing.sampler_state import SamplerState
from service.generation.choosing.sampling import Excerpt, Sampled, TokenLogprobs, sample, weights_of
from service.generation.choosing.top_candidates import LOWEST, nth_largest

# The graph and this module sum a row's exponentials in float32, in another order each.
SUM_ERROR = 1e-4
UNDECIDED = np.nan

Fetch = Callable[[np.ndarray], np.ndarray]  # whole rows, float32 [n, V], by their indices


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """The likeliest tokens of each row, in any order."""

    ids: np.ndarray  # int64 [B, K]
    logits: np.ndarray  # float32 [B, K]
    log_sums: np.ndarray  # float32 [B]: the logarithm of a whole row's summed exponentials
    vocab_size: int

    def take(self, rows: Sequence[int] | slice) -> "Candidates":
        return Candidates(self.ids[rows], self.logits[rows], self.log_sums[rows], self.vocab_size)

    def by_id(self) -> "Candidates":
        """Candidates in the order of their ids, as the entries of a whole row are."""
        order_BK = np.argsort(self.ids, axis=1)
        ids_BK = np.take_along_axis(self.ids, order_BK, axis=1)
        logits_BK = np.take_along_axis(self.logits, order_BK, axis=1)
        return Candidates(ids_BK, logits_BK, self.log_sums, self.vocab_size)

    def excerpt_for(self, states: Sequence[SamplerState]) -> "Candidates":
        """Candidates in an order that chooses as whole rows do: one sole maximum needs none."""
        num_best_B = (self.logits == self.logits.max(axis=1, keepdims=True)).sum(axis=1)
        is_plain = all(each.is_greedy and each.params.logprobs is None for each in states)
        return self if is_plain and num_best_B.max() == 1 else self.by_id()


class StepLogits:
    """Rows of logits, and how to get them; valid until the next run."""

    def __init__(
        self, rows: np.ndarray, fetch: Fetch | None = None, candidates: Candidates | None = None
    ) -> None:
        """`rows` are whole, float32 [B, V]; or, with `fetch`, their indices, int64 [B]."""
        self._rows = rows
        self._fetch = fetch
        self.candidates = candidates

    @classmethod
    def of(cls, logits: "np.ndarray | StepLogits") -> "StepLogits":
        """Rows in the host's memory, or what is wrapped already."""
        return logits if isinstance(logits, StepLogits) else cls(logits)

    def __len__(self) -> int:
        return len(self._rows)

    def take(self, rows: Sequence[int] | slice) -> "StepLogits":
        """Some of the rows."""
        candidates = self.candidates and self.candidates.take(rows)
        return StepLogits(self._rows[rows], self._fetch, candidates)

    def whole(self) -> np.ndarray:
        """All rows, float32 [B, V], from wherever they are."""
        return self._rows if self._fetch is None else self._fetch(self._rows)

    def whole_rows(self, rows: Sequence[int]) -> list[np.ndarray]:
        """Some of the rows, float32 [V] each; not copied where they are in the host's memory."""
        return (
            [self._rows[row] for row in rows] if self._fetch is None else [*self.take(rows).whole()]
        )

    def sample(self, states: Sequence[SamplerState]) -> Sampled:
        """A token per row, as `sampling.sample` chooses it; whole rows are read where they must."""
        if not states:
            return Sampled(np.empty(0, np.int64), np.empty(0, bool), [])
        if self.candidates is None:
            return sample(self.whole(), states)
        masses_B = masses(self.candidates, states)
        is_decided_B = ~np.isnan(masses_B)
        decided, others = (np.flatnonzero(each).tolist() for each in (is_decided_B, ~is_decided_B))
        token_ids, is_valid = np.zeros(len(states), np.int64), np.zeros(len(states), bool)
        logprobs: list[TokenLogprobs | None] = [None] * len(states)
        parts = []
        if decided:
            choosing = [states[row] for row in decided]
            known = self.candidates.take(decided).excerpt_for(choosing)
            excerpt = Excerpt(known.ids, known.log_sums, masses_B[decided])
            chosen = sample(known.logits, choosing, excerpt)
            parts.append((decided, chosen))
        if others:
            chosen = sample(self.take(others).whole(), [states[row] for row in others])
            parts.append((others, chosen))
        for rows, part in parts:
            token_ids[rows], is_valid[rows] = part.token_ids, part.is_valid
            for row, each in zip(rows, part.logprobs, strict=True):
                logprobs[row] = each
        return Sampled(token_ids, is_valid, logprobs)


def masses(candidates: Candidates, states: Sequence[SamplerState]) -> np.ndarray:
    """Float64 [B]: for each row that its candidates decide, the summed weights of its vocabulary.

    NaN for a row that they do not decide. The sum is as exact as the choice needs it, and 0 where
    the choice does not depend on it.
    """
    highest_B, last_B = candidates.logits.max(axis=1), candidates.logits.min(axis=1)
    # Of NaN or infinity in a row the sum tells, and the whole row says what is wrong.
    is_sound_B = np.isfinite(candidates.log_sums) & np.isfinite(highest_B)
    has_best_B = (highest_B > last_B) | (last_B < LOWEST)
    masses_B = np.full(len(states), UNDECIDED)
    rows = zip(states, is_sound_B.tolist(), has_best_B.tolist(), strict=True)
    for row, (state, is_sound, has_best) in enumerate(rows):
        if not is_sound or (state.edits and not has_best):
            continue
        if state.edits:  # by a grammar that allows the best, or in a way that needs the whole row
            best = int(candidates.ids[row, candidates.logits[row].argmax()])
            if not state.is_greedy or not state.keeps(best):
                continue
        if state.is_greedy and state.params.logprobs is None:  # most rows: they take no time
            masses_B[row] = 0.0 if has_best else UNDECIDED
            continue
        known = _Row(
            candidates.logits[row],
            float(highest_B[row]),
            float(last_B[row]),
            float(candidates.log_sums[row]),
            candidates.vocab_size,
        )
        masses_B[row] = known.mass_for(state)
    return masses_B


@dataclass(slots=True)  # one for each row of each step: freezing takes time
class _Row:
    """One row's candidates; other tokens have at most the logit `last`."""

    logits: np.ndarray  # float32 [K]
    highest: float
    last: float
    log_sum: float
    vocab_size: int

    def mass_for(self, state: SamplerState) -> float:
        """See `masses`."""
        params = state.params
        if not self._has_best(params.logprobs or 0):
            return UNDECIDED
        if state.is_greedy:
            return 0.0 if self._has_best(1) else UNDECIDED
        if params.top_k:
            return 0.0 if self._has_best(min(params.top_k, self.vocab_size)) else UNDECIDED
        if state.is_unfiltered:
            return UNDECIDED
        if params.min_p > 0.0:
            last = np.array([self.last], np.float32)
            is_kept = weights_of(last, self.highest, params.temperature) >= params.min_p
            return UNDECIDED if is_kept[0] else 0.0
        return self._mass_for_share(params.top_p, params.temperature)

    def _has_best(self, count: int) -> bool:
        """Whether the best tokens of this number are among the candidates, and all like them."""
        if not count or self.last < LOWEST:  # all others are -inf too, and are never chosen
            return True
        if count == 1:
            return self.highest > self.last
        return count <= self.logits.size and nth_largest(self.logits, count) > self.last

    def _mass_for_share(self, top_p: float, temperature: float) -> float:
        """The mass of the vocabulary, if it is known well enough to cut at a share of it."""
        descending = np.sort(self.logits)[::-1]
        weights = weights_of(descending, self.highest, temperature)
        sums = np.cumsum(weights, dtype=np.float64)
        low, high = self._bounds(float(sums[-1]), float(weights[-1]), 1.0 / temperature)
        places = np.searchsorted(sums, (top_p * low, top_p * high))
        if places[0] != places[1] or places[1] >= descending.size:
            return UNDECIDED
        if self.last >= LOWEST and descending[places[0]] <= self.last:
            return UNDECIDED  # others may be like the last one kept
        return (low + high) / 2

    def _bounds(self, known: float, last_weight: float, power: float) -> tuple[float, float]:
        """Between which the sum of all weights lies; weights are exp(difference * power)."""
        num_others = max(1, self.vocab_size - self.logits.size)
        total = float(np.exp(self.log_sum - self.highest))  # of all at temperature 1
        others = total - float(np.exp(self.logits.astype(np.float64) - self.highest).sum())
        error = total * SUM_ERROR
        ends = [
            # Below temperature 1 each of the others loses at least as much as the last candidate
            # does, and all of them at most as much as if they were alike; above it, it is reversed.
            (
                each * float(np.exp((self.last - self.highest) * (power - 1.0))),
                num_others ** (1.0 - power) * each**power,
            )
            for each in (max(0.0, others - error), max(0.0, others + error))
        ]
        least, most = min(ends[0]), min(max(ends[1]), num_others * last_weight)
        return (known + least) * (1 - SUM_ERROR), (known + most) * (1 + SUM_ERROR)
