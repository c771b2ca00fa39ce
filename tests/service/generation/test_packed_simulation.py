"""Random lives of packed steps over a paged cache: whatever arrives, leaves or fails, it holds.

Each seed draws its own limits and traffic. Every step is computed by `PagedAttention` in NumPy, and
everything is recounted after each. Where a sequence lies, what it shares and what runs beside it
changes no token: each sequence says what it says alone, over a fresh cache.
"""

import os
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest

from service.generation.beams import BeamSearch
from service.generation.blocks import BlockCache
from service.generation.packed import PackedLimits, PackedPlan, PackedScheduler
from service.generation.sampler import SamplerState
from service.generation.sequence import Sequence
from service.records import FinishReason
from tests.fakes.generation import VOCABULARY, output_ids, request_of, samples_of
from tests.fakes.paged import PagedDecoder, slots_of

SEEDS = range(int(os.environ.get("SIMULATION_SEEDS", "100")))
NUM_EVENTS = 100
MAX_PROMPT, MAX_OUTPUT = 48, 16
VOCAB_SIZE = 29
BEGINNINGS = ((), (), (), tuple(range(1, 13)), tuple(range(1, 25)), (5, 6, 7) * 8)
REFERENCE = PagedDecoder(1, 64, VOCAB_SIZE)


def says_what_it_says_alone(sequence: Sequence) -> bool:
    """Whether each token is the likeliest after those before it, computed without a cache."""
    token_ids = sequence.token_ids[: sequence.num_tokens]
    likeliest = REFERENCE.alone(token_ids).argmax(axis=-1)
    first = sequence.num_prompt_tokens
    return bool((likeliest[first - 1 : -1] == token_ids[first:]).all())


def is_complete(sequence: Sequence) -> bool:
    """Whether it ended where its request says."""
    stops = sequence.request.params.stop_token_ids
    *said, last = output_ids(sequence)
    has_stopped = last in stops
    is_full = len(said) + 1 == sequence.request.max_tokens
    return not set(said) & set(stops) and (has_stopped or is_full)


@dataclass
class Simulation:
    """One scheduler with its cache and a decoder, and all sequences that it was given."""

    seed: int
    now_s: float = 0.0
    admitted: list[Sequence] = field(default_factory=list)
    live: dict[Sequence, None] = field(default_factory=dict)
    searches: dict[object, BeamSearch] = field(default_factory=dict)
    plans: list[PackedPlan] = field(default_factory=list)
    met: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        pick = self.random.integers
        size = int(pick(2, 17))
        most = MAX_PROMPT + MAX_OUTPUT
        blocks_of_one = -(-most // size)
        num_blocks = 3 * blocks_of_one + int(pick(0, 6 * blocks_of_one))
        self.decoder = PagedDecoder(num_blocks, size, VOCAB_SIZE)
        max_rows = int(pick(3, 12))
        self.limits = PackedLimits(
            max_running=max_rows,
            max_step_tokens=max_rows + int(pick(1, 64)),
            priority_step_s=float(self.random.choice([0.0, 1.0, 10.0])),
            max_draft_tokens=int(self.random.choice([0, 3, 7])),
        )
        self.cache = BlockCache(num_blocks, size, most, max_rows, self.decoder.copy)
        self.scheduler = PackedScheduler(self.limits, self.cache)

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
        )
        samples = samples_of(request, num_samples, self.now_s)
        self.admitted += samples
        self.live |= dict.fromkeys(samples)
        if num_beams:
            self.searches[request] = BeamSearch(samples)
            samples = samples[:1]
        for sample in samples:
            self.scheduler.add(sample)

    def leave(self) -> None:
        """A client takes all its samples with it."""
        requests = list(dict.fromkeys(sequence.request for sequence in self.live))
        if requests:
            self.abort(requests[self.random.integers(len(requests))], FinishReason.ABORT)

    def abort(self, request: object, reason: FinishReason) -> None:
        if request in self.searches:
            self.searches.pop(request).close(self.scheduler)
        for sequence in [s for s in self.live if s.request is request]:
            self.end(sequence, reason, has_place=not sequence.request.params.has_beams)

    def end(self, sequence: Sequence, reason: FinishReason, *, has_place: bool = True) -> None:
        if has_place:
            self.scheduler.end(sequence)
        sequence.finish_reason = reason
        del self.live[sequence]

    def step(self, *, fails: bool = False) -> None:
        first = self.scheduler.first_waiting(1)
        was_running = set(self.scheduler.running())
        plan = self.scheduler.plan()
        if plan is None:
            assert not self.live, f"work is left, and no step does it: {self.scheduler!r}"
            return
        self.look(plan, first, was_running)
        inputs = plan.inputs(self.cache)
        slots = slots_of(inputs, self.cache.block_size)
        assert len(set(slots.tolist())) == len(slots), "two tokens are written to one place"
        if fails:
            self.decoder.spoil(slots)
            for request in dict.fromkeys(sequence.request for sequence in plan.sequences):
                self.abort(request, FinishReason.ERROR)
            return
        logits = self.decoder.run(inputs)
        self.scheduler.computed(plan)
        self.extend(plan, logits)
        self.check()

    def look(self, plan: PackedPlan, first: list[Sequence], was_running: set[Sequence]) -> None:
        """What every plan keeps to, and what it was."""
        self.plans.append(plan)
        assert plan.num_tokens <= self.limits.max_step_tokens
        assert len(set(plan.sequences)) == len(plan.sequences) <= self.limits.max_running
        decoding = {each for each in was_running if each.num_uncomputed_tokens == 1}
        assert decoding <= set(plan.sequences), "a sequence that decodes missed a step"
        started = set(plan.sequences) - was_running
        assert not started or set(first) <= started, "the first in line was passed"
        phases = {row.num_new > 1 for row in plan.rows if row.sequence in was_running}
        self.met["chunks beside steps"] += len(phases) == 2
        self.met["prompts at once"] += len(started) > 1
        self.met["drafts at once"] += sum(len(row.draft) > 0 for row in plan.rows) > 1

    def extend(self, plan: PackedPlan, logits: np.ndarray) -> None:
        place = 0
        beams: dict[Sequence, np.ndarray] = {}
        for row in plan.rows:
            own = logits[place : place + row.num_logits]
            place += row.num_logits
            if row.sequence.request in self.searches and len(own):
                beams[row.sequence] = own[0].astype(np.float32)
            else:
                self.take(row.sequence, own, row.draft)
        for request in dict.fromkeys(sequence.request for sequence in beams):
            search = self.searches[request]
            if search.advance(beams, self.scheduler):
                self.searches.pop(request)
                search.close(self.scheduler)
                for sequence, hypothesis in search.take_best():
                    self.end(sequence, hypothesis.reason, has_place=False)

    def take(self, sequence: Sequence, logits: np.ndarray, draft: np.ndarray) -> None:
        """Tokens while they are those drafted, and the one that follows."""
        for index, row in enumerate(logits):
            token_id = int(row.argmax())
            sequence.append(token_id)
            if token_id in sequence.request.params.stop_token_ids:
                return self.end(sequence, FinishReason.STOP)
            if not sequence.num_output_tokens_left:
                return self.end(sequence, FinishReason.LENGTH)
            if index == len(draft) or token_id != draft[index]:
                sequence.drafts.add(index, len(draft), sequence.num_tokens)
                return None
            self.met["drafted tokens that held"] += 1
            self.scheduler.agree(sequence)
        return None

    def check(self) -> None:
        self.scheduler.check_integrity()
        alone = {s for s in self.live if not s.request.params.has_beams}
        assert alone <= set(self.scheduler.sequences()), "a sequence is lost"


