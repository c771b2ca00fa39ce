"""The parameters of text generation as the typed API has them.

Names and defaults are those of Hugging Face's text generation server: the likeliest token at each
step unless `do_sample`, or a parameter of sampling, is set. What would change the answer and is not
supported is refused by name.
"""

from typing import Any

import msgspec
from attendant.v1 import generation_pb2 as pb

from service.grammars.form import KINDS, Grammar
from service.http.numbers import Count, Whole, decode_number
from service.http.shared.fields import sampling_params_of
from service.http.shared.inputs import refuse
from service.http.shared.output_form import message_fields
from service.http.status import invalid
from service.http.wire.json_faults import of_record

REFUSED = {
    "adapter_id": "adapters are models here, and are named as such",
    "typical_p": "top_p and min_p choose among likely tokens",
    "watermark": "outputs are not marked",
    "src_lang": "the model reads one language",
    "tgt_lang": "the model writes one language",
}
MAX_TOP_TOKENS = 20  # as OpenAI's of chats; the typed API has 50
GRAMMARS = {"json": "json_schema", "regex": "regex"}  # those of the text generation server
_SAMPLING = ("temperature", "top_k", "top_p")
_ALIKE = (
    *("top_k", "top_p", "seed", "stop", "repetition_penalty", "frequency_penalty"),
    *("length_penalty", "no_repeat_ngram_size"),
)


class GenerationParameters(msgspec.Struct, kw_only=True):
    """The parameters of text generation, and of translation beside them."""

    details: bool | None = None
    return_full_text: bool | None = None
    do_sample: bool | None = None
    max_new_tokens: Whole | None = None
    temperature: float | None = None
    top_k: Whole | None = None
    top_p: float | None = None
    seed: Whole | None = None
    stop: list[str] | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float | None = None
    best_of: Count | None = None
    top_n_tokens: Count | None = None
    num_beams: Count | None = None
    num_return_sequences: Count | None = None
    length_penalty: float | None = None
    no_repeat_ngram_size: Whole | None = None
    adapter_id: str | None = None
    decoder_input_details: bool | None = None
    grammar: dict[str, Any] | None = None
    truncate: Count | None = None
    typical_p: float | None = None
    watermark: bool | None = None
    src_lang: str | None = None
    tgt_lang: str | None = None
    generate_parameters: dict[str, Any] | None = None

    def whole(self) -> "GenerationParameters":
        """The parameters with those that are nested in them. Raises `HttpError`."""
        if not self.generate_parameters:
            return self
        fields = msgspec.structs.asdict(self)
        del fields["generate_parameters"]
        present = {name: value for name, value in fields.items() if value is not None}
        try:
            merged = self.generate_parameters | present
            return msgspec.convert(merged, GenerationParameters, dec_hook=decode_number)
        except msgspec.ValidationError as error:
            fault = of_record(error, "generate_parameters")
            raise invalid(fault.text, fault.field) from error

    def check(self, *, is_stream: bool) -> None:
        """Raise `HttpError` for what is not supported."""
        refuse(self, REFUSED, harmless=(1.0,))
        if (self.top_n_tokens or 0) > MAX_TOP_TOKENS:
            raise invalid(
                f"top_n_tokens is {self.top_n_tokens}, expected 1 to {MAX_TOP_TOKENS}",
                "top_n_tokens",
            )
        for name in ("best_of", "num_return_sequences"):
            if is_stream and (getattr(self, name) or 1) > 1:
                raise invalid(f"{name} is more than 1, expected stream to be false", name)
        if 1 < (self.num_beams or 1) < self.num_outputs:
            raise invalid(
                f"num_return_sequences is {self.num_outputs}, expected at most num_beams, "
                f"which is {self.num_beams}",
                "num_return_sequences",
            )
        if self.decoder_input_details and (is_stream or not self.details):
            raise invalid(
                "decoder_input_details is true, expected details to be true and stream false",
                "decoder_input_details",
            )
        if (self.best_of or self.num_outputs) < self.num_outputs:
            raise invalid(
                f"best_of is {self.best_of}, expected at least num_return_sequences, "
                f"which is {self.num_outputs}",
                "best_of",
            )

    @property
    def told_seed(self) -> int | None:
        """The seed, as answers tell it."""
        return None if self.seed is None else int(self.seed)

    @property
    def num_outputs(self) -> int:
        return self.num_return_sequences or 1

    @property
    def field_names(self) -> dict[str, str]:
        """The names here of fields that the typed API calls otherwise."""
        num_samples = "num_return_sequences" if self.num_outputs > 1 else "best_of"
        return {
            "max_tokens": "max_new_tokens",
            "prompt": "inputs",
            "truncate_prompt_tokens": "truncate",
            "n": num_samples,
            "beam_width": "num_beams",
            "logprobs": "top_n_tokens",
            **dict.fromkeys(KINDS, "grammar"),
        }

    def message(self, *, has_logprobs: bool) -> pb.SamplingParams:
        """The message; what it is out of bounds with is refused by the typed API."""
        named: dict[str, Any] = {name: getattr(self, name) for name in _ALIKE}
        named["max_tokens"] = self.max_new_tokens
        named["prompt_logprobs"] = 0 if self.decoder_input_details else None
        named["temperature"] = self._temperature
        named |= message_fields(self._form)
        if has_logprobs:
            named["logprobs"] = self.top_n_tokens or 0
        num_samples = max(self.num_outputs, self.best_of or 1)
        if num_samples > 1:
            named["n"] = num_samples
        if (self.num_beams or 1) > 1:
            named |= {"beam_width": self.num_beams, "temperature": 0.0}
        present = {name: value for name, value in named.items() if value is not None}
        return sampling_params_of(present)

    @property
    def _form(self) -> Grammar | None:
        """The form of the output. Raises `HttpError` and `InvalidArgument`."""
        if self.grammar is None:
            return None
        kind = self.grammar.get("type")
        if kind not in GRAMMARS or set(self.grammar) != {"type", "value"}:
            expected = "expected type to be json or regex, and value"
            raise invalid(f"grammar has other fields or another type, {expected}", "grammar")
        return Grammar.of(GRAMMARS[str(kind)], self.grammar["value"])

    @property
    def _temperature(self) -> float:
        if self.temperature is not None:
            return self.temperature
        samples = self.do_sample or any(getattr(self, name) is not None for name in _SAMPLING)
        return 1.0 if samples else 0.0
