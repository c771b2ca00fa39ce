"""Read the tokenizer of a checkpoint, with padding and truncation switched off.

Knows nothing about models. Batching decides about padding, and the reader of a text decides whether
it may be cut, so a tokenizer that does either by itself would hide both.
"""

from pathlib import Path

from tokenizers import AddedToken, BertWordPieceTokenizer, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.processors import ByteLevel as ByteLevelOffsets

from models.errors import CheckpointError, reason
from models.json_files import read_object

TOKENIZER_FILE = "tokenizer.json"
MAX_TOKENIZER_BYTES = 2**28  # that of 262,144 tokens has 33 MB
VOCABULARY_FILE = "vocab.txt"  # all that BERT checkpoints before 2020 have
BYTE_LEVEL_FILES = ("vocab.json", "merges.txt")  # all that GPT-2 checkpoints before 2020 have
END_OF_TEXT = "<|endoftext|>"


def load_tokenizer(folder: Path, *, is_byte_level: bool = False) -> Tokenizer:
    """The tokenizer of tokenizer.json, else of older files: GPT-2's if `is_byte_level`."""
    path = folder / TOKENIZER_FILE
    if not path.is_file():
        return _from_merges(folder) if is_byte_level else _from_vocabulary(folder)
    return read_tokenizer(path)


def read_tokenizer(path: Path) -> Tokenizer:
    size = path.stat().st_size
    if size > MAX_TOKENIZER_BYTES:
        raise CheckpointError(
            f"{path} has {size} bytes, but must have at most {MAX_TOKENIZER_BYTES}"
        )
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except (KeyboardInterrupt, SystemExit):
        raise
    except (
        BaseException
    ) as error:  # the library raises nothing narrower; its panics are no Exception
        raise CheckpointError(
            f"{path} is not in the format of `tokenizers`: {reason(error)}"
        ) from error
    return without_limits(tokenizer)


def num_ids(tokenizer: Tokenizer) -> int:
    """One more than the largest token id, which is the number of tokens if none is left out."""
    return 1 + max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)


def without_limits(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def cutting_copy(tokenizer: Tokenizer, max_tokens: int) -> Tokenizer:
    """Return a copy that cuts texts to `max_tokens`, special tokens kept and counted."""
    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.enable_truncation(max_tokens)
    return copy


def byte_level(model: BPE, *, add_prefix_space: bool = False) -> Tokenizer:
    """Byte pairs over bytes, as in GPT-2: every text comes back from its tokens as it was."""
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=add_prefix_space)
    tokenizer.post_processor = ByteLevelOffsets(trim_offsets=False)
    tokenizer.decoder = ByteLevelDecoder()
    return tokenizer


def _from_vocabulary(folder: Path) -> Tokenizer:
    path = folder / VOCABULARY_FILE
    if not path.is_file():
        raise _missing(folder)
    settings = read_object(folder / "tokenizer_config.json", optional=True)
    lowercase = bool(settings.get("do_lower_case", True))
    pieces = BertWordPieceTokenizer(str(path), lowercase=lowercase)
    return without_limits(Tokenizer.from_str(pieces.to_str()))


def _from_merges(folder: Path) -> Tokenizer:
    vocabulary, merges = (folder / name for name in BYTE_LEVEL_FILES)
    if not (vocabulary.is_file() and merges.is_file()):
        raise _missing(folder)
    settings = read_object(folder / "tokenizer_config.json", optional=True)
    try:
        model = BPE.from_file(str(vocabulary), str(merges))
    except Exception as error:  # the library raises nothing narrower
        raise CheckpointError(f"{vocabulary} and {merges} do not fit together: {error}") from error
    tokenizer = byte_level(model, add_prefix_space=bool(settings.get("add_prefix_space", False)))
    tokenizer.add_special_tokens([AddedToken(END_OF_TEXT, special=True, normalized=False)])
    return tokenizer


def _missing(folder: Path) -> CheckpointError:
    return CheckpointError(
        f"{folder / TOKENIZER_FILE} is missing: expected the file that a fast tokenizer of "
        "`transformers` writes with save_pretrained"
    )
