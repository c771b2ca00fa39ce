"""Random lives of packed steps over a paged cache: whatever arrives, leaves or fails, it holds.

Each seed draws its own limits and traffic. Every step is computed by `PagedAttention` in NumPy, and
everything is recounted after each. Where a sequence lies, what it shares and what runs beside it
changes no token: each sequence says what it says alone, over a fresh cache.
"""

import asyncio
import os
import threading
import time
from collections import Counter
from collections.abc import Sequence as Many
from dataclasses import dataclass, field

import numpy as np
import pytest

from service.errors import AttendantError, ModelFailed
from service.generation.sequence import Sequence
from service.generation.steps.packed_scheduler import PackedInputs, PackedPlan, PackedScheduler
from service.generation.steps.scheduler import SchedulerLimits
from service.generation.steps.step import Steps
from service.generation.stream import SequenceUpdate
from service.records import FinishReason
from tests.fakes.generation import (
    VOCABULARY,
    engine_on,
    output_ids,
    request_of,
    samples_of,
    until_idle,
    within_patience,
)
from tests.fakes.paged import PagedDecoder
from tests.fakes.sessions import PATIENCE_S

SEEDS = range(int(os.environ.get("SIMULATION_SEEDS", "100")))
NUM_EVENTS = 100
MAX_PROMPT, MAX_OUTPUT = 48, 16
VOCAB_SIZE = 29
SCORES = (None, None, None, None, 0, 2)  # `prompt_logprobs` of requests
BEGINNINGS = ((), (), (), tuple(range(1, 13)), tuple(range(1, 25)), (5, 6, 7) * 8)
REFERENCE = PagedDecoder(1, 64, vocab_size=VOCAB_SIZE)


def says_what_it_says_alone(sequence: Sequence) -> bool:
    """Whether each token is the likeliest after those before it, computed without a cache."""
    token_ids = sequence.token_ids[: sequence.num_tokens]
    likeliest = REFERENCE.alone(token_ids).argmax(axis=-1)
    first = sequence.num_prompt_tokens
    return bool((likeliest[first - 1 : -1] == token_ids[first:]).all())


def check_scores(sequence: Sequence) -> None:
    """Each token's log probability after those before it, computed without a cache."""
    scores, num_prompt = sequence.prompt_logprobs, sequence.num_prompt_tokens
    if not sequence.scores_prompt:
        assert not scores
        return
    assert not sequence.num_reused_tokens, "a cached token has no logits"
    if sequence.finish_reason not in (FinishReason.ABORT, FinishReason.ERROR):
        assert len(scores) == num_prompt - 1
    if scores:
        prompt = sequence.request.prompt_ids
        logits = REFERENCE.alone(prompt).astype(np.float64)[: len(scores)]
        expected = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        assert [each.token_id for each in scores] == prompt[1 : len(scores) + 1].tolist()
        for place, score in enumerate(scores):
            np.testing.assert_allclose(score.logprob, expected[place, score.token_id], atol=1e-4)
            assert len(score.top) == sequence.request.params.prompt_logprobs


def is_complete(sequence: Sequence) -> bool:
    """Whether it ended where its request says."""
    stops = sequence.request.params.stop_token_ids
    *said, last = output_ids(sequence)
    has_stopped = last in stops
    is_full = len(said) + 1 == sequence.request.max_tokens
    return not set(said) & set(stops) and (has_stopped or is_full)


