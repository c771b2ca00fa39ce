"""Speculative decoding: draft a sequence's next tokens from its own text, if that saves time.

A text that summarises, edits or repeats has parts of its prompt or output again: the tokens that
followed the last few tokens there are a draft (prompt lookup decoding). A run over the draft gives
the model's logits after each of its tokens, at a lower cost than one run per token. Tokens are
still chosen from the model's logits, one after the other, so the text stays the same; a draft
only decides how many are chosen per run. Where a grammar leaves one text only, its tokens are the
draft, and always right; a draft from the text is cut where the grammar forbids it.

Whether a draft pays is computed from the cost of earlier runs, and from the share of a sequence's
drafts that were right. The cost of wrong drafts is bounded: it is paid from a credit, in decoding
steps, that grows by a hundredth per step:
docs/explanation/decisions/0020-drafts-from-the-text-itself.md.

Pure policy: knows no run, clock or slot.
"""

from dataclasses import dataclass

import numpy as np

from service.generation.sequence import Sequence

LENGTHS = (3, 7, 15, 31)  # of drafts: a run's products are computed by fours or eights of tokens
MATCH_TOKENS = 3  # fewer in common and what follows is chance
MAX_DRAFTING = 4  # sequences that decode; more are better off in one run
LEAST_GAIN = 1.1  # a draft must promise a tenth more tokens in a time than decoding does
RUN_MEMORY = 0.8  # the weight of earlier costs that is left after each run
COST_PER_TOKEN = 0.1  # of a step with one token, until a longer run was measured
EARNED_PER_STEP = 0.01  # credit in decoding steps: the most that drafts may cost in the long run
FIRST_CREDIT, MAX_CREDIT = 1.0, 4.0


def lookup(token_ids: np.ndarray, num_tokens: int) -> np.ndarray:
    """The tokens after the latest earlier occurrence of the last tokens; empty if there is none.

    If they are fewer than `num_tokens`, the text repeats itself since, and is repeated further.
    """
    last = token_ids[-MATCH_TOKENS:]
    if len(token_ids) <= MATCH_TOKENS or not num_tokens:
        return token_ids[:0]
    ends = np.flatnonzero(token_ids[MATCH_TOKENS - 1 : -1] == last[-1]) + MATCH_TOKENS - 1
    for back in range(1, MATCH_TOKENS):
        ends = ends[token_ids[ends - back] == last[-1 - back]]
    if not ends.size:
        return token_ids[:0]
    follows = token_ids[ends[-1] + 1 :]
    return np.resize(follows, num_tokens) if len(follows) < num_tokens else follows[:num_tokens]


def draft_of(sequence: Sequence, num_tokens: int) -> np.ndarray:
    """The next tokens, int32, at most `num_tokens`: forced ones, else those of `lookup`."""
    token_ids = sequence.token_ids[: sequence.num_tokens]
    grammar = sequence.sampler.grammar
    if grammar is None:
        return lookup(token_ids, num_tokens)
    if forced := grammar.forced:
        return np.array(forced[:num_tokens], np.int32)
    token_ids = lookup(token_ids, num_tokens)
    return token_ids[: grammar.num_valid(token_ids)] if len(token_ids) else token_ids


def is_forced(sequence: Sequence) -> bool:
    """Whether a grammar leaves one next token."""
    grammar = sequence.sampler.grammar
    return grammar is not None and bool(grammar.forced)


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens that a sequence may say next."""

    sequence: Sequence
    token_ids: np.ndarray  # int32, at least one
    is_forced: bool = False  # by a grammar, so that agreement tells nothing of later drafts


class Speculator:
    """Turns of sequences to have drafts checked; costs are of one model's runs, in any unit."""

    def __init__(self, max_draft_tokens: int) -> None:
        self._lengths = [length for length in LENGTHS if length < max_draft_tokens]
        if max_draft_tokens:
            self._lengths.append(max_draft_tokens)
        self._step_costs: dict[int, float] = {}  # of decoding, by rows
        self._check_costs: dict[int, float] = {}  # of a draft and the token before it, by tokens
        self._credit = FIRST_CREDIT
        self._turn = 0

    def __repr__(self) -> str:
        return f"<Speculator drafts of {self._lengths}, credit {self._credit:.2f}>"

    def draft(self, decoding: list[Sequence]) -> Draft | None:
        """A draft of one of the sequences that decode, if all are better off in turn than at once.

        Else those without a draft would wait for those with one.
        """
        if not self._lengths or not 1 <= len(decoding) <= MAX_DRAFTING:
            return None
        step_cost = self._step_costs.get(len(decoding))
        if step_cost is None or self._credit < COST_PER_TOKEN:
            return None
        drafts = []
        for sequence in decoding:
            token_ids = self._draft_of(sequence, step_cost / len(decoding))
            if not len(token_ids):
                return None
            drafts.append(Draft(sequence, token_ids, is_forced(sequence)))
        self._turn += 1
        return drafts[self._turn % len(drafts)]

    def stepped(self, num_rows: int, cost: float) -> None:
        """Count a decoding step by its number of sequences."""
        if num_rows <= MAX_DRAFTING:
            self._step_costs[num_rows] = _average(self._step_costs.get(num_rows), cost)
            self._credit = min(self._credit + EARNED_PER_STEP, MAX_CREDIT)

    def checked(self, draft: Draft, num_agreed: int, num_decoding: int, cost: float) -> None:
        """Count a draft that was run, and its tokens that agree with the model's."""
        num_drafted = len(draft.token_ids)
        num_run = num_drafted + 1
        self._check_costs[num_run] = _average(self._check_costs.get(num_run), cost)
        num_steps = num_decoding * cost / self._step_costs[num_decoding]  # of one sequence's tokens
        self._credit = min(self._credit + num_agreed + 1 - num_steps, MAX_CREDIT)
        if not draft.is_forced:
            draft.sequence.drafts.add(num_agreed, num_drafted, draft.sequence.num_tokens)

    def _draft_of(self, sequence: Sequence, token_cost: float) -> np.ndarray:
        """The draft that gains most, or an empty one where none gains enough."""
        if sequence.request.params.has_beams:  # which beam continues is known only after each token
            return sequence.token_ids[:0]
        most = max(0, sequence.num_output_tokens_left - 1)  # one more is said after the draft
        token_ids = draft_of(sequence, min(most, self._lengths[-1]))
        rate = sequence.drafts.rate(sequence.num_tokens)
        if is_forced(sequence):
            return self._forced_of(token_ids, token_cost)
        best, best_gain = 0, LEAST_GAIN
        for length in self._lengths:
            if length > len(token_ids):
                break
            num_expected = (1 - rate ** (length + 1)) / (1 - rate)
            cost = self._cost_of(length + 1) / token_cost
            if num_expected / cost > best_gain and cost - 1 <= self._credit:
                best, best_gain = length, num_expected / cost
        return token_ids[:best]

    def _forced_of(self, token_ids: np.ndarray, token_cost: float) -> np.ndarray:
        """Forced tokens, if a run over them gains: all of them will be said."""
        gain = (len(token_ids) + 1) * token_cost / self._cost_of(len(token_ids) + 1)
        return token_ids if gain > LEAST_GAIN else token_ids[:0]

    def _cost_of(self, num_tokens: int) -> float:
        known = self._check_costs.get(num_tokens)
        if known is not None:
            return known
        return min(self._step_costs.values()) * (1 + COST_PER_TOKEN * (num_tokens - 1))


def _average(before: float | None, cost: float) -> float:
    return cost if before is None else RUN_MEMORY * before + (1 - RUN_MEMORY) * cost
