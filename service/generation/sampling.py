"""Choose the next token of every row of a batch from the logits of a step.

Knows sampling parameters and arrays; nothing of sequences, slots, text or threads. What
is done to a row, in vLLM's order (its `v1/sample/sampler.py`):

1. logprobs are taken: log-softmax of the logits as the model gave them
2. bans: ends before `min_tokens`, all but the allowed ids, the banned ids
3. `logit_bias` is added; then no n-gram may repeat (transformers' NoRepeatNGram)
4. repetition penalty (CTRL, arXiv 1909.05858: over prompt and output, logits above 0 are
   divided by it, others multiplied), then presence and frequency penalty (OpenAI's: over
   the output, subtracted)
5. temperature 0: the largest logit, at a tie the lowest id. Otherwise division by it, and
6. filters, each on what the former left: `min_p` keeps what is at least so likely relative
   to the likeliest, `top_k` the k likeliest, `top_p` the fewest likeliest whose share of
   what is left reaches p (arXiv 1904.09751). At a tie lower ids stay.
7. one uniform number of the row's own generator picks by the inverse of the cumulative sum

Every row is computed by itself, with its own generator, so a result depends on nobody
else in the batch; row by row is also faster, since a row's scratch fits in a core's cache.
Nothing sorts a vocabulary: cheap bounds leave few candidates that are proven to be enough.
"""

# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, V vocabulary

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from service.generation.history import NgramFollowers, TokenCounts
from service.generation.sampling_params import SamplingParams

GROUP = 64  # entries of which one maximum is looked at when the best of a row are searched
BLOCK = 256  # entries whose sum is taken first when a number is looked up in a row's sums
# Weights, relative to the likeliest token's, from which on the mass of `top_p` is looked for:
# e^-4 and e^-8, each about as many tokens again as a text has likely continuations, then all.
MASS_FLOORS = (0.018, 0.00034, 0.0)
LOWEST = np.finfo(np.float32).min  # what is below is banned: -inf


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Of one chosen token, by the logits as they came: natural logarithms."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]  # the most likely ids with theirs, best first


@dataclass(frozen=True, slots=True, eq=False)
class Sampled:
    """One token per row of the batch."""

    token_ids: np.ndarray  # int64 [B]; 0 where not valid
    is_valid: np.ndarray  # bool [B]; False: logits not finite, or no token is left to choose
    logprobs: list[TokenLogprobs | None]  # None where not asked for, or not valid


class SamplerState:
    """What choosing the tokens of one sequence depends on, and nothing of its neighbours.

    With a seed, the same tokens for the same logits: the samples of one request differ by
    `sample_index`. Ids must be within the vocabulary (`SamplingParams.check_for`).
    """

    def __init__(
        self,
        params: SamplingParams,
        prompt_ids: np.ndarray,
        eos_token_ids: tuple[int, ...],
        sample_index: int = 0,
    ) -> None:
        self.params = params
        self.num_generated = 0
        seeds = None if params.seed is None else [params.seed, sample_index]
        self._random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seeds)))
        # An ignored end is a token like others.
        ends = params.stop_token_ids + (() if params.ignore_eos else eos_token_ids)
        self._ends = np.array(ends, np.int64)
        self._allowed = np.array(params.allowed_token_ids, np.int64)
        self._banned = np.array(params.banned_token_ids, np.int64)
        self._biased = np.fromiter(params.logit_bias.keys(), np.int64)
        self._biases = np.fromiter(params.logit_bias.values(), np.float32)
        self._counts = _counts_for(params, prompt_ids)
        self._followers: NgramFollowers | None = None
        if params.no_repeat_ngram_size:
            self._followers = NgramFollowers(params.no_repeat_ngram_size, prompt_ids.tolist())
        self._always_edits = bool(
            self._allowed.size
            or self._banned.size
            or self._biased.size
            or self._counts is not None
            or self._followers is not None
        )

    def append(self, token_id: int) -> None:
        """Count a token as generated; `sample` does so for what it chooses."""
        self.num_generated += 1
        if self._counts is not None:
            self._counts.add(token_id)
        if self._followers is not None:
            self._followers.add(token_id)

    def draw(self) -> float:
        """The next uniform number in [0, 1)."""
        return self._random.random()

    def edit(self, logits_V: np.ndarray, edited_V: np.ndarray) -> np.ndarray:
        """The logits after bans, biases and penalties: in `edited_V`, or as they came if none."""
        is_early = self.num_generated < self.params.min_tokens and self._ends.size
        if not is_early and not self._always_edits:
            return logits_V
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
        if self._counts is not None:
            _penalize(edited_V, self._counts, self.params)
        return edited_V


