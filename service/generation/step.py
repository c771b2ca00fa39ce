"""One step of continuous batching, in three parts: schedule, run, extend.

    schedule   which sequences run, and how many tokens of each; their inputs
    run        the decoder: logits of each row's last token
    extend     each row's next token, or those of a draft or a beam search; what is complete ends

Knows nothing of threads, the event loop, queues and clients. The engine's thread owns all of it,
so it needs no lock; how a sequence ends is the engine's, which passes `finish` and `fail` in.
"""

import time
from collections.abc import Callable
from collections.abc import Sequence as Many
from dataclasses import dataclass

import numpy as np

from service.errors import AttendantError, ModelFailed
from service.generation.beams import BeamSearch, Hypothesis
from service.generation.decoder import Decoder
from service.generation.kv_cache import KVCache
from service.generation.sampling import TokenLogprobs, sample
from service.generation.scheduler import Scheduler, SchedulerLimits, StepPlan
from service.generation.sequence import GenerationRequest, Sequence, Vocabulary
from service.generation.stream import SequenceUpdate
from service.records import FinishReason

Finish = Callable[[Sequence, FinishReason], None]
Fail = Callable[[Many[Sequence], AttendantError], list[SequenceUpdate]]


@dataclass(frozen=True, slots=True)
class Step:
    """A planned run and its inputs."""

    plan: StepPlan
    rows: list[np.ndarray]  # int32 token ids to compute, by sequence
    num_past: list[int]  # tokens of each that the cache holds
    num_decoding: int  # sequences that decode when the step is planned


class Steps:
    """The steps of one decoder, with its cache, its scheduler and the beam searches under way."""

    def __init__(
        self,
        decoder: Decoder,
        vocabulary: Vocabulary,
        limits: SchedulerLimits,
        finish: Finish,
        fail: Fail,
    ) -> None:
        self.cache = KVCache(
            decoder.num_slots,
            decoder.max_tokens,
            decoder.copy,
            can_save=limits.can_reuse_prefixes,
        )
        self.scheduler = Scheduler(limits, self.cache)
        self.searches: dict[GenerationRequest, BeamSearch] = {}
        self._decoder = decoder
        self._vocabulary = vocabulary
        self._finish = finish
        self._fail = fail

    def schedule(self) -> Step | None:
        """The next step; None without work."""
        plan = self.scheduler.plan()
        if plan is None:
            return None
        num_past = [sequence.num_computed_tokens for sequence in plan.sequences]
        return Step(plan, plan.rows(), num_past, self.cache.num_decoding)

    def run(self, step: Step) -> np.ndarray:
        """The logits of a step. Raises whatever a model raises."""
        plan = step.plan
        return self._decoder.run(plan.first_slot, step.rows, step.num_past, 1 + plan.num_drafted)

    def extend(self, step: Step, logits: np.ndarray) -> list[SequenceUpdate]:
        """The sequences' new tokens and errors, after a step that ran."""
        plan = step.plan
        self.scheduler.computed(plan)
        return self._sample(plan, logits) if plan.draft is None else self._check(plan, logits)

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

    def _sample(self, plan: StepPlan, logits_BV: np.ndarray) -> list[SequenceUpdate]:  # noqa: N803
        """Choose the next token of every row whose last one was computed; end what is complete."""
        sequences = plan.sequences
        due = [index for index, s in enumerate(sequences) if not s.num_uncomputed_tokens]
        if len(due) < len(sequences):
            assert not due, "a chunk has one row, and the other steps compute whole rows"
            self.scheduler.settle(sequences[0])
            return []
        drawing = [i for i, s in enumerate(sequences) if s.request not in self.searches]
        drawn_BV = logits_BV if len(drawing) == len(sequences) else logits_BV[drawing]  # noqa: N806
        chosen = sample(drawn_BV, [sequences[index].sampler for index in drawing])
        now_s = time.monotonic()
        place_of = {index: place for place, index in enumerate(drawing)}
        beams: dict[Sequence, np.ndarray] = {}
        updates = []
        for index, sequence in enumerate(sequences):  # in the order of their slots
            place = place_of.get(index)
            if place is None:
                beams[sequence] = logits_BV[index]
                self.scheduler.settle(sequence)
            elif chosen.is_valid[place]:
                token_id = int(chosen.token_ids[place])
                updates.append(self._append(sequence, token_id, chosen.logprobs[place], now_s))
            else:
                error = ModelFailed("the model's output is not finite, or every token is banned")
                updates += self._fail([sequence], error)
        return updates + self._advance(beams, now_s)

    def _check(self, plan: StepPlan, logits_NV: np.ndarray) -> list[SequenceUpdate]:  # noqa: N803
        """Choose tokens while they are those drafted, and the one that follows; as one by one."""
        assert plan.draft is not None
        (sequence,) = plan.sequences
        updates: list[SequenceUpdate] = []
        for place, drafted in enumerate([*plan.draft.token_ids.tolist(), None]):
            updates += self._sample(plan, logits_NV[place : place + 1])
            if sequence.is_finished or updates[-1].token_ids != (drafted,):
                break
            self.scheduler.agree(sequence)
        return updates

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
        text = ""
        if token_id in params.stop_token_ids:
            sequence.stop_reason = str(token_id)
            return text, FinishReason.STOP
        if token_id in self._vocabulary.eos_token_ids and not params.ignore_eos:
            return text, FinishReason.STOP
        text = sequence.text.push(token_id, may_stop)
        if sequence.text.matched_stop is not None:
            sequence.stop_reason = sequence.text.matched_stop
            return text, FinishReason.STOP
        is_full = sequence.num_output_tokens >= sequence.request.max_tokens
        return text, FinishReason.LENGTH if is_full else None

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
            except ModelFailed as error:
                updates += self._fail(search.results, error)
                continue
            if is_over:
                search.close(self.scheduler)
                updates += [self._conclude(*each) for each in search.take_best()]
        return updates

    def _conclude(self, sequence: Sequence, hypothesis: Hypothesis) -> SequenceUpdate:
        """The whole output of one of a search's results, as its first and last update."""
        token_ids = tuple(hypothesis.token_ids.tolist())
        said = token_ids[:-1] if hypothesis.reason is FinishReason.STOP else token_ids
        text = "".join(map(sequence.text.push, said)) + sequence.text.finish()
        self._finish(sequence, hypothesis.reason)
        return SequenceUpdate(sequence, text, token_ids, hypothesis.logprobs, is_last=True)
