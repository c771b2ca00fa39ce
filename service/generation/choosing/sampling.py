"""Choose the next token of every row of a batch from the logits of a step.

Knows sampling parameters and arrays; nothing of sequences, slots, text or threads. What
is done to a row, in vLLM's order (its `v1/sample/sampler.py`):

1. logprobs are taken: log-softmax of the logits as the model gave them
2. bans: ends before `min_tokens`, all but the allowed ids, the banned ids, what a grammar forbids
3. `logit_bias` is added; then no n-gram may repeat (transformers' NoRepeatNGram)
4. repetition penalty (CTRL, arXiv 1909.05858: over prompt and output, logits above 0 are
   divided by it, others multiplied), then presence and frequency penalty (OpenAI's: over
   the output, subtracted)
5. temperature 0: the largest logit, at a tie the lowest id. Otherwise division by it, and
6. filters, each on what the former left: `min_p` keeps what is at least so likely relative
   to the likeliest, `top_k` the k likeliest, `top_p` the fewest likeliest whose share of
   what is left reaches p (arXiv 1904.09751). At a tie lower ids stay.
7. one uniform number of the row's own generator picks by the inverse of the cumulative sum;
   where nothing filters a large vocabulary, proposals are accepted by their weights instead,
   which gives the same distribution and looks at few tokens (`_propose`, `_race`)

Every row has its own generator and its own numbers, so a result does not depend on the rest of
the batch. Nothing sorts a vocabulary: cheap bounds leave few candidates that are proven to be
enough.
"""

# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, V vocabulary, R some of the rows,
# P proposals, C candidates

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from service.calls.sampling import Sampling
from service.generation.choosing.sampler_state import SamplerState
from service.generation.choosing.top_candidates import LOWEST, best_ids, floor_of_best, largest

BLOCK = 256  # entries whose sum is taken first when a number is looked up in a row's sums
# Weights, relative to the likeliest token's, from which on the mass of `top_p` is looked for:
# e^-4 and e^-8, each about as many tokens again as a text has likely continuations, then all.
MASS_FLOORS = (0.018, 0.00034, 0.0)
PROPOSALS = 48  # of one row at once; nearly flat text takes one of about 10
SMALL_VOCABULARY = 8_192  # up to which computing every weight costs less
MAX_SURPLUS = 8  # times as many candidates as are wanted are still few
SAMPLED = 16  # one of this number of entries is read to estimate where the best begin


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Natural logarithms of one chosen token's probability, by the model's own logits."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]  # the most likely ids with theirs, best first
    logit: float  # of the chosen token; the logit of a likeliest one differs by what logprobs do


@dataclass(frozen=True, slots=True, eq=False)
class Excerpt:
    """Facts of whole rows, where `sample` is given the logits of their likeliest tokens."""

    ids: np.ndarray  # int64 [B, V]: the token of each logit, ascending in a row
    log_sums: np.ndarray  # [B]: the logarithm of a whole row's summed exponentials
    masses: np.ndarray  # [B]: a whole row's weights, summed, where its `top_p` is a share of them


@dataclass(frozen=True, slots=True, eq=False)
class Sampled:
    """One token per row of the batch."""

    token_ids: np.ndarray  # int64 [B]; 0 where not valid
    is_valid: np.ndarray  # bool [B]; False: logits not finite, or no token is left to choose
    logprobs: list[TokenLogprobs | None]  # None if not requested, or not valid


