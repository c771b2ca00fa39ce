"""The sampling parameters of OpenAI's API and vLLM's additions as the typed API has them.

`null` is as good as absent. Unknown fields are ignored, as clients add some every month; known ones
that would change the answer and are not supported are refused by name.
"""

from typing import Any

import msgspec
from attendant.v1 import generation_pb2 as pb

from service.grammars.form import KINDS as GRAMMAR_KINDS
from service.http.numbers import Whole
from service.http.shared.fields import MAX_ID, sampling_params_of
from service.http.shared.output_form import FormFields, message_fields
from service.http.status import invalid

MAX_PRIORITY = 2**32 - 1  # of its field in the typed API
MAX_LOGPROBS = 20  # OpenAI's for chats; of completions it is 5
MAX_ID_DIGITS = 10  # those of 2^32
MAX_BEAMS = 16  # the typed API's `beam_width`
SIDES = ("left", "right")
# Fields of other servers, and those of OpenAI or vLLM that mean the same.
SAME = {
    "n_predict": "max_tokens",
    "n_cmpl": "n",
    "repeat_penalty": "repetition_penalty",
    "no_stop_trim": "include_stop_str_in_output",
    "return_prompt_token_ids": "return_token_ids",
}
NO_INFILLING = "the model continues texts, and fills no gap before a suffix"


class StreamOptions(msgspec.Struct):
    """Options of a stream: what it has beside text."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class SamplingFields(FormFields, kw_only=True):
    """The fields that completions and chat completions share."""

    model: str | None = None
    max_tokens: Whole | None = None
    temperature: float | None = None
    top_p: float | None = None
    n: Whole | None = None
    seed: Whole | None = None
    stop: str | list[str] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    # vLLM's
    top_k: Whole | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    length_penalty: float | None = None
    use_beam_search: bool | None = None
    stop_token_ids: list[int] | None = None
    allowed_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    min_tokens: Whole | None = None
    priority: Whole | None = None
    include_stop_str_in_output: bool | None = None
    bad_words: list[str] | None = None
    truncate_prompt_tokens: Whole | None = None
    truncation_side: str | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    prompt_logprobs: Whole | None = None
    cache_salt: str | None = None
    # llama.cpp's and SGLang's names of the same
    n_predict: Whole | None = None
    n_cmpl: Whole | None = None
    repeat_penalty: float | None = None
    no_stop_trim: bool | None = None
    return_prompt_token_ids: bool | None = None

    def check(self) -> None:
        """Raise `HttpError` for what is not supported."""
        for name, other in SAME.items():
            if getattr(self, name) is not None and getattr(self, other) is not None:
                raise invalid(f"{name} is set beside {other}, expected one of them", name)
        if self.truncate_prompt_tokens is not None and self.truncate_prompt_tokens < -1:
            raise invalid(
                f"truncate_prompt_tokens is {self.truncate_prompt_tokens}, expected -1 or more",
                "truncate_prompt_tokens",
            )
        if self.truncation_side not in (None, *SIDES):
            raise invalid(
                f"truncation_side is '{self.truncation_side[:64]}', expected left or right",
                "truncation_side",
            )
        if self.priority is not None and self.priority > MAX_PRIORITY:
            raise invalid(
                f"priority is {self.priority}, expected at most {MAX_PRIORITY}", "priority"
            )
        if self.use_beam_search and self.num_samples > MAX_BEAMS:
            name = "n" if self.n is not None else "n_cmpl"
            raise invalid(
                f"{name} is {self.num_samples}, expected at most {MAX_BEAMS} with use_beam_search",
                name,
            )
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
            "seed": _seed(self.seed),
            **message_fields(self.output_grammar()),
        }
        for name in _ALIKE:
            named[name] = self.value_of(name)
        if self.use_beam_search:
            named |= {"beam_width": self.num_samples, "temperature": 0.0}
        present = {name: value for name, value in named.items() if value is not None}
        return sampling_params_of(present)

    def value_of(self, name: str) -> Any:  # noqa: ANN401 - any field's
        """A field's value, by whichever of its names it is given."""
        names = [name, *(each for each, other in SAME.items() if other == name)]
        values = (getattr(self, each) for each in names)
        return next((value for value in values if value is not None), None)

    @property
    def num_samples(self) -> int:
        return int(self.value_of("n") or 1)

    def read_prompt(self, message: pb.GenerateRequest) -> None:
        """Say in the message how its prompt is read, and what is told of it."""
        kept = self.truncate_prompt_tokens
        if kept is not None:
            message.truncate_prompt_tokens = MAX_ID if kept == -1 else min(kept, MAX_ID)
            message.truncate_prompt_end = self.truncation_side == "right"
        message.return_prompt_token_ids = self.tells_prompt_ids

    @property
    def tells_prompt_ids(self) -> bool:
        return bool(self.return_token_ids or self.return_prompt_token_ids)

    @property
    def other_names(self) -> dict[str, str]:
        """The body's names of fields that it calls as another server does."""
        return {
            other: name for name, other in SAME.items() if getattr(self, name) is not None
        } | self.grammar_names

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
        """Whether each event tells it too: vLLM does so only beside `include_usage`."""
        return self.has_usage and bool(
            self.stream_options and self.stream_options.continuous_usage_stats
        )


_ALIKE = (
    *("temperature", "top_p", "n", "presence_penalty", "frequency_penalty", "min_p"),
    *("repetition_penalty", "length_penalty", "stop_token_ids", "allowed_token_ids"),
    *("ignore_eos", "min_tokens", "cache_salt", "skip_special_tokens", "bad_words"),
    "include_stop_str_in_output",
)


def _seed(seed: int | None) -> int | None:
    """The seed as the typed API takes it: a negative number is one of the others; -1 is none."""
    return None if seed is None or seed == -1 else seed % 2**63 if seed < 0 else seed


def _biases(named: dict[str, float]) -> dict[int, float]:
    biases: dict[int, float] = {}
    for text, bias in named.items():
        if not (text.isascii() and text.isdigit() and len(text) <= MAX_ID_DIGITS):
            raise invalid(
                f"logit_bias has the key '{text[:64]}', expected a token id", "logit_bias"
            )
        biases[int(text)] = bias
    return biases
