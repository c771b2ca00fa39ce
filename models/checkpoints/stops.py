"""The tokens that end a text: all that the files of a folder name, together.

Files disagree: one lists only the end of a document where each turn of a chat ends with another
token, so that a text would never end. What any of them names ends a text.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from models.checkpoints.chat_templates import TOKENIZER_CONFIG, read_chat
from models.checkpoints.foreign_tokenizer import load_foreign_tokenizer
from models.data.tokenizer import TOKENIZER_FILE
from models.errors import SettingError
from models.json_files import read_object

# The ends of turns that templates of chats write.
TURN_ENDS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<end_of_turn>",
    "<|end|>",
    "<|end_of_text|>",
)


def stop_tokens(folder: Path, values: Mapping[str, Any]) -> tuple[int, ...]:
    """Ids of generation_config.json, config.json, tokenizer and template, in this order.

    Raises `SettingError` for an id that is none.
    """
    generation = read_object(folder / "generation_config.json", optional=True)
    text = values.get("text_config") or {}
    found = [
        *_ids(generation.get("eos_token_id")),
        *_ids(values.get("eos_token_id")),
        *_ids(text.get("eos_token_id")),
        *_ids_of_words(folder),
    ]
    return tuple(dict.fromkeys(found))


def _ids(stated: object) -> list[int]:
    listed = stated if isinstance(stated, list) else [] if stated is None else [stated]
    ids = [each for each in listed if isinstance(each, int) and not isinstance(each, bool)]
    if len(ids) != len(listed):
        raise SettingError("eos_token_id", stated, "a token id or a list of them")
    return ids


def _ids_of_words(folder: Path) -> Iterable[int]:
    if not (folder / TOKENIZER_FILE).is_file():
        return
    tokenizer = load_foreign_tokenizer(folder)
    chat = read_chat(folder)
    settings = read_object(folder / TOKENIZER_CONFIG, optional=True)
    for word in (*_end_of_text(settings), *_ends_in_templates(chat)):
        token = tokenizer.token_to_id(word)
        if token is not None:
            yield token


def _end_of_text(settings: Mapping[str, Any]) -> Iterable[str]:
    stated = settings.get("eos_token")
    word = stated.get("content") if isinstance(stated, dict) else stated
    return (str(word),) if word else ()


def _ends_in_templates(chat: Mapping[str, Any]) -> Iterable[str]:
    texts = [each["template"] for each in chat.get("chat_template", ())]
    return (word for word in TURN_ENDS if any(word in text for text in texts))
