"""One step of continuous batching, in four parts: schedule, run, extend, report.

    schedule   which sequences run, and how many tokens of each; their inputs
    run        the decoder: logits of each row's last token
    extend     each row's next token, or those of a draft or a beam search; what is complete ends
    report     how long it took and what it did, for the scheduler and those who observe

Knows nothing of threads, the event loop, queues and clients. The engine's thread owns all of it,
so it needs no lock; how a sequence ends is the engine's, which passes `finish` and `fail` in.
"""

import time
from collections.abc import Callable
from collections.abc import Sequence as Many
from dataclasses import dataclass
from typing import Any

import numpy as np

from service.errors import AttendantError, InvalidArgument, ModelFailed
from service.generation.cache.kv_cache import KVCache
from service.generation.cache.paged_cache import PagedCache
from service.generation.choosing.sampling import TokenLogprobs
from service.generation.choosing.step_logits import StepLogits
from service.generation.sequence import GenerationRequest, Sequence, Vocabulary
from service.generation.steps.beams import BeamSearch, Hypothesis
from service.generation.steps.mask_thread import MaskThread
from service.generation.steps.prompt_scores import score_prompt
from service.generation.steps.scheduler import Scheduler, StepPlan
from service.generation.steps.speculation import Draft
from service.generation.stream import SequenceUpdate
from service.records import FinishReason, RanStep

Finish = Callable[[Sequence, FinishReason], None]
Fail = Callable[[Many[Sequence], AttendantError], list[SequenceUpdate]]


@dataclass(frozen=True, slots=True)
class Extended:
    """Outcome of a step for its sequences."""

    updates: list[SequenceUpdate]
    num_agreed: dict[Sequence, int]  # drafted tokens that were accepted, by sequences with a draft


