"""Random lives of continuous batching: whatever arrives, leaves, fails or expires, it holds.

Each seed draws its own limits and its own traffic. An event is one step of the scheduler that
succeeds or fails, or a request that arrives, a client that leaves, or time that passes. `Steps`
recounts after every one, and compares the decoder's slots with the accounting.
"""

import os
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest

from service.generation.cache.prefix_store import PIECE_TOKENS
from service.generation.choosing.sampling import logprobs_of
from service.generation.sequence import Sequence
from service.generation.steps.scheduler import SchedulerLimits
from service.records import FinishReason
from tests.fakes.generation import Steps, output_ids, request_of, samples_of
from tests.fakes.sessions import LETTER_IDS, greedy_ids, next_logits

SEEDS = range(int(os.environ.get("SIMULATION_SEEDS", "200")))
NUM_EVENTS = 120
CONTEXT = 96  # tokens: prompts of up to 76, outputs of up to 20
MAX_OUTPUT = 20
SCORES = (None, None, None, None, 0, 2)  # `prompt_logprobs` of requests
NAMESPACES = ("", "", "", "blue")
# What prompts begin with, besides nothing.
BEGINNINGS = (
    b"",
    b"",
    b"",
    b"in the beginning was",
    b"in the beginning was the word, and it",
    b"x" * 40,
)


