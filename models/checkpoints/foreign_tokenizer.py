"""The tokenizer of a folder of `transformers`, with the ids that it gives there.

Three cases: a class of CLASSES makes the tokenizer of a vocabulary and of settings; a class that
takes tokenizer.json as it is adds the tokens of the settings to it; any other class is refused by
name. What the settings say of the side that texts are cut on, and of token types of pairs, is
written into the tokenizer itself, so that all that reads texts later follows it.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE, WordPiece
from tokenizers.processors import Sequence

from models.checkpoints.file_names import OTHER_TOKENIZERS
from models.checkpoints.settings_files import SettingsOfTexts, lowered
from models.checkpoints.tokenizer_classes import (
    AS_IT_IS,
    BY_MODEL_TYPE,
    CLASSES,
    IN_PYTHON,
    PASSED_OVER,
    TYPES,
    WITHOUT_RULES,
    Special,
    TokenizerClass,
    around_ends,
)
from models.checkpoints.tokenizer_files import OtherFile
from models.checkpoints.tokenizer_settings import (
    ROLES,
    Token,
    TokenizerSettings,
    Vocabulary,
    str_of,
    vocabulary_in,
)
from models.data.tokenizer import (
    LEFT,
    TOKENIZER_FILE,
    cutting_left,
    read_tokenizer,
    side_of_cuts,
    without_limits,
    without_types,
)
from models.errors import CheckpointError, reason, shown
from models.json_files import fields_of, read_object
from models.remarks import remark

CONFIG_FILE = "config.json"
SAVE_AS_IT_IS = (
    "write its tokenizer once more with transformers: tokenizer = "
    "AutoTokenizer.from_pretrained(folder); PreTrainedTokenizerFast(tokenizer_object="
    "tokenizer.backend_tokenizer, **tokenizer.special_tokens_map).save_pretrained(folder)"
)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The rules of a folder's tokenizer; None for tokenizer.json as it is."""

    rules: TokenizerClass | None
    reads_types: bool = False  # where the files do not say


def load_foreign_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a folder's files, without limits; raises `CheckpointError`."""
    of_texts = SettingsOfTexts.read(folder)
    settings = TokenizerSettings.read(folder, of_texts.of_tokenizer)
    chosen = _chosen(folder, settings)
    with _errors_of(folder):
        if chosen.rules is None:
            tokenizer = _as_it_is(folder, settings)
        else:
            tokenizer = _built(folder, settings, chosen.rules)
    with fields_of(settings.path, settings.values) as values:
        inputs = values.get("model_input_names")
        reads_types = chosen.reads_types if inputs is None else TYPES in list(inputs)
        sides = [values.get(name, "right") for name in ("truncation_side", "padding_side")]
    if any(side not in ("left", "right") for side in sides):
        raise CheckpointError(
            f"{settings.path}: truncation_side and padding_side are {shown(sides[0])} and "
            f"{shown(sides[1])}, but must be left or right"
        )
    side = values.get("truncation_side") or side_of_cuts(tokenizer)
    tokenizer.no_truncation()
    tokenizer = without_limits(lowered(tokenizer, of_texts))
    if not reads_types:
        tokenizer = without_types(tokenizer)
    return cutting_left(tokenizer) if side == LEFT else tokenizer


def _chosen(folder: Path, settings: TokenizerSettings) -> _Chosen:
    """The class that `AutoTokenizer` takes; raises `CheckpointError` for one of no rules here."""
    config = read_object(folder / CONFIG_FILE, optional=True)
    model_type = str(config.get("model_type") or "")
    registered = BY_MODEL_TYPE.get(model_type)
    named = settings.values.get("tokenizer_class") or config.get("tokenizer_class")
    stated = None if named is None else str(named).removesuffix("Fast")
    path = folder / TOKENIZER_FILE
    has_code = bool(settings.values.get("auto_map"))
    if stated is None or (model_type in PASSED_OVER and not has_code):
        name = registered or _class_of_files(folder)
    elif registered in AS_IT_IS and stated != registered and not has_code:
        name = AS_IT_IS[0]
    else:
        name = stated
    if name == "LlamaTokenizer" and path.is_file() and b'"ByteLevel"' in path.read_bytes():
        name = AS_IT_IS[0]
    if name not in CLASSES:
        _check_as_it_is(settings.path, name, has_code=has_code)
    rules = CLASSES.get(name)
    if rules is not None:
        path, algorithm = _algorithm(folder, rules)
        if algorithm != rules.model.__name__:
            remark(
                f"{path} holds a tokenizer of {algorithm}, and {name} is one of "
                f"{rules.model.__name__}: it is taken as it is"
            )
            return _Chosen(None, rules.reads_types)
    return _Chosen(rules, rules is not None and rules.reads_types)