@pytest.mark.parametrize("first", range(0, len(SEEDS), 50))
def test_every_sequence_ends_once_with_the_tokens_it_gets_alone(first: int) -> None:
    """Aborted sequences, and those in a failed step, have a beginning of those tokens."""
    for seed in SEEDS[first : first + 50]:
        simulation = Simulation(seed)
        simulation.run()
        for sequence in simulation.admitted:
            assert sequence.is_finished
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
    (first, *_) = samples = [
        Sequence(
            sequence.request,
            SamplerState(
                sequence.request.params,
                sequence.request.prompt_ids,
                VOCABULARY.eos_token_ids,
                index,
            ),
            sequence.text,
            index,
        )
        for index in range(sequence.request.params.n)
    ]
    simulation.live |= dict.fromkeys(samples)
    simulation.searches[sequence.request] = BeamSearch(samples)
    simulation.scheduler.add(first)
    while simulation.live:
        simulation.step()
    return output_ids(first)


def test_the_simulation_meets_what_it_is_about() -> None:
    met: Counter[str] = Counter()
    for seed in range(30):
        simulation = Simulation(seed)
        simulation.run()
        met += simulation.met
        met["admitted"] += len(simulation.admitted)
        met["reused"] += sum(s.num_reused_tokens > 0 for s in simulation.admitted)
        met["copied"] += simulation.cache.num_copied_blocks
        for sequence in simulation.admitted:
            assert sequence.finish_reason is not None
            met[sequence.finish_reason.value] += 1
    least = {"admitted": 500, "reused": 100, "copied": 100, "stop": 50, "length": 50, "abort": 20}
    least |= {"error": 20, "chunks beside steps": 100, "prompts at once": 50}
    least |= {"drafts at once": 10, "drafted tokens that held": 20}
    for name, count in least.items():
        assert met[name] >= count, (name, met)


def test_the_same_seed_gives_the_same_steps() -> None:
    """Nothing depends on a clock or on the order of a set."""
    shapes = []
    for _ in range(2):
        simulation = Simulation(7)
        simulation.run()
        shapes.append(
            [[(row.num_past, row.num_new) for row in plan.rows] for plan in simulation.plans]
        )
    assert shapes[0] == shapes[1]
