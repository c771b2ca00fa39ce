"""The form of an output as OpenAI's API and vLLM's additions have it, for the typed API.

`response_format` is OpenAI's; `structured_outputs`, and `guided_...` before it, are vLLM's. A field
that would change the form and is not known is refused by name: none is ignored.
"""

from typing import Any
from urllib.parse import quote

import msgspec

from service.errors import InvalidArgument
from service.grammars.form import VLLM_NAMES, Grammar, schemas_of, take_grammar
from service.grammars.schema_forms import unenforced_formats
from service.http.shared.peer_fields import unsupported
from service.http.status import Headers, invalid

UNENFORCED = b"x-attendant-not-enforced"
MAX_NAMES, MAX_NAME = 16, 64  # of formats, and characters of each
PLAIN = "-._~+/:"  # beside letters and digits, what is in a header as it is
ANY_OBJECT = {"type": "object"}
FORMS = "expected text, json_object or json_schema"
# Other servers' names of fields: what vLLM's `structured_outputs` calls them.
SPELLINGS = {
    **{f"guided_{name}": name for name in VLLM_NAMES},  # vLLM's older ones
    "guided_json_object": "json_object",
    "json_schema": "json",  # llama.cpp's and SGLang's
    "regex": "regex",  # SGLang's
    "grammar": "grammar",  # llama.cpp's, where it is no GBNF
}
FIELDS = ("response_format", "structured_outputs", *SPELLINGS)
OFTEN_EMPTY = ("grammar", "json_schema", "regex")  # of clients that always send them
GBNF = "::="  # what no grammar in Lark has behind the name of a rule


class SchemaFormat(msgspec.Struct):
    """A JSON schema; that it is not strict changes nothing, as outputs keep to it."""

    name: str = ""
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct):
    """The form of the output."""

    type: str
    json_schema: SchemaFormat | None = None
    schema: dict[str, Any] | None = None  # of a json_object, as llama.cpp has it


class FormFields(msgspec.Struct, kw_only=True):
    """The fields that completions and chat completions share."""

    response_format: ResponseFormat | None = None
    # vLLM's
    structured_outputs: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None
    guided_json_object: bool | None = None
    guided_whitespace_pattern: str | None = None
    # SGLang's and llama.cpp's
    json_schema: Any = None
    regex: Any = None
    grammar: Any = None

    @property
    def form_field(self) -> str:
        """The name of the field that says the form; empty where none does."""
        return next((name for name in FIELDS if self._value(name) is not None), "")

    def output_grammar(self) -> Grammar | None:
        """The form; None where the output is any text. Raises `HttpError`."""
        if self.guided_whitespace_pattern is not None:
            raise unsupported("guided_whitespace_pattern", "spaces in JSON are as Python has them")
        named = [name for name in FIELDS if self._value(name) is not None]
        if len(named) > 1:
            raise invalid(f"{named[1]} is set beside {named[0]}, expected one of them", named[1])
        if not named:
            return None
        (name,) = named
        self._check_dialect(name)
        try:
            return take_grammar({"structured_outputs": self._value(name)})
        except InvalidArgument as error:
            names = {error.field: name} if error.field else {}
            raise invalid(str(error.named(names, {})), name) from error

    def _value(self, name: str) -> object:  # what vLLM takes in `structured_outputs`
        if name == "response_format":
            return _of_format(self.response_format)
        value = getattr(self, name)
        if name not in SPELLINGS:
            return value
        is_absent = value is None or value is False or (value == "" and name in OFTEN_EMPTY)
        return None if is_absent else {SPELLINGS[name]: value}

    def _check_dialect(self, name: str) -> None:
        """Raise `HttpError` for a grammar of llama.cpp's kind, or xgrammar's."""
        value = self._value(name)
        text = value.get("grammar") if isinstance(value, dict) else None
        if isinstance(text, str) and GBNF in text:
            raise unsupported(
                name, "it is in GBNF, expected llguidance's Lark, or a JSON schema or expression"
            )


def unenforced(grammar: Grammar | None) -> Headers:
    """The header that names the formats of texts to which an output's form does not hold it."""
    schemas = schemas_of(grammar) if grammar is not None else []
    names = dict.fromkeys(name for _, schema in schemas for name in unenforced_formats(schema))
    plain = [quote(name[:MAX_NAME], safe=PLAIN) for name in [*names][:MAX_NAMES]]
    text = ", ".join(f"format={name}" for name in plain)
    return ((UNENFORCED, text.encode()),) if text else ()


def _of_format(form: ResponseFormat | None) -> dict[str, Any] | None:
    if form is None:
        return None
    if form.type == "json_object":
        return {"json": ANY_OBJECT if form.schema is None else form.schema}
    if form.schema is not None:
        raise invalid(
            f"response_format.schema is set beside the type '{form.type[:64]}', expected "
            "json_object, or the schema within json_schema",
            "response_format",
        )
    if form.type == "text":
        return None
    if form.type != "json_schema":
        raise unsupported("response_format", f"its type is '{form.type[:64]}', {FORMS}")
    if form.json_schema is None or form.json_schema.schema is None:
        raise invalid("response_format.json_schema.schema is missing", "response_format")
    return {"json": form.json_schema.schema}
