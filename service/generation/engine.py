"""Generates text: one thread schedules a step, runs it, extends its sequences, and repeats.

The steps themselves are `step.py`'s; here is what surrounds them. Scheduler, cache and sequences
are the engine thread's own, so they need no lock. What crosses from the event loop is an inbox of
arrivals and leavers; what crosses back goes once per step by `call_soon_threadsafe`.

Arrivals and leavers are handled between two steps, so that a client's leaving, a deadline and a
new prompt take effect within one. A timer of the event loop ends late requests, however long a
step takes.

On the engine's thread a sequence ends in three ways: `_finish` ends one for a reason, `_fail` ends
several with an error, and `_break` ends all of them and the engine.
"""

import logging
import time
from collections.abc import Callable
from collections.abc import Sequence as Many
from math import inf

from service.errors import (
    AttendantError,
    DeadlineExceeded,
    DeviceFailed,
    ModelFailed,
    TimedOut,
    TooLate,
    Unavailable,
    invalid_field,
)
from service.generation.decoders.adapter_buffers import AdapterShape
from service.generation.decoders.decoder_interface import Decoder
from service.generation.inbox import Inbox, QueueLimits
from service.generation.sequence import (
    GenerationRequest,
    Sequence,
    Vocabulary,
    samples_of,
)
from service.generation.steps.scheduler import SchedulerLimits, StepPlan
from service.generation.steps.step import Steps
from service.generation.stream import Generation, SequenceUpdate, failed
from service.generation.wait_estimator import Demand, Forecast, Forecasts, WaitEstimator
from service.records import FinishReason, Observer
from service.runtime.loop_bridge import Crossing

logger = logging.getLogger(__name__)
MAX_NEXT = 16  # waiting sequences that are looked at between two steps, whether they are too late
MAX_FAILED_STEPS = 3  # in a row; then the model is taken for broken