@dataclass
class Simulation:
    """The steps of one paged decoder, and all sequences that it was given."""

    seed: int
    now_s: float = 0.0
    admitted: list[Sequence] = field(default_factory=list)
    live: dict[Sequence, None] = field(default_factory=dict)
    plans: list[PackedPlan] = field(default_factory=list)
    met: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        pick = self.random.integers
        size = int(pick(2, 17))
        most = MAX_PROMPT + MAX_OUTPUT
        blocks_of_one = -(-most // size)
        num_blocks = 3 * blocks_of_one + int(pick(0, 6 * blocks_of_one))
        max_rows = int(pick(3, 12))
        self.decoder = PagedDecoder(num_blocks, size, max_rows, most, VOCAB_SIZE)
        self.limits = SchedulerLimits(
            max_running=max_rows,
            max_prefill_tokens=int(pick(1, 64)),
            priority_step_s=float(self.random.choice([0.0, 1.0, 10.0])),
            max_draft_tokens=int(self.random.choice([0, 3, 7])),
            max_scored_tokens=int(pick(1, 12)),
        )
        scheduler, self.cache = self.decoder.open(self.limits)
        assert isinstance(scheduler, PackedScheduler)
        self.scheduler = scheduler
        ends = self.finish, self.fail
        self.steps = Steps(self.decoder, self.scheduler, self.cache, VOCABULARY, *ends)

    def run(self) -> None:
        for _ in range(NUM_EVENTS):
            self.event()
        for _ in range(10_000):
            if not self.live:
                return
            self.step()
        raise AssertionError(f"work is left: {self.scheduler!r}")

    def event(self) -> None:
        chance = self.random.random()
        if chance < 0.12:
            for _ in range(self.random.poisson(2.0)):
                self.arrive()
        elif chance < 0.14:
            self.leave()
        else:
            self.step(fails=chance > 0.985)
        self.check()

    def arrive(self) -> None:
        """Letters after a common beginning; one sample, several, or a search."""
        pick = self.random.integers
        beginning = BEGINNINGS[pick(len(BEGINNINGS))]
        num_own = int(pick(1, 1 + MAX_PROMPT - len(beginning)))
        prompt = [*beginning, *self.random.integers(1, VOCAB_SIZE, num_own).tolist()]
        self.now_s += 0.001
        num_beams = int(self.random.choice([0, 0, 0, 0, 0, 0, 0, 3]))
        num_samples = int(self.random.choice([1, 1, 1, 2, 3])) if not num_beams else 2
        request = request_of(
            prompt,
            max_tokens=int(pick(1, MAX_OUTPUT + 1)),
            received_s=self.now_s,
            priority=int(self.random.choice([0, 0, 1, 3])),
            stop_token_ids=tuple(pick(1, VOCAB_SIZE, pick(0, 3)).tolist()),
            n=num_samples if num_beams else 1,
            beam_width=num_beams,
            prompt_logprobs=SCORES[pick(len(SCORES))],
        )
        samples = samples_of(request, num_samples, self.now_s)
        self.admitted += samples
        self.live |= dict.fromkeys(samples)
        self.steps.add(samples)

    def leave(self) -> None:
        """A client takes all its samples with it."""
        requests = list(dict.fromkeys(sequence.request for sequence in self.live))
        if requests:
            request = requests[self.random.integers(len(requests))]
            for sequence in [each for each in self.live if each.request is request]:
                self.finish(sequence, FinishReason.ABORT)

    def finish(self, sequence: Sequence, reason: FinishReason) -> None:
        sequence.finish_reason = reason
        self.steps.remove(sequence)
        del self.live[sequence]  # KeyError: it ended twice

    def fail(self, sequences: Many[Sequence], _: AttendantError) -> list[SequenceUpdate]:
        for sequence in sequences:
            self.finish(sequence, FinishReason.ERROR)
        return []

    def step(self, *, fails: bool = False) -> None:
        first = self.scheduler.first_waiting(1)
        was_running = set(self.scheduler.running())
        plan = self.scheduler.plan()
        if plan is None:
            assert not self.live, f"work is left, and no step does it: {self.scheduler!r}"
            return
        self.look(plan, first, was_running)
        self.decoder.fails = fails
        try:
            logits = self.steps.run(plan)
        except ModelFailed as error:
            self.fail(self.steps.samples_in(plan.sequences), error)
        else:
            extended = self.steps.extend(plan, logits)
            self.scheduler.ran(plan, 1.0, extended.num_agreed)
            self.met["drafted tokens that held"] += sum(extended.num_agreed.values())
        self.check()

    def look(self, plan: PackedPlan, first: list[Sequence], was_running: set[Sequence]) -> None:
        """What every plan keeps to, and what it was."""
        self.plans.append(plan)
        assert plan.num_prompt_tokens + plan.num_drafted <= self.limits.max_prefill_tokens
        assert sum(plan.num_scored) <= self.limits.max_scored_tokens
        self.met["scored beside others"] += 0 < sum(plan.num_scored) < plan.num_tokens - 1
        assert len(set(plan.sequences)) == len(plan.sequences) <= self.limits.max_running
        decoding = {each for each in was_running if each.num_uncomputed_tokens == 1}
        assert len(decoding) == plan.num_decoding
        assert decoding <= set(plan.sequences), "a sequence that decodes missed a step"
        started = set(plan.sequences) - was_running
        assert not started or set(first) <= started, "the first in line was passed"
        self.met["prompts beside steps"] += 0 < plan.num_decoding < len(plan.sequences)
        self.met["prompts at once"] += len(started) > 1
        self.met["drafts at once"] += len(plan.drafts) > 1

    def check(self) -> None:
        self.scheduler.check_integrity()
        alone = {each for each in self.live if not each.request.params.has_beams}
        assert alone <= set(self.scheduler.sequences()), "a sequence is lost"


@pytest.mark.parametrize("first", range(0, len(SEEDS), 50))
def test_every_sequence_ends_once_with_the_tokens_it_gets_alone(first: int) -> None:
    """Aborted sequences, and those in a failed step, have a beginning of those tokens."""
    for seed in SEEDS[first : first + 50]:
        simulation = Simulation(seed)
        simulation.run()
        for sequence in simulation.admitted:
            assert sequence.is_finished
            check_scores(sequence)
            if sequence.request.params.has_beams:
                continue
            assert says_what_it_says_alone(sequence)
            if sequence.finish_reason not in (FinishReason.ABORT, FinishReason.ERROR):
                assert is_complete(sequence)
        assert simulation.cache.num_used == simulation.cache.num_used_blocks == 0
        assert simulation.scheduler.num_waiting == 0


def test_a_search_finds_what_it_finds_in_an_empty_cache() -> None:
    """Beams fork, share full blocks and copy the rest; others beside them change nothing."""
    num_compared = 0
    for seed in SEEDS[:40]:
        simulation = Simulation(seed)
        simulation.run()
        for sequence in simulation.admitted:
            ended = sequence.finish_reason in (FinishReason.STOP, FinishReason.LENGTH)
            if sequence.request.params.has_beams and ended and not sequence.sample_index:
                assert output_ids(sequence) == best_alone(sequence)
                num_compared += 1
    assert num_compared > 20


def best_alone(sequence: Sequence) -> list[int]:
    """The best of the same search, with the machine to itself."""
    simulation = Simulation(0)
    samples = samples_of(sequence.request, sequence.request.params.n, 0.0)
    simulation.live |= dict.fromkeys(samples)
    simulation.steps.add(samples)
    while simulation.live:
        simulation.step()
    return output_ids(samples[0])


def test_the_simulation_meets_what_it_is_about() -> None:
    met: Counter[str] = Counter()
    for seed in range(30):
        simulation = Simulation(seed)
        simulation.run()
        met += simulation.met
        met["admitted"] += len(simulation.admitted)
        met["reused"] += sum(s.num_reused_tokens > 0 for s in simulation.admitted)
        met["copied"] += simulation.cache.num_moved_rows
        for sequence in simulation.admitted:
            assert sequence.finish_reason is not None
            met[sequence.finish_reason.value] += 1
    least = {"admitted": 500, "reused": 100, "copied": 100, "stop": 50, "length": 50, "abort": 20}
    least |= {"error": 20, "prompts beside steps": 100, "prompts at once": 50}
    least |= {"scored beside others": 100, "drafts at once": 10, "drafted tokens that held": 20}
    for name, count in least.items():
        assert met[name] >= count, (name, met)


def test_the_same_seed_gives_the_same_steps() -> None:
    """Nothing depends on a clock or on the order of a set."""
    shapes = []
    for _ in range(2):
        simulation = Simulation(7)
        simulation.run()
        shapes.append([(plan.num_past, plan.num_new_tokens) for plan in simulation.plans])
    assert shapes[0] == shapes[1]


@dataclass
class _HeldDecoder(PagedDecoder):
    """Runs nothing until it may."""

    may_run: threading.Event = field(default_factory=threading.Event)

    def run(self, inputs: PackedInputs) -> np.ndarray:
        assert self.may_run.wait(PATIENCE_S)
        return super().run(inputs)


async def test_an_engine_over_blocks_gives_each_request_what_it_gets_alone() -> None:
    """Twenty at once on three places; the last leaves before its turn. Then nothing is in use."""
    random = np.random.default_rng(3)
    decoder = _HeldDecoder(24, 8, 3, MAX_PROMPT + MAX_OUTPUT, VOCAB_SIZE)
    async with engine_on(decoder, max_prefill_tokens=16, max_draft_tokens=3) as engine:
        sequences: list[Sequence] = []

        async def ask(prompt: list[int], *, leaves: bool) -> None:
            request = request_of(prompt, max_tokens=MAX_OUTPUT, received_s=time.monotonic())
            async with engine.generate(request) as generation:
                sequences.extend(generation.sequences)
                if not leaves:
                    async for _ in generation:
                        pass
            if leaves:
                decoder.may_run.set()

        prompts = [random.integers(1, VOCAB_SIZE, random.integers(1, 40)) for _ in range(20)]
        tasks = [ask(ids.tolist(), leaves=index == 19) for index, ids in enumerate(prompts)]
        await within_patience(asyncio.gather(*tasks))
        await until_idle(engine)
        assert engine.cache.num_used == engine.cache.num_tokens == 0
    assert sequences[-1].finish_reason is FinishReason.ABORT
    assert {each.finish_reason for each in sequences[:-1]} == {FinishReason.LENGTH}
    assert all(map(says_what_it_says_alone, sequences))
