"""Beam search: go on with the likeliest beginnings of an output at once, and give the n best ends.

A request's search is one sequence until its prompt is computed, then up to `beam_width` of them,
its beams, which decode in the same steps as other requests. After each step

1. every beam is continued by every token, and the sum of its log probabilities by that token's, as
   the model gave it; a banned token is left out, and the other tokens' probabilities stay. A token
   that all outputs of the model begin with adds nothing
2. of the `beam_width` likeliest continuations those that end are finished; the likeliest that do
   not end are the beams of the next step, at `max_tokens` they are finished too
3. the search is over when none of the beams can become one of the n best

The best have the largest sum / tokens ** length_penalty, their last token counted: the simplest of
the forms in Wu et al. 2016 (arXiv 1609.08144) and that of Hugging Face's. A sum only falls, so what
a beam can still reach is its sum over the largest number of tokens.

A beam whose continuations are all among the worst gives its slot to a copy of another. Pure: the
steps themselves are the scheduler's.
"""
# ruff: noqa: N806 - suffixes are array layouts: V vocabulary

from collections.abc import Mapping
from collections.abc import Sequence as Many
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np

from service.errors import ModelFailed, invalid_field
from service.generation.choosing.sampling import TokenLogprobs, log_total, logprobs_of
from service.generation.choosing.top_candidates import best_ids
from service.generation.sequence import Sequence
from service.generation.steps.scheduler import Scheduler
from service.records import FinishReason


@dataclass(frozen=True, slots=True)
class Beam:
    """A beginning of an output, in the sequence that computes it."""

    sequence: Sequence
    score: float = 0.0  # the sum of its tokens' natural log probabilities
    logprobs: tuple[TokenLogprobs, ...] = ()  # one per token if they are requested


