"""The settings of a folder's tokenizer, put together of its files as `transformers` does.

tokenizer_config.json comes first. Where it lists no added tokens, as those of before 2023,
special_tokens_map.json replaces what it says of special tokens, and added_tokens.json and
tokenizer.json have the tokens that were added. Builds nothing: `foreign_tokenizer.py` does.
"""

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tokenizers import AddedToken

from models.checkpoints.chat_templates import TOKENIZER_CONFIG, TOKENS_FILE
from models.checkpoints.setting_keys import check_keys
from models.data.tokenizer import MAX_TOKENIZER_BYTES, TOKENIZER_FILE
from models.errors import CheckpointError, shown
from models.json_files import fields_of, read_object

ADDED_FILE = "added_tokens.json"
ROLES = tuple(
    f"{role}_token" for role in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
)  # in the order in which tokens that are new get their ids
FURTHER, OLDER_FURTHER = "extra_special_tokens", "additional_special_tokens"
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
Token = str | AddedToken


@dataclass(frozen=True, slots=True)
class TokenizerSettings:
    """Settings of a folder's files, special tokens apart from the rest."""

    path: Path  # of tokenizer_config.json, whether it is there or not
    values: Mapping[str, Any]
    special: Mapping[str, Token | None]  # by role; None where a role is stated to be empty
    further: tuple[Token, ...] | None  # special tokens without a role; None where none are stated
    added: Mapping[int, AddedToken]  # by the ids that the files give them

    @classmethod
    def read(cls, folder: Path, changes: Mapping[str, Any]) -> Self:
        """The settings of a folder, of which `changes` replace some. Raises `CheckpointError`."""
        path = folder / TOKENIZER_CONFIG
        values = {**read_object(path, optional=True), **changes}
        check_keys(path, values)
        has_file = (folder / TOKENIZER_FILE).is_file()
        with fields_of(path, values):
            if not values.get(FURTHER) and OLDER_FURTHER in values:
                values[FURTHER] = values.pop(OLDER_FURTHER)
            if "added_tokens_decoder" in values:
                stated = values["added_tokens_decoder"].items()
                added = {int(index): token_of(token, path) for index, token in stated}
            else:
                values |= _special_tokens_map(folder, values)
                added = _added_tokens(folder, values)
                if has_file:
                    added |= _tokens_of_file(folder / TOKENIZER_FILE)
            by_text = {token.content: token for token in added.values()}
            special = dict(_special_tokens(values, by_text, path))
            further = values.get(FURTHER, values.get(OLDER_FURTHER))
            if further is not None and not isinstance(further, list | dict):
                raise CheckpointError(f"{path}: {FURTHER} is {shown(further)}, but must be a list")
            own = values.get("model_specific_special_tokens") or {}
            special |= {str(name): _token(each, path) for name, each in own.items()}
            if isinstance(further, dict):
                special |= {str(name): _token(each, path) for name, each in further.items()}
                further = None
            tokens = None if further is None else tuple(_token(each, path) for each in further)
        return cls(path, values, special, tokens, dict(sorted(added.items())))

    def flag(self, name: str, default: bool) -> bool:
        """A setting that is true or false. Raises `CheckpointError`."""
        value = self.choice(name)
        return value if name in self.values and value is not None else default

    def choice(self, name: str) -> bool | None:
        """A setting that is true, false or null, as it is when absent. Raises `CheckpointError`."""
        value = self.values.get(name)
        if not isinstance(value, bool | None):
            raise CheckpointError(
                f"{self.path}: {name} is {shown(value)}, but must be true or false"
            )
        return value


def token_of(stated: Any, path: Path) -> AddedToken:  # noqa: ANN401 - of a file
    """An added token of its fields. Raises `CheckpointError`."""
    if not isinstance(stated, Mapping) or not isinstance(stated.get("content"), str):
        raise CheckpointError(f"{path}: {shown(stated)} must be an added token, with its content")
    flags = {name: stated[name] for name in FLAGS if name in stated}
    wrong = [name for name, value in flags.items() if not isinstance(value, bool)]
    if wrong:
        raise CheckpointError(
            f"{path}: {wrong[0]} of the token {shown(stated['content'])} is "
            f"{shown(flags[wrong[0]])}, but must be true or false"
        )
    try:
        return AddedToken(stated["content"], **flags)
    except Exception as error:  # the library raises nothing narrower
        raise CheckpointError(f"{path}: {shown(stated)} is no token: {error}") from error


