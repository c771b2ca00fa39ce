"""Sequences of bytes; a scheduler run step by step, without thread or clock; a whole engine.

Of an engine's fake decoder a run number counts from 1, and `step_to` lets the one before it end
and waits until it has begun.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from service.calls.sampling import Sampling
from service.contract.queue_policies import QueuePolicy
from service.generation.cache.kv_cache import KVCache
from service.generation.cache.prefix_store import PrefixStore
from service.generation.choosing.sampler_state import SamplerState
from service.generation.choosing.sampling import TokenLogprobs
from service.generation.decoders.decoder_interface import Decoder
from service.generation.engine import GenerationEngine
from service.generation.inbox import QueueLimits
from service.generation.sequence import GenerationRequest, Sequence
from service.generation.steps.prompt_scores import score_prompt
from service.generation.steps.scheduler import SchedulerLimits
from service.generation.steps.slot_scheduler import SlotPlan, SlotScheduler
from service.generation.steps.speculation import Draft, Speculator, draft_of, is_forced
from service.generation.stream import Generation
from service.generation.text_stream import TextStream
from service.records import FinishReason, Observer, RanStep, Sample
from tests.fakes.sessions import END_ID, PATIENCE_S, FakeDecoder, byte_vocabulary

VOCABULARY = byte_vocabulary()
SPOILED = -1  # in a slot after a failed run, which may have written anything
T = TypeVar("T")


def request_of(
    prompt: str | Iterable[int],
    *,
    max_tokens: int = 8,
    received_s: float = 0.0,
    deadline_s: float | None = None,
    priority: int = 0,
    timeout_s: float | None = None,
    namespace: str = "",
    **params: Any,
) -> GenerationRequest:
    """Greedy where `params` do not say otherwise."""
    ids = list(prompt.encode() if isinstance(prompt, str) else prompt)
    return GenerationRequest(
        prompt_ids=np.array(ids, np.int32),
        params=Sampling(**{"temperature": 0.0} | params),
        max_tokens=max_tokens,
        received_s=received_s,
        deadline_s=deadline_s,
        priority=priority,
        timeout_s=timeout_s,
        namespace=namespace,
    )


def samples_of(request: GenerationRequest, num_samples: int, queued_s: float) -> list[Sequence]:
    """The sequences of a request, the first being the others' leader."""
    samples: list[Sequence] = []
    for index in range(num_samples):
        ends = VOCABULARY.eos_token_ids
        sampler = SamplerState(request.params, request.prompt_ids, ends, index)
        text = TextStream(VOCABULARY.token_bytes, request.params.stop)
        leader = samples[0] if samples else None
        samples.append(Sequence(request, sampler, text, index, leader))
        samples[-1].timings.queued_s = queued_s
    return samples


def sequence_of(prompt: str | Iterable[int], *, queued_s: float = 0.0, **request: Any) -> Sequence:
    """One alone, as `request_of` asks for it."""
    (sequence,) = samples_of(request_of(prompt, **request), 1, queued_s)
    return sequence


@dataclass(frozen=True, slots=True)
class Step:
    """A plan that ran, and what was so when it was made."""

    plan: SlotPlan
    num_decoding: int
    num_copied: int  # sequences that began with what another slot had

    @property
    def sequences(self) -> tuple[Sequence, ...]:
        return self.plan.sequences