def sample(
    logits_BV: np.ndarray, states: Sequence[SamplerState], excerpt: Excerpt | None = None
) -> Sampled:
    """Choose a token per row of float32 logits and append it to the row's state.

    The logits are only read. A row that is not valid fails alone, and its state stays. With an
    `excerpt` the rows hold candidates, of which `step_logits.py` has shown that
    they decide what the whole rows would.
    """
    num_rows, vocab_size = logits_BV.shape
    assert num_rows == len(states), f"{num_rows} rows of logits for {len(states)} states"
    best_B = logits_BV.argmax(axis=1)
    token_ids = best_B.astype(np.int64)
    # NaN counts as the largest, so the maximum tells of NaN and inf; -inf: no finite one.
    highest_B = logits_BV[np.arange(num_rows), best_B]
    is_valid = np.isfinite(highest_B)
    edits = [state.edits for state in states]
    with np.errstate(over="ignore"):  # a difference of huge logits is -inf, as it should be
        plain = [
            row
            for row, state in enumerate(states)
            if state.is_unfiltered and not edits[row] and is_valid[row]
        ]
        is_open = np.ones(num_rows, bool)
        if plain and vocab_size > SMALL_VOCABULARY:
            _propose(logits_BV, highest_B, plain, states, token_ids, is_open)
        ranked = [
            row
            for row, state in enumerate(states)
            if state.params.top_k and not edits[row] and is_valid[row] and not state.is_greedy
        ]
        if ranked:
            best = [(logits_BV[row], highest_B[row], states[row]) for row in ranked]
            token_ids[ranked], is_open[ranked] = _among_best(best), False
        scratch_2V = np.empty((2, vocab_size), np.float32)
        for row, state in enumerate(states):
            if not is_valid[row]:
                continue
            if state.is_greedy and (not edits[row] or state.keeps(_id_of(row, token_ids, excerpt))):
                continue
            if is_open[row]:
                mass = None if excerpt is None else float(excerpt.masses[row])
                chosen = _choose(logits_BV[row], int(best_B[row]), state, scratch_2V, mass)
                is_valid[row], token_ids[row] = chosen is not None, chosen or 0
            if state.is_tried and not state.keeps(int(token_ids[row])):
                chosen = _choose(logits_BV[row], int(best_B[row]), state, scratch_2V, None)
                is_valid[row], token_ids[row] = chosen is not None, chosen or 0
    if excerpt is not None:
        token_ids = excerpt.ids[np.arange(num_rows), token_ids]
    token_ids[~is_valid] = 0
    logprobs: list[TokenLogprobs | None] = [None] * num_rows
    for row, (state, token_id, is_sound) in enumerate(
        zip(states, token_ids.tolist(), is_valid.tolist(), strict=True)
    ):
        num_top = state.params.logprobs
        if is_sound:
            state.append(token_id)
        if is_sound and num_top is not None:
            logprobs[row] = (
                logprobs_of(logits_BV[row], token_id, num_top)
                if excerpt is None
                else _logprobs_in(excerpt, row, logits_BV[row], token_id, num_top)
            )
    return Sampled(token_ids, is_valid, logprobs)


def _id_of(row: int, places: np.ndarray, excerpt: Excerpt | None) -> int:
    """The token that a row's place stands for."""
    return int(places[row] if excerpt is None else excerpt.ids[row, places[row]])


def _propose(
    logits_BV: np.ndarray,
    highest_B: np.ndarray,
    rows: Sequence[int],
    states: Sequence[SamplerState],
    token_ids: np.ndarray,
    is_open: np.ndarray,
) -> None:
    """Rejection sampling: any token, kept with the probability of its weight; the first is chosen.

    All these rows at once. A row that keeps none of its proposals stays open: what is chosen for
    it by other means has the same distribution, because it is independent of the proposals.
    """
    vocab_size = logits_BV.shape[1]
    uniforms_R2P = np.stack([states[row].random.random((2, PROPOSALS)) for row in rows])
    ids_RP = (uniforms_R2P[:, 0] * vocab_size).astype(np.int64)
    temperatures_R = [states[row].params.temperature for row in rows]
    weights_RP = logits_BV.reshape(-1).take(ids_RP + np.array(rows)[:, None] * vocab_size)
    weights_RP -= highest_B[rows, None]
    weights_RP *= (1.0 / np.array(temperatures_R)).astype(np.float32)[:, None]
    is_kept_RP = uniforms_R2P[:, 1] < np.exp(weights_RP, out=weights_RP)
    first_R = is_kept_RP.argmax(axis=1)
    for place, (row, first) in enumerate(zip(rows, first_R.tolist(), strict=True)):
        if is_kept_RP[place, first]:
            token_ids[row], is_open[row] = ids_RP[place, first], False


def _choose(
    logits_V: np.ndarray,
    best: int,
    state: SamplerState,
    scratch_2V: np.ndarray,
    mass: float | None,
) -> int | None:
    """A token of one row whose largest logit is at `best`; None if edits leave no finite one.

    `mass` is the sum of a whole vocabulary's weights, where the row is an excerpt of it.
    """
    if not state.edits:
        return _draw(logits_V, best, state, scratch_2V[1], mass)
    if (few := state.few) is not None:
        chosen = _among_few(logits_V[few], state)
        token_id = None if chosen is None else int(few[chosen])
    else:
        edited_V = state.edit(logits_V, scratch_2V[0])
        likeliest = int(edited_V.argmax())
        if not np.isfinite(edited_V[likeliest]):
            return None
        token_id = _draw(edited_V, likeliest, state, scratch_2V[1], mass)
    state.keeps(best)  # whether the model's own choice is tried first next time
    return token_id


def _among_few(logits: np.ndarray, state: SamplerState) -> int | None:
    """The place of a token among a few that are allowed; None if none is."""
    if logits.size < 2:
        return 0 if logits.size else None
    likeliest = int(logits.argmax())
    if not np.isfinite(logits[likeliest]):
        return None
    return _draw(logits, likeliest, state, np.empty_like(logits), None)


