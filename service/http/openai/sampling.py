"""The sampling parameters of OpenAI's API and vLLM's additions as the typed API has them.

`null` is as good as absent. Unknown fields are ignored, as clients add some every month; known ones
that would change the answer and are not supported are refused by name.
"""

from typing import Any

import msgspec
from attendant.v1 import generation_pb2 as pb

from service.contract.grammar import KINDS as GRAMMAR_KINDS
from service.http.openai.fields import sampling_params_of, unsupported
from service.http.openai.output_form import FormFields, message_fields
from service.http.status import invalid

MAX_PRIORITY = 2**32 - 1  # of its field in the typed API
MAX_LOGPROBS = 20  # OpenAI's for chats; of completions it is 5
MAX_ID_DIGITS = 10  # those of 2^32
MAX_BEAMS = 16  # the typed API's `beam_width`
NO_INFILLING = "the model continues texts, and fills no gap before a suffix"


class StreamOptions(msgspec.Struct):
    """What a stream says beside text."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class SamplingFields(FormFields, kw_only=True):
    """The fields that completions and chat completions share."""

    model: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    n: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    # vLLM's
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    length_penalty: float | None = None
    use_beam_search: bool | None = None
    stop_token_ids: list[int] | None = None
    allowed_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    min_tokens: int | None = None
    priority: int | None = None
    include_stop_str_in_output: bool | None = None
    bad_words: list[str] | None = None
    truncate_prompt_tokens: int | None = None
    prompt_logprobs: int | None = None
    cache_salt: str | None = None

    def check(self) -> None:
        """Raise `HttpError` for what is not supported."""
        if self.include_stop_str_in_output:
            raise unsupported("include_stop_str_in_output", "stop texts are never in the output")
        if self.bad_words:
            raise unsupported("bad_words", "logit_bias bans tokens")
        if self.truncate_prompt_tokens is not None:
            raise unsupported("truncate_prompt_tokens", "a prompt that is too long is refused")
        if self.priority is not None and self.priority > MAX_PRIORITY:
            raise invalid(
                f"priority is {self.priority}, expected at most {MAX_PRIORITY}", "priority"
            )
        if self.use_beam_search and (self.n or 1) > MAX_BEAMS:
            raise invalid(f"n is {self.n}, expected at most {MAX_BEAMS} with use_beam_search", "n")
        if self.stream_options is not None and not self.stream:
            raise invalid("stream_options is set, expected stream to be true", "stream_options")

    def sampling_params(
        self, max_tokens: int | None, logprobs: int | None, prompt_logprobs: int | None = None
    ) -> pb.SamplingParams:
        """The message; what it is out of bounds with is refused by the typed API."""
        named: dict[str, Any] = {
            "max_tokens": max_tokens,
            "logprobs": logprobs,
            "prompt_logprobs": prompt_logprobs,
            "fit_max_tokens": True,
            "stop": [self.stop] if isinstance(self.stop, str) else self.stop,
            "logit_bias": None if self.logit_bias is None else _biases(self.logit_bias),
            "top_k": 0 if self.top_k == -1 else self.top_k,
            "seed": None if self.seed == -1 else self.seed,
            **message_fields(self.grammar()),
        }
        for name in _ALIKE:
            named[name] = getattr(self, name)
        if self.use_beam_search:
            named |= {"beam_width": self.n or 1, "temperature": 0.0}
        present = {name: value for name, value in named.items() if value is not None}
        return sampling_params_of(present)

    @property
    def grammar_names(self) -> dict[str, str]:
        """The body's names of fields of a grammar that the typed API calls otherwise."""
        return dict.fromkeys(GRAMMAR_KINDS, self.form_field) if self.form_field else {}

    @property
    def has_usage(self) -> bool:
        """Whether a stream tells the usage at its end."""
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def has_running_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.continuous_usage_stats)


_ALIKE = (
    *("temperature", "top_p", "n", "presence_penalty", "frequency_penalty", "min_p"),
    *("repetition_penalty", "length_penalty", "stop_token_ids", "allowed_token_ids"),
    *("ignore_eos", "min_tokens", "cache_salt"),
)


def _biases(named: dict[str, float]) -> dict[int, float]:
    biases: dict[int, float] = {}
    for text, bias in named.items():
        if not (text.isascii() and text.isdigit() and len(text) <= MAX_ID_DIGITS):
            raise invalid(
                f"logit_bias has the key '{text[:64]}', expected a token id", "logit_bias"
            )
        biases[int(text)] = bias
    return biases
