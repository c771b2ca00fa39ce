"""The parameters of OpenAI's API and vLLM's additions, for the record of a call.

`null` is as good as absent. Unknown fields are ignored, as clients add some every month; known ones
that would change the answer and are not supported are refused by name.
"""

from typing import TYPE_CHECKING, Any

import msgspec

from service.calls.record import names_in
from service.calls.sampling import Sampling
from service.grammars.form import KINDS as GRAMMAR_KINDS
from service.grammars.form import Grammar
from service.http.numbers import Whole
from service.http.shared.fields import MAX_ID
from service.http.shared.output_form import FormFields
from service.http.shared.sampled import named_in, parameters_in
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
SHARED = names_in("openai", Sampling)  # fields of the record that a body has
NO_INFILLING = "the model continues texts, and fills no gap before a suffix"


class StreamOptions(msgspec.Struct):
    """Options of a stream: what it has beside text."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


if TYPE_CHECKING:
    Shared = FormFields
else:
    Shared = parameters_in("openai", FormFields)


class SamplingFields(Shared, kw_only=True):
    """The fields that completions and chat completions share, those of `Sampling` among them."""

    model: str | None = None
    stop: str | list[str] | None = None
    use_beam_search: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    # vLLM's
    priority: Whole | None = None
    truncate_prompt_tokens: Whole | None = None
    truncation_side: str | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
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
            name = "n" if self.n_cmpl is None else "n_cmpl"
            raise invalid(
                f"{name} is {self.num_samples}, expected at most {MAX_BEAMS} with use_beam_search",
                name,
            )
        if self.stream_options is not None and not self.stream:
            raise invalid("stream_options is set, expected stream to be true", "stream_options")

    def sampling(self, grammar: Grammar | None, **own: int | None) -> Sampling:
        """The record of the parameters; None among the body's own is as good as absent.

        Raises `HttpError` and `InvalidArgument`.
        """
        named = named_in(self, "openai") | {"grammar": grammar, "fit_max_tokens": True}
        for name, other in SAME.items():
            if other in SHARED and getattr(self, name) is not None:
                named[other] = getattr(self, name)
        if isinstance(self.stop, str):
            named["stop"] = (self.stop,)
        if "logit_bias" in named:
            named["logit_bias"] = _biases(named["logit_bias"])
        if named.get("seed", 0) < 0:  # a number as good as any other
            named["seed"] %= 2**63
        if self.use_beam_search:
            named |= {"beam_width": self.num_samples, "temperature": 0.0}
        named |= own
        return Sampling.of({name: value for name, value in named.items() if value is not None})

    def number_of(self, name: str) -> int | None:
        """A whole number, by whichever of its names it is given."""
        names = [name, *(each for each, other in SAME.items() if other == name)]
        values = (getattr(self, each) for each in names)
        return next((value for value in values if value is not None), None)

    @property
    def num_samples(self) -> int:
        return self.number_of("n") or 1

    @property
    def reading(self) -> dict[str, Any]:
        """Fields of the call that say how its prompt is read, and what is told of it."""
        kept = self.truncate_prompt_tokens
        return {
            "priority": max(0, self.priority or 0),
            "truncate_prompt_tokens": MAX_ID if kept == -1 else kept and min(kept, MAX_ID),
            "truncate_prompt_end": self.truncation_side == "right",
            "return_prompt_token_ids": self.tells_prompt_ids,
        }

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


def _biases(named: dict[str, float]) -> dict[int, float]:
    biases: dict[int, float] = {}
    for text, bias in named.items():
        if not (text.isascii() and text.isdigit() and len(text) <= MAX_ID_DIGITS):
            raise invalid(
                f"logit_bias has the key '{text[:64]}', expected a token id", "logit_bias"
            )
        biases[int(text)] = bias
    return biases