def _counts_for(params: SamplingParams, prompt_ids: np.ndarray) -> TokenCounts | None:
    """Counts where a penalty reads them, of the prompt too where it matters."""
    if params.repetition_penalty != 1.0:
        return TokenCounts(prompt_ids)
    is_read = params.presence_penalty != 0.0 or params.frequency_penalty != 0.0
    return TokenCounts(prompt_ids[:0]) if is_read else None


def _penalize(logits_V: np.ndarray, counts: TokenCounts, params: SamplingParams) -> None:
    ids, generated = counts.ids, counts.generated
    logits, factor = logits_V[ids], np.float32(params.repetition_penalty)
    logits = np.where(logits > 0, logits / factor, logits * factor)
    logits -= np.float32(params.frequency_penalty) * generated
    logits -= np.float32(params.presence_penalty) * (generated > 0)
    logits_V[ids] = logits


def sample(logits_BV: np.ndarray, states: Sequence[SamplerState]) -> Sampled:
    """Choose a token per row of float32 logits and append it to the row's state.

    The logits are only read. A row that is not valid fails alone, and its state stays.
    """
    num_rows, vocab_size = logits_BV.shape
    assert num_rows == len(states), f"{num_rows} rows of logits for {len(states)} states"
    token_ids = logits_BV.argmax(axis=1).astype(np.int64, copy=False)
    # NaN counts as the largest, so the maximum tells of NaN and inf; -inf: no finite one.
    is_valid = np.isfinite(logits_BV[np.arange(num_rows), token_ids])
    logprobs: list[TokenLogprobs | None] = [None] * num_rows
    scratch_2V = np.empty((2, vocab_size), np.float32)
    with np.errstate(over="ignore"):  # a difference of huge logits is -inf, as it should be
        for row, state in enumerate(states):
            chosen = None
            if is_valid[row]:
                chosen = _choose(logits_BV[row], int(token_ids[row]), state, scratch_2V)
            is_valid[row], token_ids[row] = chosen is not None, chosen or 0
            if chosen is None:
                continue
            state.append(chosen)
            if state.params.logprobs is not None:
                logprobs[row] = _logprobs(logits_BV[row], chosen, state.params.logprobs)
    return Sampled(token_ids, is_valid, logprobs)


def _choose(
    logits_V: np.ndarray, best: int, state: SamplerState, scratch_2V: np.ndarray
) -> int | None:
    """A token of one row whose largest logit is at `best`; None if edits leave no finite one."""
    edited_V = state.edit(logits_V, scratch_2V[0])
    if edited_V is not logits_V:
        best = int(edited_V.argmax())
        if not np.isfinite(edited_V[best]):
            return None
    if state.params.is_greedy:
        return best
    params, highest = state.params, edited_V[best]
    if params.min_p == 0.0 and params.top_p == 1.0 and not 0 < params.top_k < edited_V.size:
        weights_V = _weights(edited_V, highest, params.temperature, scratch_2V[1])
        return _pick(weights_V, state.draw())
    ids, weights = _filtered(edited_V, highest, params, scratch_2V[1])
    return int(ids[_pick(weights, state.draw())])


def _weights(
    logits: np.ndarray, highest: float, temperature: float, out: np.ndarray | None = None
) -> np.ndarray:
    """Probabilities relative to the highest logit's, which is 1."""
    weights: np.ndarray = np.subtract(logits, highest, out=out)
    weights *= np.float32(1.0 / temperature)
    np.exp(weights, out=weights)
    return weights