@dataclass
class Steps:
    """Scheduler, cache and a fake decoder on one thread: greedy, and checked after every step.

    `live` are the sequences that have not ended; `steps` what ran.
    """

    num_slots: int = 8
    max_tokens: int = 64
    limits: SchedulerLimits = field(default_factory=SchedulerLimits)
    has_states: bool = False
    live: dict[Sequence, None] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.decoder = FakeDecoder(self.num_slots, self.max_tokens)
        max_bytes = self.limits.max_prefix_bytes if self.limits.can_reuse_prefixes else 0
        self.decoder.has_states = self.has_states
        memory = self.decoder.prefix_memory(max_bytes)
        self.store = PrefixStore(memory) if memory else None
        self.cache = KVCache(
            self.num_slots,
            self.max_tokens,
            self.decoder.copy,
            store=self.store,
            copies_whole=self.has_states,
        )
        self.scheduler = SlotScheduler(self.limits, self.cache)

    def add(self, *sequences: Sequence) -> None:
        for sequence in sequences:
            self.live[sequence] = None
            self.scheduler.add(sequence)
        self.check()

    def end(self, sequence: Sequence, reason: FinishReason, *, is_sound: bool = True) -> None:
        self.scheduler.end(sequence, is_sound=is_sound)
        del self.live[sequence]  # KeyError: it ended twice
        sequence.finish_reason = reason

    def abort(self, sequence: Sequence) -> None:
        """Its client left."""
        self.end(sequence, FinishReason.ABORT)
        self.check()

    def step(self, *, fails: bool = False) -> Step | None:
        """Plan and run; None while there is nothing to do."""
        num_decoding, num_copied = self.cache.num_decoding, self._num_copied
        plan = self.scheduler.plan()
        if plan is None:
            assert not self.live, "work is left, and no step does it"
            return None
        self.steps.append(Step(plan, num_decoding, self._num_copied - num_copied))
        slots = [sequence.slot for sequence in plan.sequences]
        neighbours = range(plan.first_slot, plan.first_slot + len(slots))
        assert slots == list(neighbours), "a run takes neighbouring slots"
        if fails:
            for slot, sequence in enumerate(plan.sequences, plan.first_slot):
                self.decoder.slots[slot] = [SPOILED] * self.max_tokens
                self.end(sequence, FinishReason.ERROR, is_sound=False)
        else:
            self._run(plan)
        self.check()
        return self.steps[-1]

    def drain(self, most: int = 10_000) -> list[Step]:
        """Step until nothing is left."""
        first = len(self.steps)
        for _ in range(most):
            if self.step() is None:
                return self.steps[first:]
        raise AssertionError(f"work is left after {most} steps")

    def check(self) -> None:
        """Recount, and compare the decoder's slots with what the accounting says is in them."""
        self.scheduler.check_integrity()
        if self.store is not None:
            self.store.check_integrity()
        assert set(self.scheduler.sequences()) == self.live.keys()
        for slot, kept in enumerate(self.decoder.slots):
            length = int(self.cache._lengths[slot])
            assert kept[:length] == self.cache._token_ids[slot, :length].tolist()
            assert len(kept) >= length

    @property
    def _num_copied(self) -> int:
        return sum(sequence.num_reused_tokens > 0 for sequence in self.live)

    def _run(self, plan: SlotPlan) -> None:
        logits = plan.run_on(self.decoder)
        self.scheduler.computed(plan)
        num_scored = sum(plan.num_scored)
        first = plan.sequences[0].num_computed_tokens - plan.num_new_tokens[0]
        assert score_prompt(plan.sequences[0], first, logits.take(slice(num_scored)))
        rows = iter(logits.take(slice(num_scored, None)).whole())
        for sequence in plan.sequences:
            if not sequence.num_uncomputed_tokens:
                self._extend(sequence, int(next(rows).argmax()))
            else:
                self.scheduler.settle(sequence)

    def _extend(self, sequence: Sequence, token_id: int) -> None:
        sequence.append(token_id)
        if token_id in (END_ID, *sequence.request.params.stop_token_ids):
            self.end(sequence, FinishReason.STOP)
        elif sequence.num_output_tokens == sequence.request.max_tokens:
            self.end(sequence, FinishReason.LENGTH)
        else:
            self.scheduler.settle(sequence)


def output_ids(sequence: Sequence) -> list[int]:
    """What it has said so far."""
    ids: list[int] = sequence.token_ids[sequence.num_prompt_tokens : sequence.num_tokens].tolist()
    return ids


class RecordingObserver(Observer):
    """Keeps what an engine tells, on the engine's thread."""

    def __init__(self) -> None:
        self.steps: list[RanStep] = []
        self.ended: list[Sequence] = []

    def step_ran(self, step: RanStep) -> None:
        self.steps.append(step)

    def sequence_ended(self, sequence: Sample) -> None:
        assert isinstance(sequence, Sequence), "what the engine runs"
        self.ended.append(sequence)


# For tests that are not about waiting: on a busy machine, steps take far longer than a second.
PATIENT = QueuePolicy(max_wait_s=PATIENCE_S)


