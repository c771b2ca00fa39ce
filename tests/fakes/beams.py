"""A beam search as plain as it can be written, and a decoder whose logits are drawn by chance.

And how tests ask an engine for a search.
"""

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from service.generation.engine import GenerationEngine
from service.generation.sequence import GenerationRequest
from service.records import RanStep
from tests.fakes.generation import RecordingObserver, read, request_of, within_patience
from tests.fakes.sessions import END_ID, FakeDecoder

LETTERS = tuple(range(ord("a"), ord("a") + 6))
LogitsAfter = Callable[[list[int]], np.ndarray]  # of an output so far; the prompt is known to it


def reference_search(
    logits_after: LogitsAfter,
    *,
    beam_width: int,
    n: int = 1,
    max_tokens: int = 8,
    length_penalty: float = 1.0,
    ends: Collection[int] = (END_ID,),
    min_tokens: int = 0,
    banned: Callable[[list[int]], Collection[int]] = lambda _: (),
) -> list[tuple[list[int], float]]:
    """The n best outputs and their log probabilities: every continuation of every beam, sorted."""
    beams: list[tuple[list[int], float]] = [([], 0.0)]
    finished: list[tuple[list[int], float]] = []

    def rank(output: list[int], score: float) -> float:
        return -score / float(len(output) ** length_penalty)

    for length in range(1, max_tokens + 1):
        every: list[tuple[float, int, int]] = []
        for place, (output, score) in enumerate(beams):
            logits = logits_after(output).astype(np.float64)
            logprobs = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
            forbidden = {*banned(output), *(ends if length <= min_tokens else ())}
            every += [
                (-(score + logprob), place, token_id)
                for token_id, logprob in enumerate(logprobs.tolist())
                if token_id not in forbidden
            ]
        every.sort()
        going = [found for found in every if found[2] not in ends][:beam_width]
        done = [found for found in every[:beam_width] if found[2] in ends]
        done += going if length == max_tokens else []
        finished += [([*beams[place][0], token], -loss) for loss, place, token in done]
        finished.sort(key=lambda found: rank(*found))
        beams = [([*beams[place][0], token], -loss) for loss, place, token in going]
        if not beams or length == max_tokens:
            break
        best_open = -beams[0][1] / max_tokens**length_penalty
        if len(finished) >= n and best_open >= rank(*finished[n - 1]):
            break
    return finished[:n]


def chance_logits(ids: Sequence[int], vocab_size: int = 257) -> np.ndarray:
    """Float32 [V], drawn anew for every sequence; about one in ten outputs ends at each token."""
    logits = np.random.default_rng(list(ids)).normal(size=vocab_size).astype(np.float32) * 3
    logits[END_ID] += 4
    return logits


class ChanceDecoder(FakeDecoder):
    """A model whose next token cannot be guessed: a wrong cache gives another search."""

    def _logits_after(self, slot: int, row: tuple[int, ...], num_past: int) -> np.ndarray:
        super()._logits_after(slot, row, num_past)
        return chance_logits(self.slots[slot], self.vocab_size)


def expected(prompt: Sequence[int], **params: Any) -> list[tuple[list[int], float]]:
    """What `ChanceDecoder` is to answer."""
    return reference_search(lambda output: chance_logits([*prompt, *output]), **params)


class CheckingObserver(RecordingObserver):
    """Recounts scheduler and cache after every step, on the engine's thread."""

    engine: GenerationEngine

    def step_ran(self, step: RanStep) -> None:
        super().step_ran(step)
        self.engine._scheduler.check_integrity()
        running = self.engine._scheduler.running()
        assert len(running) <= self.engine._scheduler.max_running


def search_of(prompt: str | Sequence[int], **params: Any) -> GenerationRequest:
    return request_of(prompt, received_s=time.monotonic(), **{"beam_width": 4} | params)


async def search(engine: GenerationEngine, request: GenerationRequest) -> list[Any]:
    """Outputs and scores, best first, with the order in which they came."""
    async with engine.generate(request) as generation:
        await within_patience(read(generation))
    return outputs_of(generation.sequences)


def outputs_of(sequences: Sequence[Any]) -> list[Any]:
    return [(s.token_ids[s.num_prompt_tokens : s.num_tokens].tolist(), s.score) for s in sequences]


def check(found: list[Any], wanted: list[tuple[list[int], float]]) -> None:
    assert [ids for ids, _ in found] == [ids for ids, _ in wanted]
    np.testing.assert_allclose([s for _, s in found], [s for _, s in wanted], rtol=1e-5)
