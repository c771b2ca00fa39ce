"""The parameters of text generation, for the record of a call.

Names and defaults are those of Hugging Face's text generation server: the likeliest token at each
step unless `do_sample`, or a parameter of sampling, is set. What would change the answer and is not
supported is refused by name.
"""

from typing import Any

import msgspec

from service.calls.record import names_in
from service.calls.sampling import Sampling
from service.grammars.form import KINDS, Grammar
from service.http.numbers import Count, decode_number
from service.http.shared.inputs import refuse
from service.http.shared.sampled import named_in, parameters_in
from service.http.status import invalid
from service.http.wire.json_faults import of_record

REFUSED = {
    "adapter_id": "adapters are models here, and are named as such",
    "typical_p": "top_p and min_p choose among likely tokens",
    "watermark": "outputs are not marked",
    "src_lang": "the model reads one language",
    "tgt_lang": "the model writes one language",
}
GRAMMARS = {"json": "json_schema", "regex": "regex"}  # those of the text generation server
_SAMPLING = ("temperature", "top_k", "top_p")


class GenerationParameters(parameters_in("tgi"), kw_only=True):  # type: ignore[misc, call-arg]  # a class that is made
    """The parameters of text generation, and of translation beside them."""

    details: bool | None = None
    return_full_text: bool | None = None
    do_sample: bool | None = None
    best_of: Count | None = None
    top_n_tokens: Count | None = None
    num_beams: Count | None = None
    num_return_sequences: Count | None = None
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
        """The names here of fields that the record calls otherwise."""
        return {
            **names_in("tgi", Sampling),
            **({"n": "num_return_sequences"} if self.num_outputs > 1 else {}),
            "prompt": "inputs",
            "truncate_prompt_tokens": "truncate",
            **dict.fromkeys(KINDS, "grammar"),
        }

    def sampling(self, *, has_logprobs: bool, **more: bool) -> Sampling:
        """The record, with `more` parameters. Raises `HttpError` and `InvalidArgument`."""
        named = named_in(self, "tgi") | more
        named["temperature"] = self._temperature
        named["n"] = max(self.num_outputs, self.best_of or 1)
        named["logprobs"] = self.top_n_tokens or 0
        if self.decoder_input_details:
            named["prompt_logprobs"] = 0
        if (form := self._form) is not None:
            named["grammar"] = form
        if named.get("beam_width", 1) > 1:
            named["temperature"] = 0.0
        sampling = Sampling.of(named)
        return sampling if has_logprobs else msgspec.structs.replace(sampling, logprobs=None)

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
            return float(self.temperature)
        samples = self.do_sample or any(getattr(self, name) is not None for name in _SAMPLING)
        return 1.0 if samples else 0.0