class GenerationEngine:
    """Continuous batching over one decoder; every admitted sequence ends exactly once."""

    def __init__(
        self,
        name: str,
        decoder: Decoder,
        vocabulary: Vocabulary,
        limits: SchedulerLimits,
        queue: QueueLimits,
        observers: Many[Observer],
        on_broken: Callable[[], None] = lambda: None,
    ) -> None:
        self._decoder = decoder
        self._vocabulary = vocabulary
        self._queue = queue
        self._can_score = limits.max_scored_tokens > 0
        self._observers = observers
        self._crossing: Crossing[GenerationRequest, Generation] = Crossing(on_broken)
        self._scheduler, self.cache = decoder.open(limits)
        ends = self._finish, self._fail
        self._steps = Steps(decoder, self._scheduler, self.cache, vocabulary, *ends)
        self._estimator = WaitEstimator(self._scheduler.max_running, limits.max_prefill_tokens)
        self._decoded_s: float | None = None  # when a decoding step ended; None: nothing ran since
        self._forecasts = Forecasts(self._estimator)  # event loop only
        self._live: dict[Sequence, None] = {}  # every sample that has not ended
        self._is_over = False  # scheduler and cache may be broken, and are used no more
        self._num_failed_steps = 0
        self._step_started_s: float | None = None
        self._next_due_s = inf  # no sequence is late before
        self._outbox: list[SequenceUpdate] = []  # for the event loop, when the next run begins
        self._is_checked = True  # nothing changed since the last check of integrity
        self._inbox = Inbox(queue)
        self._crossing.start(name, self._work)

    # On the event loop.

    @property
    def failure(self) -> AttendantError | None:
        """The error after which the model serves no more."""
        return self._crossing.failure

    @property
    def vocab_size(self) -> int:
        """The number of token ids that the model knows."""
        return self._decoder.vocab_size

    @property
    def adapters(self) -> AdapterShape | None:
        """The adapters that its requests may have; None where they may have none."""
        buffers = self._decoder.adapters
        return buffers.shape if buffers else None

    def generate(self, request: GenerationRequest) -> Generation:
        """Start a request; iterate over what comes back inside `async with`.

        Leaving the block before the end takes the request's sequences out within one step. Raises
        `Overloaded` or `Unavailable`; while iterating, `DeadlineExceeded`, `TimedOut`,
        `ModelFailed` or `Unavailable`.
        """
        assert request.num_prompt_tokens + request.max_tokens <= self._decoder.max_tokens
        assert request.adapter is None or self.adapters is not None, "checked when it was loaded"
        if request.params.prompt_logprobs is not None and not self._can_score:
            raise invalid_field(
                "prompt_logprobs",
                f"is {request.params.prompt_logprobs}, and the model's graph gives "
                "the logits of a prompt's last token only",
            )
        num_sequences, beam_width = request.params.n, request.params.beam_width
        if beam_width > self._scheduler.max_running:
            raise invalid_field(
                "beam_width",
                f"is {beam_width}, expected at most {self._scheduler.max_running}, the "
                "number of sequences that the model runs at once",
            )
        num_tokens = request.num_prompt_tokens * num_sequences
        self._queue.check(num_sequences, num_tokens)
        self._inbox.check_room(num_sequences, num_tokens)  # refusing must be cheap
        forecast = self._check_wait(request.priority, Demand.of(request), request.deadline_s)
        now_s, timeout_s = time.monotonic(), self._queue.policy.timeout_of(request.timeout_s)
        times_out_s = inf if timeout_s is None else now_s + timeout_s
        sequences = samples_of(request, self._vocabulary, now_s, times_out_s)
        self._inbox.arrive(sequences)
        generation = Generation(sequences, self._leave)
        self._crossing.enter(request, generation)
        self._forecasts.add(request, forecast)
        for due_s in (request.deadline_s, sequences[0].times_out_s):
            self._crossing.at(due_s, request, self._end_late, generation, due_s)
        return generation

    @property
    def num_waiting(self) -> int:
        return self._inbox.num_waiting

    @property
    def num_running(self) -> int:
        return self.cache.num_used

    @property
    def running_since_s(self) -> float | None:
        """When the step under way began; None between two."""
        return self._step_started_s

    def check_room(self, priority: int = 0, deadline_s: float | None = None) -> None:
        """Raise `Overloaded` if one more request would be refused: cheap, before any work."""
        self._inbox.check_room(1, 1)
        self._check_wait(priority, Demand(), deadline_s)

    def _check_wait(self, priority: int, demand: Demand, deadline_s: float | None) -> Forecast:
        ahead = self._inbox.ahead_of(priority)
        max_wait_s = self._queue.policy.max_wait_s
        return self._estimator.check(ahead, demand, time.monotonic(), deadline_s, max_wait_s)

    def stop(self) -> None:
        """End everything, running sequences too, after the step under way."""
        self._inbox.close()

    def close(self, timeout_s: float) -> None:
        """Stop, and wait so long for the step under way; blocks meanwhile.

        Then its clients wait no longer. A step that never returns keeps its thread, which does not
        keep the process.
        """
        self.stop()
        if not self._crossing.join(timeout_s):
            self._crossing.post(self._fail_all, Unavailable("Server is stopping"))

    def _leave(self, generation: Generation) -> None:
        """End the sequences of a client that left."""
        self._crossing.leave(generation.request)
        self._forecasts.forget(generation.request)
        if not generation.is_complete:
            self._inbox.leave(generation.sequences)

    def _deliver(self, updates: list[SequenceUpdate]) -> None:
        for update in updates:
            generation = self._crossing.clients.get(update.sequence.request)
            if generation is not None:
                generation.add(update)
                self._compare(generation, update)

    def _compare(self, generation: Generation, update: SequenceUpdate) -> None:
        """Learn from what became of a request, where it was known what would."""
        request, timings = generation.request, update.sequence.timings
        is_late = isinstance(update.error, DeadlineExceeded)
        if timings.first_token_s or is_late:
            now_s = time.monotonic()
            took_s = now_s - timings.queued_s if timings.first_token_s else inf
            self._forecasts.begun(request, took_s)
        if is_late or (generation.is_complete and update.error is None):
            self._forecasts.ended(request, is_late=is_late)

    def _end_late(self, generation: Generation, due_s: float) -> None:
        """Called when a deadline or a timeout is due; the sequences go when the step ends."""
        error = _lateness(generation.sequences[0], due_s)
        if error is None:
            return
        if isinstance(error, DeadlineExceeded) and not generation.is_complete:
            self._forecasts.begun(generation.request, inf)  # unless its first token is known
            self._forecasts.ended(generation.request, is_late=True)
        generation.fail(error)

    def _fail_all(self, error: AttendantError) -> None:
        """End what is open, also sequences whose last update was not posted."""
        for generation in self._crossing.clients.values():
            generation.fail(error)

    # On the engine thread.

    def _work(self) -> None:
        try:
            while self._take_inbox():
                started_s = time.monotonic()
                step = self._steps.schedule()
                if step is not None:
                    self._step_started_s = started_s
                    self._take(step, started_s)
                else:
                    assert not self._live, "work is left, and no step does it"
        except Exception:
            logger.exception("a generation engine failed: its model serves no more")
            self._break(ModelFailed("the engine failed, see the server's log"))
        finally:
            self._step_started_s = None
        error = Unavailable("Server is stopping")
        self._post(self._fail(self._take_all(), error, FinishReason.ABORT))
        self._steps.close()
        self._flush()

    def _take_inbox(self) -> bool:
        """Wait while there is nothing to do; False once the engine closes."""
        self._step_started_s = None
        if not self._live:
            self._flush()
            self._decoded_s = None
        self._estimator.look(self._scheduler.num_free, self._scheduler.running())
        self._check_when_idle()
        arrivals, leavers = self._inbox.take(can_wait=not self._live)
        self._live |= dict.fromkeys(arrivals)
        if self._inbox.is_closing:
            return False
        for sequence in arrivals:
            self._next_due_s = min(self._next_due_s, sequence.due_s)
        self._steps.add(arrivals)
        for sequence in leavers:
            if not sequence.is_finished:
                self._finish(sequence, FinishReason.ABORT)
        now_s = time.monotonic()
        self._expire(now_s)
        self._give_up_late(now_s)
        return True

    def _give_up_late(self, now_s: float) -> None:
        """End those next in line whose prompt cannot be computed by their deadline."""
        if self._next_due_s == inf or len(self._live) < 2:  # the last is tried: times change
            return
        for sequence in self._scheduler.first_waiting(MAX_NEXT):
            deadline_s = sequence.request.deadline_s
            needed_s = self._estimator.prompt_s(sequence.num_prompt_tokens)
            if deadline_s is not None and now_s + needed_s > deadline_s:
                samples = [each for each in self._live if each.request is sequence.request]
                if sequence not in self._live:
                    continue  # another sample of its request has taken it along
                error = TooLate(needed_s, deadline_s - now_s)
                self._post(self._fail(samples, error, FinishReason.ABORT))

    def _check_when_idle(self) -> None:
        if not (self._is_checked or self._live or self._inbox.is_closing):
            self._scheduler.check_integrity()
            self._is_checked = True

    def _expire(self, now_s: float) -> None:
        if now_s < self._next_due_s:
            return
        updates: list[SequenceUpdate] = []
        for sequence in list(self._live):
            error = _lateness(sequence, now_s)
            if error is not None:
                updates += self._fail([sequence], error, FinishReason.ABORT)
        self._post(updates)
        self._next_due_s = min((sequence.due_s for sequence in self._live), default=inf)

    def _take(self, plan: StepPlan, started_s: float) -> None:
        """Take a step that is scheduled: run it, extend its sequences, and report it."""
        self._is_checked = False
        self._stamp(plan.sequences, started_s)
        self._flush()  # readers are served while the run computes, and hold up no planning
        run_started_s = time.monotonic()
        try:
            logits = self._steps.run(plan)
        except Exception as error:  # whatever a model raises is its failure
            self._did_not_run(plan, error)
            return
        run_s = time.monotonic() - run_started_s
        self._num_failed_steps = 0
        extended = self._steps.extend(plan, logits)
        self._post(extended.updates)
        self._learn_pace(plan, started_s)
        ran = self._steps.report(plan, extended, run_s, time.monotonic() - started_s)
        for observer in self._observers:
            observer.step_ran(ran)

    def _learn_pace(self, plan: StepPlan, started_s: float) -> None:
        now_s = time.monotonic()
        took_s = now_s - started_s
        # Where a run computes prompts beside steps, each has its share of the time by its tokens.
        prompts_s = took_s * plan.num_prompt_tokens / plan.num_tokens
        if plan.num_prompt_tokens:
            self._estimator.read(plan.num_prompt_tokens, prompts_s)
        if plan.num_decoding:
            interval_s = took_s if self._decoded_s is None else now_s - self._decoded_s
            self._estimator.decoded(plan.num_decoding, took_s - prompts_s, interval_s)
            self._decoded_s = now_s

    def _stamp(self, sequences: Many[Sequence], now_s: float) -> None:
        """Stamp those whose first step this is; they wait no more."""
        fresh = self._steps.samples_in([each for each in sequences if not each.timings.scheduled_s])
        for sequence in fresh:
            sequence.timings.scheduled_s = now_s
        if fresh:
            self._inbox.count_out(fresh)

    def _did_not_run(self, plan: StepPlan, error: Exception) -> None:
        """The sequences of a failed run end with it; others are untouched."""
        if not isinstance(error, AttendantError):
            logger.exception("a step of %d sequences failed", len(plan.sequences))
            error = ModelFailed(f"{type(error).__name__}: {error}")
        self._post(self._fail(self._steps.samples_in(plan.sequences), error))
        self._num_failed_steps += 1
        if isinstance(error, DeviceFailed):  # logged where the model is known
            self._break(error)
        elif self._num_failed_steps >= MAX_FAILED_STEPS:
            logger.error(
                "%d steps in a row failed: the model stops serving: %s",
                self._num_failed_steps,
                error,
            )
            self._break(error)

    def _finish(self, sequence: Sequence, reason: FinishReason) -> None:
        """End a sequence: free its slot or its place in the queue, and report it."""
        sequence.finish_reason = reason
        if not self._is_over:
            self._steps.remove(sequence)
        del self._live[sequence]
        if reason in (FinishReason.STOP, FinishReason.LENGTH) and sequence.request.max_tokens:
            self._estimator.ended(sequence)
        sequence.timings.finished_s = time.monotonic()
        if not sequence.timings.scheduled_s:
            self._inbox.count_out([sequence])
        for observer in sequence.request.observers or self._observers:
            observer.sequence_ended(sequence)

    def _fail(
        self,
        sequences: Many[Sequence],
        error: AttendantError,
        reason: FinishReason = FinishReason.ERROR,
    ) -> list[SequenceUpdate]:
        """End sequences with an error; the updates that say so to their readers."""
        for sequence in sequences:
            self._finish(sequence, reason)
        return [failed(sequence, error) for sequence in sequences]

    def _break(self, error: AttendantError) -> None:
        """Refuse new sequences, end all others, and report the model as unhealthy."""
        self._crossing.failure = error
        self.stop()
        try:
            self._post(self._fail(self._take_all(), error))
            self._flush()
        finally:
            self._crossing.post(self._fail_all, error)
            self._crossing.report_broken()

    def _take_all(self) -> list[Sequence]:
        """Every sequence that has not ended, those just come too, when the engine ends."""
        arrivals, _ = self._inbox.take(can_wait=False)
        self._live |= dict.fromkeys(arrivals)
        self._is_over = True
        return list(self._live)

    def _post(self, updates: list[SequenceUpdate]) -> None:
        """Lay updates down for the event loop, until the next run begins or nothing is to do."""
        self._outbox += updates

    def _flush(self) -> None:
        """Hand over what is posted, in one crossing; a closed loop has no listeners."""
        if self._outbox:
            updates, self._outbox = self._outbox, []
            self._crossing.post(self._deliver, updates)


def _lateness(sequence: Sequence, now_s: float) -> AttendantError | None:
    """The error for a late sequence's client."""
    deadline_s = sequence.request.deadline_s
    if sequence.due_s > now_s:
        return None
    if deadline_s is not None and deadline_s <= now_s:
        return DeadlineExceeded("Deadline Exceeded")
    return TimedOut("Request timeout expired")