def _draw(
    logits_V: np.ndarray, best: int, state: SamplerState, scratch_V: np.ndarray, mass: float | None
) -> int:
    """A token of logits as they are, of which the largest is at `best`."""
    if state.is_greedy:
        return best
    params, highest = state.params, logits_V[best]
    if params.top_k:
        return int(_among_best([(logits_V, highest, state)])[0])
    if state.is_unfiltered:
        if logits_V.size > SMALL_VOCABULARY:
            return _race(logits_V, highest, state)
        weights_V = weights_of(logits_V, highest, params.temperature, scratch_V)
        return _pick(weights_V, state.draw())
    ids, weights = _filtered(logits_V, highest, params, scratch_V, mass)
    return int(ids[_pick(weights, state.draw())])


def _race(logits_V: np.ndarray, highest: float, state: SamplerState) -> int:
    """Tokens arrive at the rate of their weights, and the first to arrive is chosen.

    When the first of the few heavy tokens does is known from their sum. Light ones are proposed at
    the rate of the heaviest of them until then, and each proposal is kept in proportion to its
    weight: that is few of them, and no other light token is looked at.
    """
    vocab_size, temperature = logits_V.size, state.params.temperature
    limit = (
        PROPOSALS / vocab_size
    )  # of weights: the proposals until time 1, and heavy ones sum to 1
    lowest = highest + np.float32(temperature * np.log(limit))
    heavy = (logits_V >= lowest).nonzero()[0]
    sums = np.cumsum(weights_of(logits_V[heavy], highest, temperature), dtype=np.float64)
    arrival = state.random.exponential() / sums[-1]
    num_proposed = state.random.poisson(PROPOSALS * arrival)
    if num_proposed:
        ids = state.random.integers(0, vocab_size, num_proposed)
        logits, uniforms = logits_V[ids], state.random.random(num_proposed)
        weights = weights_of(logits, highest, temperature)
        kept = ids[(logits < lowest) & (uniforms * limit < weights)]
        if kept.size:
            return int(kept[0])
    below = min(state.draw() * sums[-1], np.nextafter(sums[-1], 0.0))
    return int(heavy[np.searchsorted(sums, below, side="right")])


def weights_of(
    logits: np.ndarray, highest: float, temperature: float, out: np.ndarray | None = None
) -> np.ndarray:
    """Probabilities relative to the highest logit's, which is 1."""
    weights: np.ndarray = np.subtract(logits, highest, out=out)
    weights *= np.float32(1.0 / temperature)
    np.exp(weights, out=weights)
    return weights


def _among_best(rows: Sequence[tuple[np.ndarray, float, SamplerState]]) -> np.ndarray:
    """A token of each row that has a `top_k`: of its logits, their largest and its state.

    Candidates are padded to C per row, and all rows computed at once. Sums run one by one, so that
    padding changes no bit of them.
    """
    candidates = _candidates(rows)
    params = [state.params for _, _, state in rows]
    counts_R1 = np.array([[ids.size] for ids in candidates])
    is_there_RC = np.arange(counts_R1.max()) < counts_R1
    logits_RC = np.full(is_there_RC.shape, -np.inf, np.float32)
    logits_RC[is_there_RC] = np.concatenate(
        [row[0][ids] for row, ids in zip(rows, candidates, strict=True)]
    )
    scales_R1 = np.array([[1.0 / each.temperature] for each in params], np.float32)
    highest_R1 = np.array([[highest] for _, highest, _ in rows], np.float32)
    best_RC = -np.sort(-logits_RC, axis=1)
    weights_RC = np.exp((best_RC - highest_R1) * scales_R1)
    # How many of the best are kept: at most k of those that are likely, then the fewest of these
    # whose mass is enough.
    num_likely_R = (weights_RC >= [[each.min_p] for each in params]).sum(axis=1)
    num_kept_R = np.minimum(
        np.minimum(num_likely_R, [each.top_k for each in params]), counts_R1[:, 0]
    )
    places_R = np.arange(len(rows))
    mass_RC = np.cumsum(weights_RC, axis=1, dtype=np.float64)
    enough_R1 = mass_RC[places_R, num_kept_R - 1, None] * [[each.top_p] for each in params]
    num_enough_R = (mass_RC < enough_R1).sum(axis=1) + 1
    num_kept_R = np.minimum(num_kept_R, num_enough_R)
    # Of those that are like the last one kept, the lowest ids.
    last_R1 = best_RC[places_R, num_kept_R - 1, None]
    is_above_RC, is_tie_RC = logits_RC > last_R1, logits_RC == last_R1
    num_ties_R1 = num_kept_R[:, None] - is_above_RC.sum(axis=1, keepdims=True)
    is_kept_RC = is_above_RC | (is_tie_RC & (np.cumsum(is_tie_RC, axis=1) <= num_ties_R1))
    weights_RC = np.exp((logits_RC - highest_R1) * scales_R1)
    sums_RC = np.cumsum(np.where(is_kept_RC, weights_RC, 0.0), axis=1, dtype=np.float64)
    drawn_R1 = np.array([[state.draw()] for _, _, state in rows])
    below_R1 = np.minimum(drawn_R1 * sums_RC[:, -1:], np.nextafter(sums_RC[:, -1:], 0.0))
    chosen_R = (sums_RC <= below_R1).sum(axis=1).tolist()
    return np.array([ids[place] for ids, place in zip(candidates, chosen_R, strict=True)], np.int64)