@dataclass
class Simulation:
    """One scheduler, all sequences it was given, and how long the first in line has been that."""

    seed: int
    can_reuse_prefixes: bool = True
    has_states: bool = False
    now_s: float = 0.0
    admitted: list[Sequence] = field(default_factory=list)
    last_first: Sequence | None = None
    num_steps_as_first: int = 0
    num_passed: int = 0  # steps in a row without the prompt that is in chunks
    num_expired: int = 0

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        pick = self.random.integers
        self.limits = SchedulerLimits(
            max_running=int(pick(1, 10)),
            max_prefill_tokens=int(pick(8, CONTEXT)),
            overhead_tokens=int(pick(0, 16)),
            priority_step_s=float(self.random.choice([0.0, 1.0, 10.0])),
            can_reuse_prefixes=self.can_reuse_prefixes,
            max_candidates=int(pick(2, 30)),
            max_scored_tokens=int(pick(2, 9)),
            max_prefix_bytes=PIECE_TOKENS * int(pick(0, 12)),  # a token is a byte
        )
        self.steps = Steps(int(pick(1, 9)), CONTEXT, self.limits, self.has_states)

    def event(self) -> None:
        chance = self.random.random()
        if chance < 0.08:
            for _ in range(self.random.poisson(2.0)):
                self.arrive()
        elif chance < 0.1:
            self.leave()
        elif chance < 0.12:
            self.now_s += float(self.random.exponential(5.0))
        else:
            self.expire()
            self.step(fails=chance > 0.985)

    def arrive(self) -> None:
        """Letters after a common beginning; some prompts end where the model ends at once."""
        pick = self.random.integers
        beginning = BEGINNINGS[pick(len(BEGINNINGS))]
        num_letters = int(pick(1, self.random.choice([8, 36])))
        prompt = beginning + bytes(self.random.choice(LETTER_IDS[:6], size=num_letters).tolist())
        if self.random.random() < 0.05:
            prompt = prompt[:-1] + b"."
        self.now_s += 0.001  # an order of arrival without ties
        has_deadline = self.random.random() < 0.2
        request = request_of(
            prompt,
            max_tokens=int(pick(1, MAX_OUTPUT + 1)),
            received_s=self.now_s,
            deadline_s=self.now_s + float(self.random.exponential(5.0)) if has_deadline else None,
            priority=int(self.random.choice([0, 0, 1, 3])),
            stop_token_ids=tuple(self.random.choice(LETTER_IDS, size=pick(0, 3)).tolist()),
            prompt_logprobs=SCORES[pick(len(SCORES))],
            namespace=NAMESPACES[pick(len(NAMESPACES))],
        )
        samples = samples_of(request, int(self.random.choice([1, 1, 1, 2, 5])), self.now_s)
        self.admitted += samples
        self.steps.add(*samples)

    def leave(self) -> None:
        """A client takes all its samples with it."""
        requests = list(dict.fromkeys(sequence.request for sequence in self.steps.live))
        if requests:
            self.abort(requests[self.random.integers(len(requests))])

    def expire(self) -> None:
        late = {
            s.request: None
            for s in self.steps.live
            if s.request.deadline_s is not None and s.request.deadline_s <= self.now_s
        }
        for request in late:
            self.num_expired += 1
            self.abort(request)

    def abort(self, request: object) -> None:
        for sequence in [s for s in self.steps.live if s.request is request]:
            self.steps.abort(sequence)

    def step(self, *, fails: bool = False) -> None:
        first = self.first_in_line()
        before, decoding = set(self.steps.scheduler.running()), self.steps.cache.decoding()
        step = self.steps.step(fails=fails)
        if step is None:
            return
        plan = step.plan
        in_prefill = before - set(decoding) - set(plan.sequences)
        self.num_passed = self.num_passed + 1 if in_prefill else 0
        assert self.num_passed <= 1, "two steps in a row passed a prompt in chunks"
        assert len(set(plan.sequences)) == len(plan.sequences) <= self.limits.max_running
        if plan.phase == "decode":
            assert set(plan.num_new_tokens) == {1}
            assert (plan.num_decoding, plan.num_prompt_tokens) == (len(plan.sequences), 0)
        else:
            assert (plan.num_decoding, plan.num_prompt_tokens) == (0, plan.num_tokens)
            assert len(plan.sequences) * max(plan.num_new_tokens) <= self.limits.max_prefill_tokens
        if first is not None and first.slot is None and not first.is_finished:
            started = set(plan.sequences) - before
            assert not started, "one that started passed the first in line"
            self.num_steps_as_first += 1
            self.num_steps_as_first *= first is self.last_first  # none since another was first
            assert self.num_steps_as_first <= self.most_steps_as_first()
        self.last_first = first

    def first_in_line(self) -> Sequence | None:
        """The first that waits and needs not wait for its leader."""
        waiting = [sequence for sequence in self.steps.live if sequence.slot is None]
        ready = [s for s in waiting if s.leader is None or not is_in_prefill(s.leader)]
        return min(ready, key=self.order, default=None)

    def order(self, sequence: Sequence) -> tuple[float, int]:
        late_s = sequence.request.priority * self.limits.priority_step_s
        return sequence.timings.queued_s + late_s, sequence.sample_index

    def most_steps_as_first(self) -> int:
        """The chunks of the prompt before it, each with a step for others, then until one ends.

        Its own first chunk may wait for one step more, and copies before it for another.
        """
        chunk_tokens = min(self.limits.max_prefill_tokens, self.limits.max_scored_tokens)
        num_chunks = -(-CONTEXT // chunk_tokens)
        return 2 * num_chunks + MAX_OUTPUT + 2

    def run(self) -> None:
        for _ in range(NUM_EVENTS):
            self.event()
        while self.steps.live:
            self.step()


def is_in_prefill(sequence: Sequence) -> bool:
    return sequence.num_prompt_tokens_left > 0 and not sequence.is_finished


def expected_ids(sequence: Sequence) -> list[int]:
    """What the fake decoder says when it is asked alone."""
    request = sequence.request
    ids = greedy_ids(request.prompt_ids.tolist(), request.max_tokens)
    ends = [place for place, token in enumerate(ids) if token in request.params.stop_token_ids]
    return ids[: ends[0] + 1] if ends else ids


def check_scores(sequence: Sequence) -> None:
    """Those of a whole prompt once it says something; of a beginning if it ended before."""
    prompt, scores = sequence.request.prompt_ids.tolist(), sequence.prompt_logprobs
    if not sequence.scores_prompt:
        assert not scores
        return
    assert not sequence.num_reused_tokens, "a copied token has no logits"
    if sequence.num_output_tokens:
        assert len(scores) == len(prompt) - 1
    for place, score in enumerate(scores, 1):
        logits = next_logits(prompt[:place])
        assert score == logprobs_of(
            logits, prompt[place], sequence.request.params.prompt_logprobs or 0
        )


@pytest.mark.parametrize(
    ("can_reuse_prefixes", "has_states"), [(True, False), (False, False), (True, True)]
)
@pytest.mark.parametrize("first", range(0, len(SEEDS), 100))
def test_every_sequence_ends_once_with_the_tokens_it_gets_alone(
    first: int, can_reuse_prefixes: bool, has_states: bool
) -> None:
    """200 seeds of 120 events, about 8,000 sequences; then all is served to its end.

    Who was aborted, or was in a failed step, has a beginning of those tokens. Who is first in
    line is passed by nobody and starts within the bound; chunks go in every other step at least.
    Slots with states are copied whole, and go on from all of their tokens.
    """
    for seed in SEEDS[first : first + 100]:
        simulation = Simulation(seed, can_reuse_prefixes, has_states)
        simulation.run()
        for sequence in simulation.admitted:
            found, expected = output_ids(sequence), expected_ids(sequence)
            assert sequence.is_finished
            check_scores(sequence)
            if sequence.finish_reason in (FinishReason.ABORT, FinishReason.ERROR):
                assert found == expected[: len(found)]
            else:
                assert found == expected
        assert simulation.steps.cache.num_used == simulation.steps.cache.num_tokens == 0
        assert simulation.steps.scheduler.num_waiting == 0


def test_the_simulation_meets_what_it_is_about() -> None:
    """Seeds that never saw one would prove nothing about it: 40 of them."""
    met: Counter[str] = Counter()
    for seed in range(40):
        simulation = Simulation(seed)
        simulation.run()
        met["admitted"] += len(simulation.admitted)
        met["expired"] += simulation.num_expired
        met["scored"] += sum(len(s.prompt_logprobs) > 8 for s in simulation.admitted)
        met["reused"] += sum(s.num_reused_tokens > 0 for s in simulation.admitted)
        met["stored"] += sum(s.num_stored_tokens > 0 for s in simulation.admitted)
        met["given up"] += simulation.steps.cache.num_evictions
        met["moved"] += simulation.steps.cache.num_moved_rows
        met["full"] += max(len(step.sequences) for step in simulation.steps.steps) > 3
        for sequence in simulation.admitted:
            assert sequence.finish_reason is not None
            met[sequence.finish_reason.value] += 1
        for step in simulation.steps.steps:
            is_several = step.plan.phase == "prefill" and len(step.sequences) > 1
            met["several prompts at once"] += is_several
            met["chunks"] += step.plan.num_new_tokens[0] == simulation.limits.max_prefill_tokens
    least = {
        "scored": 100,
        "admitted": 1_000,
        "expired": 20,
        "reused": 200,
        "stored": 20,
        "given up": 40,
        "moved": 500,
        "full": 10,
    }
    ends = dict.fromkeys(("stop", "length", "abort", "error"), 50)
    for name, count in {**least, **ends, "several prompts at once": 20, "chunks": 100}.items():
        assert met[name] >= count, (name, met)


def test_the_same_seed_gives_the_same_steps() -> None:
    """Nothing depends on a clock or on the order of a set."""
    shapes = []
    for _ in range(2):
        simulation = Simulation(7)
        simulation.run()
        shapes.append([(s.plan.phase, s.plan.num_new_tokens) for s in simulation.steps.steps])
    assert shapes[0] == shapes[1]
