"""Read the tokenizer of a checkpoint, with padding and truncation switched off.

Knows nothing about models. Who batches decides about padding, and who takes a text decides whether
it may be cut, so a tokenizer that does either by itself would hide both.
"""

from pathlib import Path

from tokenizers import BertWordPieceTokenizer, Tokenizer

from models.errors import CheckpointError
from models.json_files import read_object

TOKENIZER_FILE = "tokenizer.json"
VOCABULARY_FILE = "vocab.txt"  # all that BERT checkpoints before 2020 have


def load_tokenizer(folder: Path) -> Tokenizer:
    path = folder / TOKENIZER_FILE
    if not path.is_file():
        return _from_vocabulary(folder)
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise CheckpointError(f"{path} is not in the format of `tokenizers`: {error}") from error
    return without_limits(tokenizer)


def without_limits(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def cutting_copy(tokenizer: Tokenizer, max_tokens: int) -> Tokenizer:
    """Return a copy that cuts texts to `max_tokens`, special tokens kept and counted."""
    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.enable_truncation(max_tokens)
    return copy


def _from_vocabulary(folder: Path) -> Tokenizer:
    path = folder / VOCABULARY_FILE
    if not path.is_file():
        raise CheckpointError(
            f"{folder / TOKENIZER_FILE} is missing: expected the file that a fast tokenizer of "
            "`transformers` writes with save_pretrained"
        )
    settings = read_object(folder / "tokenizer_config.json", optional=True)
    lowercase = bool(settings.get("do_lower_case", True))
    pieces = BertWordPieceTokenizer(str(path), lowercase=lowercase)
    return without_limits(Tokenizer.from_str(pieces.to_str()))
