"""Tokenizers of GGUF files, as the library tokenizers has them.

`tokenizer.ggml.model` is gpt2 for byte-level BPE, whose way to split texts `tokenizer.ggml.pre`
names, and llama for SentencePiece, whose merges are those of its scores.
"""

from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.processors import ByteLevel, Sequence, TemplateProcessing

from models.checkpoints.gguf.files import GgufFile
from models.data.byte_ranks import BY_DIGIT, BY_THREE_DIGITS
from models.data.sentence_piece import CONTROL, NORMAL, USER, SentencePiece
from models.errors import CheckpointError, reason, shown

_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LEAD = r"[^\r\n\p{L}\p{N}]?"
_TEKKEN = (
    rf"{_LEAD}{_UPPER}*{_LOWER}+|{_LEAD}{_UPPER}+{_LOWER}*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Patterns by tokenizer.ggml.pre (llama.cpp, src/llama-vocab.cpp).
SPLITS: Mapping[str, str] = {
    **dict.fromkeys(
        ("llama3", "llama-v3", "llama-bpe", "smaug-bpe", "dbrx"),
        BY_THREE_DIGITS,
    ),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), BY_DIGIT),
    "tekken": _TEKKEN,
}
BY_GPT2 = ("gpt-2", "phi-2", "olmo", "mpt", "jina-en")  # split as GPT-2 does
BY_DIGITS = ("smollm", "starcoder", "refact", "codeshell", "command-r")  # each digit alone before
WHOLE_WORDS = ("llama3", "llama-v3", "llama-bpe", "tekken")  # a word of the table is not merged
WITH_BEGIN = (*WHOLE_WORDS, "tekken")  # where the file does not say


def tokenizer_of(file: GgufFile) -> Tokenizer:
    """Raises CheckpointError for a kind of tokenizer that is not known, which it names."""
    keys = {name.removeprefix("tokenizer.ggml."): value for name, value in file.keys.items()}
    kind = keys.get("model")
    builders = {"gpt2": _byte_level, "llama": _sentence_piece}
    if kind not in builders or not keys.get("tokens"):
        raise CheckpointError(
            f"{file.path}: tokenizer.ggml.model is {shown(kind)}, expected gpt2 or llama with "
            "tokens; import the folder of transformers that it was made of"
        )
    try:
        tokenizer = builders[str(kind)](keys, file)
    except CheckpointError:
        raise
    except Exception as error:  # the library raises nothing more precise
        raise CheckpointError(
            f"{file.path}: its tokenizer is not usable: {reason(error)}"
        ) from error
    tokens, types = keys["tokens"], keys.get("token_type", [])
    tokenizer.add_tokens(
        [
            AddedToken(token, normalized=False, special=kind_of == CONTROL)
            for token, kind_of in zip(tokens, types, strict=False)
            if kind_of in (CONTROL, USER)
        ]
    )
    _put_around(tokenizer, keys, is_sentence_piece=kind == "llama")
    return tokenizer


def _byte_level(keys: Mapping[str, Any], file: GgufFile) -> Tokenizer:
    split = str(keys.get("pre", "default"))
    if split in SPLITS:
        pattern = pre_tokenizers.Split(Regex(SPLITS[split]), behavior="isolated")
        before = [pattern, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    elif split in BY_DIGITS:
        digits = pre_tokenizers.Digits(individual_digits=True)
        before = [digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    elif split in BY_GPT2:
        before = [pre_tokenizers.ByteLevel(add_prefix_space=False)]
    else:
        raise CheckpointError(
            f"{file.path}: tokenizer.ggml.pre is {shown(split)}, whose way to split texts is not "
            f"known (known are {', '.join((*SPLITS, *BY_GPT2, *BY_DIGITS))}); import the folder of "
            "transformers that it was made of"
        )
    merges = [tuple(merge.split(" ", 1)) for merge in keys.get("merges", [])]
    vocabulary = {token: index for index, token in enumerate(keys["tokens"])}
    tokenizer = Tokenizer(BPE(vocabulary, merges, ignore_merges=split in WHOLE_WORDS))
    if split == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(before)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentence_piece(keys: Mapping[str, Any], _file: GgufFile) -> Tokenizer:
    tokens, unknown = keys["tokens"], keys.get("unknown_token_id")
    types = keys.get("token_type") or [NORMAL] * len(tokens)
    return SentencePiece(
        tuple(tokens),
        tuple(keys["scores"]),
        tuple(types),
        begins_with_space=keys.get("add_space_prefix", True),
        unknown=None if unknown is None else tokens[unknown],
    ).tokenizer()


def _put_around(tokenizer: Tokenizer, keys: Mapping[str, Any], *, is_sentence_piece: bool) -> None:
    """Put the tokens of begin and end around texts, where the file says so."""
    has_begin = keys.get("add_bos_token", is_sentence_piece or keys.get("pre") in WITH_BEGIN)
    begin = keys.get("bos_token_id") if has_begin else None
    end = keys.get("eos_token_id") if keys.get("add_eos_token", False) else None
    tokens = keys["tokens"]
    around = [(f"{tokens[place]}", int(place)) for place in (begin, end) if place is not None]
    if not around:
        return
    template = [tokens[begin]] if begin is not None else []
    pieces = [*template, "$A", *([tokens[end]] if end is not None else [])]
    put = TemplateProcessing(single=pieces, special_tokens=around)
    tokenizer.post_processor = (
        put if is_sentence_piece else Sequence([ByteLevel(trim_offsets=False), put])
    )