class Steps:
    """The steps of one decoder, with its cache, its scheduler and the beam searches under way."""

    def __init__(
        self,
        decoder: object,  # of the kind that the scheduler plans for
        scheduler: Scheduler[Any],
        cache: KVCache | PagedCache,
        vocabulary: Vocabulary,
        finish: Finish,
        fail: Fail,
    ) -> None:
        self.scheduler = scheduler
        self.searches: dict[GenerationRequest, BeamSearch] = {}
        self._cache = cache
        self._num_moved_rows = self._num_evictions = 0  # when the last step was reported
        self._decoder = decoder
        self._masks = MaskThread()
        self._vocabulary = vocabulary
        self._finish = finish
        self._fail = fail

    def schedule(self) -> StepPlan | None:
        """The next step; None without work."""
        return self.scheduler.plan()

    def run(self, plan: StepPlan) -> StepLogits:
        """The logits of a step. Raises whatever a model raises."""
        with self._masks.beside(plan.sequences):
            return plan.run_on(self._decoder)

    def close(self) -> None:
        """Give up what is beside the engine's thread."""
        self._masks.close()

    def extend(self, plan: StepPlan, logits: StepLogits) -> Extended:
        """The sequences' new tokens and errors, after a step that ran."""
        self.scheduler.computed(plan)
        ended: list[SequenceUpdate] = []
        if any(plan.num_scored) or not all(each.request.max_tokens for each in plan.sequences):
            logits, ended = self._score(plan, logits)
        going = (
            [each for each in plan.sequences if not each.is_finished] if ended else plan.sequences
        )
        due = [each for each in going if not each.num_uncomputed_tokens]
        if len(due) < len(going):
            for sequence in going:
                if sequence.num_uncomputed_tokens:
                    self.scheduler.settle(sequence)
        if not plan.drafts:
            return Extended(ended + self._sample(due, logits), {})
        extended = self._check(due, plan.drafts, logits)
        return Extended(ended + extended.updates, extended.num_agreed)

    def report(self, plan: StepPlan, extended: Extended, run_s: float, step_s: float) -> RanStep:
        """A step that ran, and what it made of its sequences; the scheduler learns from it."""
        self.scheduler.ran(plan, run_s, extended.num_agreed)
        num_moved_rows, self._num_moved_rows = self._num_moved_rows, self._cache.num_moved_rows
        num_evictions, self._num_evictions = self._num_evictions, self._cache.num_evictions
        with_tokens = [update for update in extended.updates if update.token_ids]
        return RanStep(
            phase=plan.phase,
            num_rows=len(plan.sequences),
            num_tokens=plan.num_tokens,
            run_s=run_s,
            other_s=step_s - run_s,
            num_moved_rows=self._cache.num_moved_rows - num_moved_rows,
            num_evictions=self._cache.num_evictions - num_evictions,
            num_drafted=plan.num_drafted,
            agreed=tuple(extended.num_agreed.values()),
            time_to_first_token_s=tuple(
                update.sequence.timings.time_to_first_token_s
                for update in with_tokens
                if not update.since_s
            ),
            inter_token_s=tuple(gap_s for update in with_tokens for gap_s in update.gaps_s),
        )

    def add(self, arrivals: Many[Sequence]) -> None:
        """Let sequences wait for a slot; the results of a beam search as one."""
        for sequence in arrivals:
            if not sequence.request.params.has_beams:
                self.scheduler.add(sequence)
            elif sequence.leader is None:
                results = [other for other in arrivals if other.request is sequence.request]
                self.searches[sequence.request] = BeamSearch(results)
                self.scheduler.add(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Give up the slot of a sequence that has ended, or its place in the queue."""
        is_sound = sequence.finish_reason is not FinishReason.ERROR
        search = self.searches.get(sequence.request)
        if search is None:
            self.scheduler.end(sequence, is_sound=is_sound)
            return
        search.close(self.scheduler, is_sound=is_sound)
        if all(each.is_finished for each in search.results):
            del self.searches[sequence.request]

    def samples_in(self, sequences: Many[Sequence]) -> list[Sequence]:
        """The samples whose tokens these compute: their own, or the results of their search."""
        samples: dict[Sequence, None] = {}
        for sequence in sequences:
            search = self.searches.get(sequence.request)
            samples |= dict.fromkeys(search.results if search else (sequence,))
        return list(samples)

    def _score(self, plan: StepPlan, logits: StepLogits) -> tuple[StepLogits, list[SequenceUpdate]]:
        """Score prompts; the rows that tokens are chosen from, and the updates of what ends.

        A sequence ends here if its logits are not finite, or if it generates nothing.
        """
        num_drafted = {draft.sequence: len(draft.token_ids) for draft in plan.drafts}
        num_scored = plan.num_scored or (0,) * len(plan.sequences)
        kept: list[int] = []
        updates: list[SequenceUpdate] = []
        row = 0
        for sequence, num_new, count in zip(
            plan.sequences, plan.num_new_tokens, num_scored, strict=True
        ):
            first = sequence.num_computed_tokens - num_new
            is_sound = score_prompt(sequence, first, logits.take(slice(row, row + count)))
            is_complete = not sequence.num_uncomputed_tokens
            num_own = 1 + num_drafted.get(sequence, 0) if is_complete else 0
            row += count + num_own
            if not is_sound:
                error = ModelFailed("the model's output is not finite")
                updates += self._fail(self.samples_in([sequence]), error)
            elif is_complete and not sequence.request.max_tokens:
                updates.append(self._end_without_output(sequence))
            else:
                kept += range(row - num_own, row)
        return logits.take(kept), updates

    def _end_without_output(self, sequence: Sequence) -> SequenceUpdate:
        sequence.timings.first_token_s = sequence.timings.last_token_s = time.monotonic()
        self._finish(sequence, FinishReason.LENGTH)
        return SequenceUpdate(sequence, is_last=True)

    def _sample(self, sequences: Many[Sequence], logits: StepLogits) -> list[SequenceUpdate]:
        """Choose the next token of sequences that are computed; end what is complete."""
        if not sequences:
            return []
        drawing = [i for i, s in enumerate(sequences) if s.request not in self.searches]
        drawn = logits if len(drawing) == len(sequences) else logits.take(drawing)
        chosen = drawn.sample([sequences[index].sampler for index in drawing])
        now_s = time.monotonic()
        place_of = {index: place for place, index in enumerate(drawing)}
        beams: list[int] = []
        updates = []
        for index, sequence in enumerate(sequences):  # in the order of their slots
            place = place_of.get(index)
            if place is None:
                beams.append(index)
                self.scheduler.settle(sequence)
            elif chosen.is_valid[place]:
                token_id = int(chosen.token_ids[place])
                updates.append(self._append(sequence, token_id, chosen.logprobs[place], now_s))
            else:
                (row,) = drawn.whole_rows([place])
                error = _no_token(sequence, is_finite=bool(np.isfinite(row.max())))
                updates += self._fail([sequence], error)
        if not beams:
            return updates
        rows = zip((sequences[index] for index in beams), logits.whole_rows(beams), strict=True)
        return updates + self._advance(dict(rows), now_s)

    def _check(
        self,
        sequences: Many[Sequence],
        drafts: Many[Draft],
        logits: StepLogits,
    ) -> Extended:
        """Choose tokens while they are those drafted, and the one that follows; as one by one."""
        drafted = {draft.sequence: draft.token_ids for draft in drafts}
        counts = [1 + len(drafted.get(sequence, ())) for sequence in sequences]
        places = dict(zip(sequences, (np.cumsum(counts) - counts).tolist(), strict=True))
        updates = self._sample(sequences, logits.take(list(places.values())))
        num_agreed = dict.fromkeys(drafted, 0)
        going = list(drafted)
        while going:
            going = [each for each in going if self._agrees(each, drafted[each], num_agreed[each])]
            for sequence in going:
                self.scheduler.agree(sequence)
                num_agreed[sequence] += 1
            rows = [places[sequence] + num_agreed[sequence] for sequence in going]
            updates += self._sample(going, logits.take(rows))
        return Extended(updates, num_agreed)

    def _agrees(self, sequence: Sequence, drafted: np.ndarray, num_agreed: int) -> bool:
        """Whether the token that a sequence just took is the next one of its draft."""
        if sequence.is_finished or num_agreed == len(drafted):
            return False
        return bool(sequence.token_ids[sequence.num_tokens - 1] == drafted[num_agreed])

    def _append(
        self, sequence: Sequence, token_id: int, logprobs: TokenLogprobs | None, now_s: float
    ) -> SequenceUpdate:
        """Give a sequence its next token, which may be its last."""
        timings = sequence.timings
        since_s = timings.last_token_s
        timings.first_token_s = timings.first_token_s or now_s
        timings.last_token_s = now_s
        text, reason = self._take_token(sequence, token_id)
        if reason is None:
            self.scheduler.settle(sequence)
        else:
            text += sequence.text.finish()
            self._finish(sequence, reason)
        return SequenceUpdate(
            sequence,
            text,
            (token_id,),
            (logprobs,) if logprobs else (),
            is_last=sequence.is_finished,
            since_s=since_s,
        )

    def _take_token(self, sequence: Sequence, token_id: int) -> tuple[str, FinishReason | None]:
        """The text that is certain now, and why the sequence ends if it does."""
        params = sequence.request.params
        sequence.append(token_id)
        may_stop = sequence.num_output_tokens > params.min_tokens
        if token_id in params.stop_token_ids:
            sequence.stop_reason, sequence.stop_token_id = str(token_id), token_id
            return self._text_of_end(sequence, token_id), FinishReason.STOP
        if token_id in self._vocabulary.eos_token_ids and not params.ignore_eos:
            return self._text_of_end(sequence, token_id), FinishReason.STOP
        text = sequence.text.push(token_id, may_stop)
        if sequence.text.matched_stop is not None:
            sequence.stop_reason = sequence.text.matched_stop
            return text, FinishReason.STOP
        grammar = sequence.sampler.grammar
        if grammar is not None and grammar.is_complete:
            return text, FinishReason.STOP
        is_full = sequence.num_output_tokens >= sequence.request.max_tokens
        return text, FinishReason.LENGTH if is_full else None

    def _text_of_end(self, sequence: Sequence, token_id: int) -> str:
        """The text of a token that ended an output, which is in it only where that is requested."""
        is_included = sequence.request.params.include_stop_str_in_output
        return sequence.text.push(token_id, may_stop=False) if is_included else ""

    def _advance(self, beams: dict[Sequence, np.ndarray], now_s: float) -> list[SequenceUpdate]:
        """Go on with every search whose beams a step computed; `beams` are their logits."""
        updates: list[SequenceUpdate] = []
        for request in dict.fromkeys(sequence.request for sequence in beams):
            search = self.searches[request]
            for sequence in search.results:
                timings = sequence.timings
                timings.first_token_s = timings.first_token_s or now_s
                timings.last_token_s = now_s
            try:
                is_over = search.advance(beams, self.scheduler)
            except (ModelFailed, InvalidArgument) as error:
                updates += self._fail(search.results, error)
                continue
            if is_over:
                search.close(self.scheduler)
                updates += [self._conclude(*each) for each in search.take_best()]
        return updates

    def _conclude(self, sequence: Sequence, hypothesis: Hypothesis) -> SequenceUpdate:
        """The whole output of one of a search's results, as its first and last update."""
        token_ids = tuple(hypothesis.token_ids.tolist())
        omits_end = not sequence.request.params.include_stop_str_in_output
        has_end = hypothesis.reason is FinishReason.STOP
        said = token_ids[:-1] if has_end and omits_end else token_ids
        text = "".join(map(sequence.text.push, said)) + sequence.text.finish()
        self._finish(sequence, hypothesis.reason)
        return SequenceUpdate(sequence, text, token_ids, hypothesis.logprobs, is_last=True)


def _no_token(sequence: Sequence, *, is_finite: bool) -> AttendantError:
    """Why no token could be chosen of a row whose largest logit is finite or not."""
    grammar = sequence.sampler.grammar
    if grammar is None or not is_finite:
        return ModelFailed("the model's output is not finite, or every token is banned")
    if grammar.failure is not None:
        return grammar.failure
    return InvalidArgument(
        "the grammar and what else is banned leave no token: expected other banned_token_ids, "
        "allowed_token_ids, bad_words or no_repeat_ngram_size"
    )
