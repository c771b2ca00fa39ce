"""How one request wants its tokens chosen, and when to stop."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Checked when made: whoever holds one may rely on every bound."""

    temperature: float = 1.0  # 0: greedy. 1, as in vLLM: the model's own distribution
    top_k: int = 0  # 0: off
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    no_repeat_ngram_size: int = 0  # 0: off
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    allowed_token_ids: tuple[int, ...] = ()  # empty: all
    banned_token_ids: tuple[int, ...] = ()
    min_tokens: int = 0
    max_tokens: int | None = None  # None: what fits, up to the server's default
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None  # 0: the chosen token's; n: with the n most likely
    n: int = 1
    seed: int | None = None

    @property
    def is_greedy(self) -> bool:
        raise NotImplementedError

    def check_for(self, vocab_size: int) -> None:
        """Raise `InvalidArgument` for what a vocabulary of this size cannot do."""
        raise NotImplementedError

    @classmethod
    def from_mapping(cls, values: Mapping[str, object]) -> "SamplingParams":
        """From names to values, numbers also as text; `InvalidArgument` for unknown names."""
        raise NotImplementedError

    @classmethod
    def from_json(cls, text: str) -> "SamplingParams":
        """From a JSON object in vLLM's spelling."""
        raise NotImplementedError