class _Eager(Speculator):
    """Drafts whatever it can for one of at most two: a test's runs have no cost to learn from."""

    def draft(self, decoding: list[Sequence]) -> Draft | None:
        for sequence in decoding if len(decoding) <= 2 else ():
            most = min(7, sequence.num_output_tokens_left - 1)
            if sequence.request.params.has_beams:
                continue
            token_ids = draft_of(sequence, most)
            if len(token_ids):
                return Draft(sequence, token_ids, is_forced(sequence))
        return None

    def checked(self, draft: Draft, num_agreed: int, num_decoding: int, cost: float) -> None:
        """Learn nothing."""


def draft_eagerly(engine: GenerationEngine) -> None:
    """Before its first request: draft wherever there is something to draft."""
    assert isinstance(engine._scheduler, SlotScheduler)
    engine._scheduler._speculator = _Eager(7)


@dataclass
class Answer:
    """One sample of a request, put together from its chunks."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    num_chunks: int = 0
    is_complete: bool = False


async def read(generation: Generation) -> list[Answer]:
    """Everything that is left of each sample, each ending once."""
    answers = [Answer() for _ in generation.sequences]
    async for chunk in generation:
        answer = answers[chunk.sequence.sample_index]
        assert not answer.is_complete, "a chunk after the last"
        answer.text += chunk.text
        answer.token_ids += chunk.token_ids
        answer.logprobs += chunk.logprobs
        answer.num_chunks += 1
        answer.is_complete = chunk.is_last
    return answers


@asynccontextmanager
async def engine_on(
    decoder: Decoder,
    *,
    observer: RecordingObserver | None = None,
    queue: QueueLimits | None = None,
    on_broken: Callable[[], None] = lambda: None,
    **limits: Any,
) -> AsyncIterator[GenerationEngine]:
    """An engine over a decoder, closed at the end; `limits` are the scheduler's."""
    engine = GenerationEngine(
        "fake",
        decoder,
        VOCABULARY,
        SchedulerLimits(**limits),
        queue or QueueLimits(policy=PATIENT),
        [observer or RecordingObserver()],
        on_broken,
    )
    try:
        yield engine
    finally:
        if isinstance(decoder, FakeDecoder):
            decoder.release()
        await within_patience(asyncio.to_thread(engine.close, PATIENCE_S))
        assert engine._crossing.join(0)


async def within_patience(awaitable: Awaitable[T]) -> T:
    return await asyncio.wait_for(awaitable, PATIENCE_S)


async def ask_all(engine: GenerationEngine, request: GenerationRequest) -> list[Answer]:
    async with engine.generate(request) as generation:
        return await within_patience(read(generation))


async def ask(engine: GenerationEngine, prompt: str, **params: Any) -> Answer:
    """One sample's answer."""
    (answer,) = await ask_all(engine, now(prompt, **params))
    return answer


def now(prompt: str, **params: Any) -> GenerationRequest:
    return request_of(prompt, received_s=time.monotonic(), **params)


async def start(engine: GenerationEngine, prompt: str, **params: Any) -> asyncio.Task[Answer]:
    """Ask in the background; it is in the queue, or refused, when this returns."""
    task = asyncio.create_task(ask(engine, prompt, **params))
    await asyncio.sleep(0)
    return task


async def step_to(decoder: FakeDecoder, number: int) -> None:
    """Let all runs before this one end, and hold it once it has begun."""
    decoder.hold(after=number - 1 - len(decoder.calls))
    await asyncio.to_thread(decoder.wait_for_runs, number)


async def until_idle(engine: GenerationEngine) -> None:
    """Until no sequence has a slot or waits for one; the last outputs may not be delivered yet."""
    await until(lambda: not engine.num_running and not engine.num_waiting)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.001)


def rows_of(decoder: FakeDecoder) -> list[tuple[int, ...]]:
    """Of each run, the tokens by row."""
    return [tuple(len(row) for row in call.rows) for call in decoder.calls]


async def sleep_past(moment_s: float) -> None:
    await asyncio.sleep(moment_s - time.monotonic() + 0.001)


def in_s(seconds: float) -> float:
    return time.monotonic() + seconds
