"""The definition of a choice written out, slowly, in float64, and states that a test scripts."""

# ruff: noqa: N806 - suffixes are array layouts: B rows, V vocabulary

from typing import Any

import numpy as np

from service.calls.sampling import Sampling
from service.generation.choosing.sampler_state import SamplerState
from service.generation.choosing.sampling import Sampled, sample

EOS = 0
NO_PROMPT = np.empty(0, np.int64)


def state_of(prompt: list[int] | None = None, sample_index: int = 0, **params: Any) -> SamplerState:
    prompt_ids = np.array(prompt or [], np.int64)
    return SamplerState(Sampling(**params), prompt_ids, (EOS,), sample_index)


def choose(logits: Any, *states: SamplerState) -> Sampled:
    """Sample from logits that are not writable, as a session's output buffer should be to us."""
    logits_BV = np.atleast_2d(np.asarray(logits, np.float32))
    logits_BV.setflags(write=False)
    return sample(logits_BV, states)


def choose_one(logits: Any, state: SamplerState) -> int:
    sampled = choose(logits, state)
    assert sampled.is_valid.tolist() == [True]
    return int(sampled.token_ids[0])


def edited(
    logits: np.ndarray, params: Sampling, prompt: list[int], output: list[int]
) -> np.ndarray:
    """Bans, biases and penalties, token by token."""
    result = logits.astype(np.float64)
    history, size = prompt + output, params.no_repeat_ngram_size
    for token in range(len(result)):
        ends = {*params.stop_token_ids, *([] if params.ignore_eos else [EOS])}
        ngram = [*history[len(history) - size + 1 :], token]
        is_repeated = size and any(
            history[start : start + size] == ngram for start in range(len(history))
        )
        if (
            (token in ends and len(output) < params.min_tokens)
            or (params.allowed_token_ids and token not in params.allowed_token_ids)
            or token in params.banned_token_ids
            or is_repeated
        ):
            result[token] = -np.inf
            continue
        result[token] += params.logit_bias.get(token, 0.0)
        if token in history:
            factor = params.repetition_penalty
            result[token] = result[token] / factor if result[token] > 0 else result[token] * factor
        result[token] -= params.frequency_penalty * output.count(token)
        result[token] -= params.presence_penalty * (token in output)
    return result


def probabilities(logits: np.ndarray, params: Sampling, slack: float = 0.0) -> np.ndarray:
    """What temperature and filters leave of edited logits; `slack` widens the filters a little."""
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    weights = np.exp((logits[order] - logits[order[0]]) / params.temperature)
    weights[weights < params.min_p * (1 - slack)] = 0.0
    if params.top_k:
        weights[params.top_k :] = 0.0
    if params.top_p < 1.0:
        mass_before = (np.cumsum(weights) - weights) / weights.sum()
        weights[mass_before >= params.top_p * (1 + slack)] = 0.0
    result = np.zeros(len(logits))
    result[order] = weights / weights.sum()
    return result


class ScriptedState(SamplerState):
    """Draws the numbers it is given."""

    def __init__(self, params: Sampling, uniforms: list[float]) -> None:
        super().__init__(params, NO_PROMPT, (EOS,))
        self._uniforms = iter(uniforms)

    def draw(self) -> float:
        return next(self._uniforms)


def random_logits(seed: int, vocab_size: int, spread: float = 3.0) -> np.ndarray:
    random = np.random.default_rng(seed)
    return (random.standard_normal(vocab_size) * spread).astype(np.float32)
