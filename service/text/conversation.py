"""The templates of a model that make a prompt of a conversation.

A version's folder has the files that Hugging Face's tokenizers have: `chat_template.jinja`, or
`chat_template` in `tokenizer_config.json`, and more by their names in `additional_chat_templates/`.
Nothing is rendered here: a template is a program, and `text/template_process.py` runs it.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from service.calls.conversation import Conversation
from service.errors import InvalidArgument, LoadError
from service.families.call_forms import CALL_FORMS, call_form_in, declares_tools
from service.families.chosen import chosen
from service.families.thoughts import form_in

TOKENIZER_CONFIG, TEMPLATE_FILE = "tokenizer_config.json", "chat_template.jinja"
MORE_TEMPLATES, SUFFIX = "additional_chat_templates", ".jinja"
DEFAULT, TOOL_USE = "default", "tool_use"  # names of templates
MAX_TEMPLATE_BYTES = 2**20  # published ones have 0.1 to 20 KB
MAX_CONFIG_BYTES = 2**26  # it may list every added token
MAX_TEMPLATES = 16
CHAT_FILES = {  # of a version's folder, and the most bytes of each
    TOKENIZER_CONFIG: MAX_CONFIG_BYTES,
    TEMPLATE_FILE: MAX_TEMPLATE_BYTES,
    f"{MORE_TEMPLATES}/*{SUFFIX}": MAX_TEMPLATE_BYTES,
}
SYSTEM, DEVELOPER = "system", "developer"


@dataclass(frozen=True, slots=True)
class ChatTemplates:
    """The templates of one version by name, and the special tokens that they may write."""

    texts: Mapping[str, str]
    special_tokens: Mapping[str, str]  # as `bos_token`
    own_forms: tuple[str, str] = ("", "")  # of calls and thoughts, in place of those found

    @classmethod
    def of(cls, files: Mapping[str, str]) -> Self | None:
        """Chat templates of `CHAT_FILES`; None where there are none. Raises `LoadError`."""
        config = _config_of(files.get(TOKENIZER_CONFIG, "{}"))
        texts = texts_of(config.get("chat_template"))
        for path, text in files.items():
            if path != TOKENIZER_CONFIG:
                name = path.rpartition("/")[2].removesuffix(SUFFIX)
                texts[DEFAULT if path == TEMPLATE_FILE else name] = text
        if not texts:
            return None
        if len(texts) > MAX_TEMPLATES or sum(map(len, texts.values())) > MAX_TEMPLATE_BYTES:
            raise LoadError(
                f"the chat templates are {len(texts)} of {sum(map(len, texts.values()))} "
                f"characters in all, expected at most {MAX_TEMPLATES} of {MAX_TEMPLATE_BYTES}"
            )
        return cls(texts, _special_tokens_of(config))

    @property
    def tool_form(self) -> str:
        """The form of calls of functions, by its family's name; empty where there is none."""
        text = self.texts.get(TOOL_USE, self.texts.get(DEFAULT, ""))
        return chosen(self.own_forms[:1], call_form_in(text)) if declares_tools(text) else ""

    def call_marks(self, conversation: Conversation) -> tuple[str, ...]:
        """The markers of a call even within thoughts; none where none can be made."""
        form = CALL_FORMS.get(self.tool_form) if conversation.tools else None
        return form.call_marks if form is not None else ()

    @property
    def thought_form(self) -> str:
        """The form of thoughts, by its name in `thoughts.FORMS`; empty where there is none."""
        return chosen(self.own_forms[1:], form_in(self.texts.values()))

    def choose(self, conversation: Conversation) -> str:
        """The name of the template for a conversation. Raises `InvalidArgument`."""
        name = self._name_for(conversation)
        for variable in conversation.needed_variables:
            if not re.search(rf"\b{re.escape(variable)}\b", self.texts[name]):
                raise InvalidArgument(
                    f"{variable} is not supported: the model's chat template does not read it",
                    variable,
                )
        return name

    def _name_for(self, conversation: Conversation) -> str:
        if conversation.tools and TOOL_USE in self.texts:
            return TOOL_USE
        if DEFAULT not in self.texts:
            raise InvalidArgument(
                f"the model has no chat template 'default', but {', '.join(sorted(self.texts))}"
            )
        return DEFAULT

    def messages_for(self, name: str, conversation: Conversation) -> list[dict[str, Any]]:
        """The messages with roles that the template knows: developer is a newer name of system."""
        knows_developer = DEVELOPER in self.texts[name]
        messages = [dict(message) for message in conversation.messages]
        for message in messages:
            if message.get("role") == DEVELOPER and not knows_developer:
                message["role"] = SYSTEM
        return messages


def _config_of(text: str) -> dict[str, Any]:
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LoadError(f"{TOKENIZER_CONFIG}: {error}") from error
    if not isinstance(config, dict):
        raise LoadError(f"{TOKENIZER_CONFIG}: expected an object")
    return config


def texts_of(value: object) -> dict[str, str]:
    """The templates of `chat_template`: one text, or a list of texts with names."""
    if value is None:
        return {}
    if isinstance(value, str):
        return {DEFAULT: value}
    if not isinstance(value, list):
        raise _odd_template()
    try:
        texts = {each["name"]: each["template"] for each in value}
    except (TypeError, KeyError) as error:
        raise _odd_template() from error
    if not all(isinstance(part, str) for pair in texts.items() for part in pair):
        raise _odd_template()
    return texts


def _odd_template() -> LoadError:
    return LoadError(
        f"{TOKENIZER_CONFIG}: chat_template is neither a text nor a list of objects with name and "
        "template"
    )


def _special_tokens_of(config: Mapping[str, Any]) -> dict[str, str]:
    tokens = {}
    for name, value in config.items():
        text = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(text, str):
            tokens[name] = text
    return tokens