def _filtered(
    logits_V: np.ndarray, highest: float, params: SamplingParams, scratch_V: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Ids that the filters leave, ascending, and their weights."""
    if 0 < params.top_k < logits_V.size:
        ids = _best_ids(logits_V, params.top_k)
        weights = _weights(logits_V[ids], highest, params.temperature)
        # The order of these two does not matter: either leaves a number of the likeliest.
        is_likely = weights >= params.min_p
        ids, weights = ids[is_likely], weights[is_likely]
        total = float(weights.sum())
    elif params.min_p > 0.0:
        weights_V = _weights(logits_V, highest, params.temperature, scratch_V)
        ids = np.flatnonzero(weights_V >= params.min_p)
        weights = weights_V[ids]
        total = float(weights.sum())
    else:
        weights_V = _weights(logits_V, highest, params.temperature, scratch_V)
        total = float(weights_V.sum())
        ids, weights = _with_mass(weights_V, params.top_p * total)
    if params.top_p == 1.0:
        return ids, weights
    # Sorted are the logits, since different ones may have equal weights.
    logits = logits_V[ids]
    descending = np.sort(logits)[::-1]
    mass = np.cumsum(_weights(descending, highest, params.temperature), dtype=np.float64)
    count = min(int(np.searchsorted(mass, params.top_p * total)) + 1, ids.size)
    kept = _largest(logits, descending[count - 1], count)
    return ids[kept], weights[kept]


def _with_mass(weights_V: np.ndarray, mass: float) -> tuple[np.ndarray, np.ndarray]:
    """Ids and weights of all tokens above a bound, whose sum is at least `mass`."""
    for floor in MASS_FLOORS:
        ids = np.flatnonzero(weights_V >= floor)
        weights = weights_V[ids]
        if float(weights.sum()) >= mass * 1.0001:  # also if summed in another order
            break
    return ids, weights


def _best_ids(logits_V: np.ndarray, count: int) -> np.ndarray:
    """Ids of the `count` largest logits, ascending, and of fewer where others are -inf."""
    ids: np.ndarray = np.flatnonzero(logits_V >= max(_floor_of_best(logits_V, count), LOWEST))
    if ids.size > count:
        logits = logits_V[ids]
        ids = ids[_largest(logits, _nth_largest(logits, count), count)]
    return ids


def _floor_of_best(logits_V: np.ndarray, count: int) -> float:
    """A number that at least `count` logits reach, and not many more.

    The largest of disjoint groups are logits too, so if `count` of them reach a number,
    at least as many logits do. Groups are made of every `num_groups`-th entry, since
    neighbours in a vocabulary are alike.
    """
    num_groups = logits_V.size // GROUP
    if count > num_groups:
        return _nth_largest(logits_V, count)
    groups = logits_V[: num_groups * GROUP].reshape(GROUP, num_groups)
    return _nth_largest(groups.max(axis=0), count)


def _nth_largest(values: np.ndarray, count: int) -> float:
    place = values.size - count
    return float(np.partition(values, place)[place])


def _largest(values: np.ndarray, smallest: float, count: int) -> np.ndarray:
    """Places of the `count` largest values, `smallest` being the least; first ones at a tie."""
    places: np.ndarray = np.flatnonzero(values >= smallest)
    num_surplus = places.size - count
    if num_surplus:
        ties = np.flatnonzero(values[places] == smallest)
        places = np.delete(places, ties[-num_surplus:])
    return places


def _pick(weights: np.ndarray, uniform: float) -> int:
    """The place where the cumulative sum passes a share of the whole; never one of weight 0."""
    starts = np.arange(0, weights.size, BLOCK)
    sums = np.add.reduceat(weights, starts)
    block, left = _locate(sums, uniform * float(sums.sum(dtype=np.float64)))
    place, _ = _locate(weights[starts[block] : starts[block] + BLOCK], left)
    return int(starts[block]) + place


def _locate(weights: np.ndarray, mass: float) -> tuple[int, float]:
    """The first place where the cumulative sum exceeds `mass`, and what of it is left there."""
    sums = np.cumsum(weights, dtype=np.float64)
    below = min(mass, float(np.nextafter(sums[-1], 0.0)))  # rounding must not lead past the end
    place = int(np.searchsorted(sums, below, side="right"))
    return place, below - (float(sums[place - 1]) if place else 0.0)


def _logprobs(logits_V: np.ndarray, token_id: int, num_top: int) -> TokenLogprobs:
    highest = logits_V.max()
    log_total = float(highest) + float(np.log(_weights(logits_V, highest, 1.0).sum()))
    if num_top:
        ids = _best_ids(logits_V, min(num_top, logits_V.size))
        ids = ids[np.argsort(-logits_V[ids], kind="stable")]  # at a tie lower ids first
    else:
        ids = np.empty(0, np.int64)
    top = tuple((int(top_id), float(logits_V[top_id]) - log_total) for top_id in ids)
    return TokenLogprobs(token_id, float(logits_V[token_id]) - log_total, top)