def _candidates(rows: Sequence[tuple[np.ndarray, float, SamplerState]]) -> list[np.ndarray]:
    """For each row a few ids that include its `top_k` best, ascending.

    The lowest logit of those is estimated from every `SAMPLED`-th logit. -inf is no candidate.
    """
    sampled_RS = np.stack([logits_V[::SAMPLED] for logits_V, _, _ in rows])
    size = sampled_RS.shape[1]
    top_ks = [min(state.params.top_k, logits_V.size) for logits_V, _, state in rows]
    # As many as are expected, and two and a half standard deviations more.
    places = [max(0, size - int(k / SAMPLED + 2.5 * (k / SAMPLED) ** 0.5) - 2) for k in top_ks]
    sampled_RS.partition(sorted(set(places)), axis=1)
    candidates = []
    for row, (logits_V, _, _) in enumerate(rows):
        floor, count = max(sampled_RS[row, places[row]], LOWEST), top_ks[row]
        ids: np.ndarray = (logits_V >= floor).nonzero()[0]
        if not count <= ids.size <= MAX_SURPLUS * count + SAMPLED:
            ids = (logits_V >= max(floor_of_best(logits_V, count), LOWEST)).nonzero()[0]
        candidates.append(ids)
    return candidates


def _filtered(
    logits_V: np.ndarray,
    highest: float,
    params: Sampling,
    scratch_V: np.ndarray,
    mass: float | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Ids that `min_p` and `top_p` leave, ascending, and their weights."""
    weights_V = weights_of(logits_V, highest, params.temperature, scratch_V)
    if params.min_p > 0.0:
        ids = np.flatnonzero(weights_V >= params.min_p)
        weights = weights_V[ids]
        total = float(weights.sum())
    else:
        total = float(weights_V.sum()) if mass is None else mass
        ids, weights = _with_mass(weights_V, params.top_p * total)
    if params.top_p == 1.0:
        return ids, weights
    # Sorted are the logits, since different ones may have equal weights.
    logits = logits_V[ids]
    descending = np.sort(logits)[::-1]
    sums = np.cumsum(weights_of(descending, highest, params.temperature), dtype=np.float64)
    count = min(int(np.searchsorted(sums, params.top_p * total)) + 1, ids.size)
    kept = largest(logits, descending[count - 1], count)
    return ids[kept], weights[kept]


def _with_mass(weights_V: np.ndarray, mass: float) -> tuple[np.ndarray, np.ndarray]:
    """Ids and weights of all tokens above a bound, whose sum is at least `mass`."""
    for floor in MASS_FLOORS:
        ids = np.flatnonzero(weights_V >= floor)
        weights = weights_V[ids]
        if float(weights.sum()) >= mass * 1.0001:  # also if summed in another order
            break
    return ids, weights


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


def log_total(logits_V: np.ndarray) -> float:
    """The logarithm of the summed exponentials; not finite if the logits are not."""
    highest = float(logits_V.max())
    return highest + float(np.log(weights_of(logits_V, highest, 1.0).sum()))


def logprobs_of(
    logits_V: np.ndarray, token_id: int, num_top: int, total: float | None = None
) -> TokenLogprobs:
    """The log probabilities of one token and of the most likely ones.

    `total` is `log_total` of the whole vocabulary, where the row is an excerpt of it.
    """
    total = log_total(logits_V) if total is None else total
    if num_top:
        ids = best_ids(logits_V, min(num_top, logits_V.size))
        ids = ids[np.argsort(-logits_V[ids], kind="stable")]  # at a tie lower ids first
    else:
        ids = np.empty(0, np.int64)
    top = tuple((int(top_id), float(logits_V[top_id]) - total) for top_id in ids)
    logit = float(logits_V[token_id])
    return TokenLogprobs(token_id, logit - total, top, logit)


def _logprobs_in(
    excerpt: Excerpt, row: int, logits_V: np.ndarray, token_id: int, num_top: int
) -> TokenLogprobs:
    """Log probabilities of a token and the most likely ones, of a row that is an excerpt."""
    ids_V = excerpt.ids[row]
    place = int(np.searchsorted(ids_V, token_id))
    found = logprobs_of(logits_V, place, num_top, float(excerpt.log_sums[row]))
    top = tuple((int(ids_V[place]), logprob) for place, logprob in found.top)
    return TokenLogprobs(token_id, found.logprob, top, found.logit)