@dataclass(frozen=True, slots=True)
class Continuation:
    """A beam and one more token."""

    beam: Beam
    token_id: int
    score: float


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A whole output."""

    token_ids: np.ndarray  # int32, the one that ended it included
    score: float
    reason: FinishReason
    logprobs: tuple[TokenLogprobs, ...]


class BeamSearch:
    """One request's search; `results` are its samples, which become the n best in the end."""

    def __init__(self, results: Many[Sequence]) -> None:
        leader = results[0]
        request = leader.request
        self.results = tuple(results)
        self._params = request.params
        self._max_tokens = request.max_tokens
        # Where beams live; the first has the prompt, and the others a slot while they are one.
        self._sequences = [
            *results,
            *(
                Sequence(request, leader.sampler, leader.text, index, leader)
                for index in range(len(results), request.params.beam_width)
            ),
        ]
        self._beams = [Beam(leader)]  # likeliest first
        self._finished: list[Hypothesis] = []  # best first, n at most
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<BeamSearch {len(self._beams)} beams, {len(self._finished)} finished>"

    def advance(self, logits: Mapping[Sequence, np.ndarray], scheduler: Scheduler[Any]) -> bool:
        """Take what a step computed, float32 [V] of each beam; True once the search is over.

        Raises `ModelFailed`, and `InvalidArgument` for a grammar that cannot be kept to.
        """
        width, num_tokens = self._params.beam_width, self._beams[0].sequence.num_output_tokens + 1
        ends = self._beams[0].sequence.sampler.ends
        going: list[Continuation] = []
        # At most these of one beam's continuations can be chosen, independent of the others'.
        for place, continuation in enumerate(self._continuations(logits, width + len(ends))):
            if continuation.token_id not in ends:
                going.append(continuation)
            elif place < width:
                self._finish(continuation, logits, FinishReason.STOP)
        going = going[:width]
        if num_tokens == self._max_tokens:
            for continuation in going:
                self._finish(continuation, logits, FinishReason.LENGTH)
            going = []
        if not going or not self._can_improve(going[0].score):
            self._check_finished()
            return True
        self._go_on(going, logits, scheduler)
        return False

    def close(self, scheduler: Scheduler[Any], *, is_sound: bool = True) -> None:
        """Give up every slot, or the place in the queue; does so once."""
        if not self._is_closed:
            self._is_closed = True
            held = [(s.slot, s) for s in self._sequences if s.slot is not None]
            held.sort(key=itemgetter(0), reverse=True)  # the last first: no other takes its place
            for sequence in [s for _, s in held] or self._sequences[:1]:
                scheduler.end(sequence, is_sound=is_sound)

    def take_best(self) -> list[tuple[Sequence, Hypothesis]]:
        """The results of a search that is over and closed."""
        for sequence, finished in zip(self.results, self._finished, strict=True):
            num_prompt, num_output = sequence.num_prompt_tokens, len(finished.token_ids)
            sequence.num_tokens = num_prompt + num_output
            sequence.token_ids[num_prompt : sequence.num_tokens] = finished.token_ids
            sequence.score = finished.score
            if (last := int(finished.token_ids[-1])) in self._params.stop_token_ids:
                sequence.stop_reason, sequence.stop_token_id = str(last), last
        return list(zip(self.results, self._finished, strict=True))

    def _continuations(
        self, logits: Mapping[Sequence, np.ndarray], count: int
    ) -> list[Continuation]:
        """The `count` best of each beam, best first; at a tie the likelier beam, then lower ids."""
        continuations: list[Continuation] = []
        scratch_V = np.empty_like(next(iter(logits.values())))
        for beam in self._beams:
            logits_V = logits[beam.sequence]
            if not np.isfinite(logits_V.max()):
                raise ModelFailed("the model's output is not finite")
            forced = beam.sequence.sampler.forced
            total = log_total(logits_V) if forced is None else float(logits_V[forced])
            edited_V = beam.sequence.sampler.edit(logits_V, scratch_V)
            continuations += (
                Continuation(beam, token_id, beam.score + float(logits_V[token_id]) - total)
                for token_id in best_ids(edited_V, min(count, edited_V.size)).tolist()
            )
        return sorted(continuations, key=lambda each: -each.score)

    def _check_finished(self) -> None:
        count, wanted = len(self._finished), self._params.n
        if count == wanted:
            return
        failures = [beam.sequence.sampler.failure for beam in self._beams]
        if (failure := next(filter(None, failures), None)) is not None:
            raise failure
        if self._params.grammar is not None:
            raise invalid_field("n", f"is {wanted}, and the grammar has {count} outputs")
        raise ModelFailed(
            f"the search found {count} of the {wanted} best: every other token is banned"
        )

    def _rank(self, score: float, num_tokens: int) -> float:
        return score / float(num_tokens**self._params.length_penalty)

    def _can_improve(self, score: float) -> bool:
        """Whether a beam of this score may become one of the n best."""
        if len(self._finished) < self._params.n:
            return True
        last = self._finished[-1]
        least = self._rank(last.score, len(last.token_ids))
        return self._rank(score, self._max_tokens) > least

    def _finish(
        self,
        continuation: Continuation,
        logits: Mapping[Sequence, np.ndarray],
        reason: FinishReason,
    ) -> None:
        sequence = continuation.beam.sequence
        said = sequence.token_ids[sequence.num_prompt_tokens : sequence.num_tokens]
        token_ids = np.append(said, np.int32(continuation.token_id))
        logprobs = self._logprobs(continuation, logits)
        self._finished.append(Hypothesis(token_ids, continuation.score, reason, logprobs))
        self._finished.sort(key=lambda each: -self._rank(each.score, len(each.token_ids)))
        del self._finished[self._params.n :]

    def _logprobs(
        self, continuation: Continuation, logits: Mapping[Sequence, np.ndarray]
    ) -> tuple[TokenLogprobs, ...]:
        num_top = self._params.logprobs
        if num_top is None:
            return ()
        last = logprobs_of(logits[continuation.beam.sequence], continuation.token_id, num_top)
        return (*continuation.beam.logprobs, last)

    def _go_on(
        self,
        going: Many[Continuation],
        logits: Mapping[Sequence, np.ndarray],
        scheduler: Scheduler[Any],
    ) -> None:
        """Give each continuation a sequence: its beam's own if it is free, or a copy."""
        kept = {continuation.beam.sequence for continuation in going}
        spare = [sequence for sequence in self._sequences if sequence not in kept]
        spare.sort(key=lambda sequence: sequence.slot is None)  # a beam's slot has much already
        beams: list[Beam] = []
        for continuation in going:
            sequence = continuation.beam.sequence
            if sequence in kept:
                kept.remove(sequence)
            else:
                sequence = spare.pop(0)
                scheduler.fork(continuation.beam.sequence, sequence)
            beams.append(Beam(sequence, continuation.score, self._logprobs(continuation, logits)))
        for beam, continuation in zip(beams, going, strict=True):  # once every copy is made
            beam.sequence.append(continuation.token_id)
            beam.sequence.sampler.append(continuation.token_id)
        for sequence in spare:
            if sequence.slot is not None:
                scheduler.end(sequence)
        self._beams = beams
