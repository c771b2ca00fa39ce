"""Choose the next token of every row of a batch."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from service.generation.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Of one chosen token, by the raw logits: log-softmax before any processing."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]  # the most likely ids with theirs, best first


@dataclass(frozen=True, slots=True, eq=False)
class Sampled:
    """One token per row of the batch."""

    token_ids: np.ndarray  # int64 [B]; 0 where not valid
    is_valid: np.ndarray  # bool [B]; False: logits not finite, or no token is left to choose
    logprobs: list[TokenLogprobs | None]  # None where not asked for


class SamplerState:
    """What choosing the tokens of one sequence depends on, and nothing of its neighbours."""

    def __init__(
        self,
        params: SamplingParams,
        prompt_ids: np.ndarray,
        eos_token_ids: tuple[int, ...],
        sample_index: int = 0,
    ) -> None:
        raise NotImplementedError

    def append(self, token_id: int) -> None:
        """Count a token as generated; `sample` does so for what it chooses."""
        raise NotImplementedError


def sample(logits_BV: np.ndarray, states: Sequence[SamplerState]) -> Sampled:  # noqa: N803
    """Choose a token for every row and append it to the row's state; logits stay as they are."""
    raise NotImplementedError
