"""The chat templates of a tokenizer's folder, and the special tokens that they write.

Hugging Face keeps them in several files; here they are one object, in the form of the oldest:
`tokenizer_config.json`, which the server and transformers read. Nothing is rendered.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from models.errors import CheckpointError, shown
from models.json_files import read_object

TOKENIZER_CONFIG = "tokenizer_config.json"
TOKENS_FILE = "special_tokens_map.json"  # what the configuration has today
TEMPLATE_FILE, MORE_TEMPLATES = "chat_template.jinja", "additional_chat_templates"
CHAT_FILES = (TOKENIZER_CONFIG, TOKENS_FILE, TEMPLATE_FILE, f"{MORE_TEMPLATES}/*.jinja")
DEFAULT = "default"
# The server's: service/text/conversation.py.
MAX_TEMPLATES, MAX_TEMPLATE_CHARACTERS = 16, 2**20


def read_chat(folder: Path) -> dict[str, Any]:
    """`chat_template`, a list of names and templates, and special tokens; {} without a template."""
    config = read_object(folder / TOKENIZER_CONFIG, optional=True)
    templates = _templates_of(config.get("chat_template"), folder / TOKENIZER_CONFIG)
    files = {path.stem: path for path in sorted((folder / MORE_TEMPLATES).glob("*.jinja"))}
    if (folder / TEMPLATE_FILE).is_file():
        files[DEFAULT] = folder / TEMPLATE_FILE
    for name, path in files.items():
        try:
            templates[name] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise CheckpointError(f"{path} is not UTF-8: {error}") from error
    if not templates:
        return {}
    _check_templates(templates, folder)
    tokens = read_object(folder / TOKENS_FILE, optional=True) | config
    return {
        "chat_template": [
            {"name": name, "template": text} for name, text in sorted(templates.items())
        ],
        **dict(sorted(_special_tokens_of(tokens, folder).items())),
    }


def _check_templates(templates: Mapping[str, str], folder: Path) -> None:
    """Raise `CheckpointError` for more than the server takes, and for what is no Unicode."""
    size = sum(map(len, templates.values()))
    if len(templates) > MAX_TEMPLATES or size > MAX_TEMPLATE_CHARACTERS:
        raise CheckpointError(
            f"{folder} has {len(templates)} chat templates of {size} characters in all, but must "
            f"have at most {MAX_TEMPLATES} of {MAX_TEMPLATE_CHARACTERS}"
        )
    for name, text in templates.items():
        if any("\ud800" <= character <= "\udfff" for character in name + text):
            raise CheckpointError(
                f"{folder}: chat_template {shown(name)} has half of a surrogate pair"
            )


def end_of_turn(chat: Mapping[str, Any]) -> str | None:
    """The token that ends an answer, as spelled; None where no template is, or none is named."""
    token: str | None = chat.get("eos_token")
    return token


def _templates_of(value: Any, path: Path) -> dict[str, str]:  # noqa: ANN401 - any JSON
    if value is None:
        return {}
    if isinstance(value, str):
        return {DEFAULT: value}
    try:
        return {str(each["name"]): str(each["template"]) for each in value}
    except (TypeError, KeyError) as error:
        raise CheckpointError(
            f"{path}: chat_template is neither a text nor a list of names and templates"
        ) from error


def _special_tokens_of(values: Mapping[str, Any], folder: Path) -> dict[str, str]:
    tokens = {}
    for name, value in values.items():
        text = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(text, str):
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise CheckpointError(
                    f"{folder}: {name} is {shown(text)}, but must be Unicode"
                ) from error
            tokens[name] = text
    return tokens