def _token(stated: Any, path: Path) -> Token:  # noqa: ANN401 - of a file
    return stated if isinstance(stated, str | AddedToken) else token_of(stated, path)


def _special_tokens(
    values: Mapping[str, Any], by_text: Mapping[str, AddedToken], path: Path
) -> Iterable[tuple[str, Token | None]]:
    """The tokens by role: those that all tokenizers have, and any key of a model's own."""
    for role in ROLES:
        if role in values:
            token = None if values[role] is None else _token(values[role], path)
            yield role, None if token is None else by_text.get(str_of(token), token)
    for role, stated in values.items():
        is_token = isinstance(stated, str | AddedToken)
        if role not in ROLES and role.endswith("_token") and is_token:
            yield role, stated


def str_of(token: Token) -> str:
    """The spelling of a token."""
    return token.content if isinstance(token, AddedToken) else token


def _special_tokens_map(folder: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    path = folder / TOKENS_FILE
    replaced: dict[str, Any] = {}
    for key, stated in read_object(path, optional=True).items():
        if key in (FURTHER, OLDER_FURTHER) and isinstance(stated, list):
            tokens = [_special(each, path) for each in stated]
            older = list(values.get(FURTHER) or []) if key == FURTHER else []
            known = {str_of(_token(each, path)) for each in older}
            replaced[key] = older + [each for each in tokens if str_of(each) not in known]
        elif stated is None or isinstance(stated, str | dict):
            replaced[key] = _special(stated, path) if isinstance(stated, dict) else stated
        else:
            raise CheckpointError(f"{path}: {key} is {shown(stated)}, but must be a token")
    return replaced


def _special(stated: Any, path: Path) -> Token:  # noqa: ANN401 - of a file
    if isinstance(stated, str):
        return stated
    return token_of({**dict(stated), "special": True}, path)


def _added_tokens(folder: Path, values: Mapping[str, Any]) -> dict[int, AddedToken]:
    path = folder / ADDED_FILE
    special = {str_of(_token(values[role], path)) for role in ROLES if values.get(role)}
    further = values.get(FURTHER) or []
    special |= {str_of(_token(each, path)) for each in further if not isinstance(further, dict)}
    added = {}
    with fields_of(path, read_object(path, optional=True)) as tokens:
        for text, index in tokens.items():
            is_special = text in special
            added[int(index)] = AddedToken(text, normalized=not is_special, special=is_special)
    return added


def _tokens_of_file(path: Path) -> dict[int, AddedToken]:
    """The added tokens of tokenizer.json, by id."""
    with fields_of(path, read_tokenizer_json(path)) as values:
        listed = values.get("added_tokens") or []
        return {int(each["id"]): token_of(each, path) for each in listed}


def read_tokenizer_json(path: Path) -> dict[str, Any]:
    """The object of tokenizer.json, which may be larger than other settings."""
    return read_object(path, most=MAX_TOKENIZER_BYTES)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tokens that a class builds upon."""

    pieces: Any  # ids by token; of Unigram pairs of a token and its score
    merges: list[tuple[str, str]] = field(default_factory=list)
    charsmap: bytes | None = None  # SentencePiece's normalization


def vocabulary_in(path: Path) -> Vocabulary:
    """The vocabulary of tokenizer.json."""
    with fields_of(path, read_tokenizer_json(path)) as values:
        model = values["model"]
        pieces = model["vocab"]
        if isinstance(pieces, list):
            pieces = [(str(piece), float(score)) for piece, score in pieces]
        merges = []
        for merge in model.get("merges") or []:
            first, second = merge.split(" ") if isinstance(merge, str) else merge
            merges.append((str(first), str(second)))
        return Vocabulary(pieces, merges, _charsmap(values.get("normalizer")))


def _charsmap(normalizer: Any) -> bytes | None:  # noqa: ANN401 - of a file
    """SentencePiece's own normalization, if it is the step or among the steps."""
    steps = [] if normalizer is None else normalizer.get("normalizers", [normalizer])
    for step in steps:
        if step.get("type") == "Precompiled" and "precompiled_charsmap" in step:
            return base64.b64decode(step["precompiled_charsmap"])
    return None