def _check_as_it_is(path: Path, name: str, *, has_code: bool) -> None:
    """Raise `CheckpointError` for a class that makes other tokens than those of tokenizer.json."""
    if name in IN_PYTHON:
        raise CheckpointError(
            f"{path}: tokenizer_class is {shown(name)}, which cuts texts by code in Python that no "
            f"{TOKENIZER_FILE} holds: it is not supported"
        )
    if name in WITHOUT_RULES:
        raise CheckpointError(
            f"{path}: tokenizer_class is {shown(name)}, whose rules are not known here: "
            f"{SAVE_AS_IT_IS}"
        )
    if has_code and name not in AS_IT_IS:
        raise CheckpointError(
            f"{path}: tokenizer_class is {shown(name)}, which is code of the folder's own "
            f"(auto_map) and is not run: {SAVE_AS_IT_IS}"
        )


def _class_of_files(folder: Path) -> str:
    """The class for a folder that names neither class nor network."""
    names = ("BertTokenizer", "GPT2Tokenizer") if not (folder / TOKENIZER_FILE).is_file() else ()
    for name in names:
        if all((folder / file).is_file() for file in CLASSES[name].files):
            return name
    return AS_IT_IS[0]


def _algorithm(folder: Path, rules: TokenizerClass) -> tuple[Path, str]:
    """The file of the folder's tokenizer, and what it is one of."""
    path = folder / TOKENIZER_FILE
    if path.is_file():
        return path, type(read_tokenizer(path).model).__name__
    other = None if _has_files(folder, rules) else OtherFile.of(folder)
    return (path, rules.model.__name__) if other is None else (other.path, other.algorithm)


def _has_files(folder: Path, rules: TokenizerClass) -> bool:
    return bool(rules.files) and all((folder / name).is_file() for name in rules.files)


@contextmanager
def _errors_of(folder: Path) -> Iterator[None]:
    """Turn what the library raises, which is nothing narrower, into `CheckpointError`."""
    try:
        yield
    except (CheckpointError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # its panics are no Exception
        raise CheckpointError(f"{folder}: its files make no tokenizer: {reason(error)}") from error


def _as_it_is(folder: Path, settings: TokenizerSettings) -> Tokenizer:
    path = folder / TOKENIZER_FILE
    other = None if path.is_file() else OtherFile.of(folder)
    if other is not None:
        settings = other.completed(settings)
        model_type = read_object(folder / CONFIG_FILE, optional=True).get("model_type")
        tokenizer = other.plain(str(model_type))
    elif path.is_file():
        tokenizer = read_tokenizer(path, keeps_limits=True)
    else:
        raise _missing(folder)
    named = {role: token for role, token in settings.special.items() if token is not None}
    _add_tokens(tokenizer, settings, _in_order(named), settings.further or ())
    if other is not None:
        special = {role: str_of(token) for role, token in named.items()}
        around = around_ends(tokenizer, special, settings)
        offsets = tokenizer.post_processor
        tokenizer.post_processor = Sequence([offsets, around]) if offsets else around
    return tokenizer


def _built(folder: Path, settings: TokenizerSettings, rules: TokenizerClass) -> Tokenizer:
    """The tokenizer by the rules of its class."""
    path = folder / TOKENIZER_FILE
    of_file = read_tokenizer(path) if path.is_file() else None
    other = None if of_file is not None or _has_files(folder, rules) else OtherFile.of(folder)
    pieces = None if other is None else other.pieces
    if other is not None and rules.surround is None:
        settings = other.completed(settings)
    named = _roles(settings, rules)
    special = {role: str_of(token) for role, token in named.items()}
    _check_roles(folder, rules, special)
    if of_file is not None:
        words = vocabulary_in(path)
    elif pieces is not None:
        words = rules.vocabulary(pieces, settings, special)
    else:
        words = _vocabulary_of_files(folder, rules)
    tokenizer = rules.build(words, settings, special)
    if pieces is not None:
        tokenizer.add_tokens(pieces.added)
    if of_file is not None:
        tokenizer.post_processor = of_file.post_processor
        cut = read_tokenizer(path, keeps_limits=True).truncation
        if cut is not None:
            tokenizer.enable_truncation(**cut)
    further = rules.further(settings) if settings.further is None else settings.further
    _add_tokens(tokenizer, settings, _in_order(named), further)
    if rules.surround is not None:
        tokenizer.post_processor = rules.surround(tokenizer, special, settings)
    elif of_file is None:
        tokenizer.post_processor = around_ends(tokenizer, special, settings)
    if rules.adds_special_again:
        tokenizer.add_tokens(
            [AddedToken(each, special=True) for each in dict.fromkeys(special.values())]
        )
    return tokenizer


def _roles(settings: TokenizerSettings, rules: TokenizerClass) -> dict[str, Token]:
    """The special tokens by role: those of the settings, else the class's own.

    Where the class's own has flags, as a mask that takes the space before it, one that the settings
    merely spell has them too.
    """
    named: dict[str, Token] = {}
    for role in dict.fromkeys((*rules.special, *settings.special)):
        default = rules.special.get(role)
        token = settings.special.get(role, default)
        if isinstance(default, AddedToken) and isinstance(token, str):
            token = AddedToken(token, lstrip=default.lstrip, special=default.special)
        if token is not None:
            named[role] = token
    return named


def _in_order(named: Mapping[str, Token]) -> dict[str, Token]:
    """The tokens by role, in the order in which new ones get their ids."""
    roles = dict.fromkeys((*(role for role in ROLES if role in named), *named))
    return {role: named[role] for role in roles}


def _check_roles(folder: Path, rules: TokenizerClass, special: Special) -> None:
    """Raise `CheckpointError` where a token is stated to be none that the class puts around."""
    needed = {"bos_token", "eos_token", "cls_token", "sep_token"} & set(rules.special)
    for role in sorted(needed if rules.surround is not None else ()):
        if role not in special:
            raise CheckpointError(
                f"{folder}: {role} is null, but its tokenizer puts it around texts: name a token"
            )


def _add_tokens(
    tokenizer: Tokenizer,
    settings: TokenizerSettings,
    named: Mapping[str, Token],
    further: tuple[Token, ...],
) -> None:
    """Add the tokens of the settings in the order of `transformers`, which gives them their ids."""
    new: list[Token] = list(settings.added.values())
    known = {each.content for each in tokenizer.get_added_tokens_decoder().values()}
    known |= {str_of(each) for each in new}
    for token in (*named.values(), *further):
        if str_of(token) not in known:
            new.append(token)
            known.add(str_of(token))
    spelled = {str_of(each) for each in named.values()}
    tokens = []
    for each in new:
        token = AddedToken(each, special=True) if isinstance(each, str) else each
        if not token.special and token.content in spelled:
            token.special = True
        tokens.append(token)
    tokenizer.add_tokens(tokens)


def _vocabulary_of_files(folder: Path, rules: TokenizerClass) -> Vocabulary:
    """The vocabulary of the files that folders had before tokenizer.json."""
    paths = [folder / name for name in rules.files]
    if not _has_files(folder, rules):
        raise _missing(folder)
    if rules.model is WordPiece:
        return Vocabulary(WordPiece.read_file(str(paths[0])))
    try:
        pieces, merges = BPE.read_file(*map(str, paths))
        BPE(pieces, merges)
    except Exception as error:  # the library raises nothing narrower
        raise CheckpointError(f"{paths[0]} and {paths[1]} do not fit together: {error}") from error
    return Vocabulary(pieces, merges)


def _missing(folder: Path) -> CheckpointError:
    return CheckpointError(
        f"{folder / TOKENIZER_FILE} is missing: expected the file that a fast tokenizer of "
        "`transformers` writes with save_pretrained, or one of those of SentencePiece, tiktoken or "
        f"Mistral ({', '.join(OTHER_TOKENIZERS)})"
    )
