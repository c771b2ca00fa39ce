"""Files of ranks of bytes: those of tiktoken, and tekken.json of Mistral's own programs.

Both are byte-level BPE: the rank of a sequence of bytes says how early it is merged. A tekken.json
has the pattern that texts are split by and its special tokens, a file of tiktoken has neither.
Knows nothing about families of networks.
"""

import base64
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tokenizers import AddedToken, Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.processors import ByteLevel

from models.errors import CheckpointError, reason
from models.json_files import check_whole, fields_of, read_object

MAX_FILE_BYTES = 2**27  # that of 131,072 tokens has 20 MB
MAX_TOKENS = 2**24
MAX_TOKEN_BYTES = 2**10  # the time for merges grows with the square of a token's length
LINE = re.compile(rb"[A-Za-z0-9+/=]+ \d+\r?\n")
# Splits of texts before ranks count: digits in threes as Llama 3 has them, and each alone as Qwen.
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_MARKS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
BY_THREE_DIGITS, BY_DIGIT = rf"{_WORDS}\p{{N}}{{1,3}}{_MARKS}", rf"{_WORDS}\p{{N}}{_MARKS}"
# Of files from before tekken.json listed its own, as mistral_common has them.
FIRST_SPECIAL = (
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]"),
    *("[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
    "[TOOL_CONTENT]",
)


@dataclass(frozen=True, slots=True)
class ByteRanks:
    """Sequences of bytes by rank, behind the special tokens where these come first."""

    ranked: tuple[bytes, ...]
    special: tuple[str, ...] = ()
    pattern: str | None = None

    @classmethod
    def of_tiktoken(cls, path: Path) -> Self:
        """The ranks of lines of base64 and a number. Raises `CheckpointError`."""
        ranks: dict[int, bytes] = {}
        try:
            for line in _limited(path).splitlines():
                if line:
                    encoded, rank = line.split()
                    ranks[int(rank)] = base64.b64decode(encoded)
        except ValueError as error:
            raise CheckpointError(f"{path} is no file of tiktoken: {reason(error)}") from error
        if not ranks or sorted(ranks) != list(range(len(ranks))):
            raise CheckpointError(f"{path}: the ranks of {len(ranks)} tokens are not 0, 1, 2, ...")
        _check_lengths(ranks.values(), path)
        return cls(tuple(ranks[rank] for rank in range(len(ranks))))

    @classmethod
    def of_tekken(cls, path: Path) -> Self:
        """The tokens of a tekken.json. Raises `CheckpointError`."""
        with fields_of(path, read_object(path, most=MAX_FILE_BYTES)) as values:
            config = values["config"]
            listed = values.get("special_tokens")
            special = list(FIRST_SPECIAL)
            if listed is not None:
                numbered = {int(each["rank"]): str(each["token_str"]) for each in listed}
                special = [numbered[rank] for rank in range(len(numbered))]
            count = config.get("default_num_special_tokens") or len(special)
            num_special = check_whole("default_num_special_tokens", count, len(special), MAX_TOKENS)
            special += [f"<SPECIAL_{number}>" for number in range(len(special), num_special)]
            tokens = [base64.b64decode(each["token_bytes"]) for each in values["vocab"]]
            size = config.get("default_vocab_size")
            if size is not None:
                least = len(special) + 1
                size = check_whole("default_vocab_size", size, least, MAX_TOKENS)
                tokens = tokens[: size - len(special)]
            _check_lengths(tokens, path)
            return cls(tuple(tokens), tuple(special), str(config["pattern"]))

    def tokenizer(self, pattern: str) -> Tokenizer:
        """Byte-level BPE by these ranks, for texts that are split by the pattern."""
        spelled = [_spelled(token) for token in self.ranked]
        vocabulary = {token: index for index, token in enumerate((*self.special, *spelled))}
        merges = _merges(self.ranked)
        tokenizer = Tokenizer(BPE(vocabulary, merges, fuse_unk=False, ignore_merges=True))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.post_processor = ByteLevel(trim_offsets=False)
        tokenizer.add_special_tokens(
            [AddedToken(token, normalized=False, special=True) for token in self.special]
        )
        return tokenizer


def is_of_tiktoken(path: Path) -> bool:
    """Whether a file begins as those of tiktoken do."""
    with path.open("rb") as file:
        return LINE.fullmatch(file.readline(4096)) is not None


def _limited(path: Path) -> bytes:
    size = path.stat().st_size
    if size > MAX_FILE_BYTES:
        raise CheckpointError(f"{path} has {size} bytes, but must have at most {MAX_FILE_BYTES}")
    return path.read_bytes()


def _check_lengths(tokens: Iterable[bytes], path: Path) -> None:
    longest = max(map(len, tokens), default=0)
    if longest > MAX_TOKEN_BYTES:
        raise CheckpointError(
            f"{path} has a token of {longest} bytes, but must have at most {MAX_TOKEN_BYTES}"
        )


def _merges(ranked: Sequence[bytes]) -> list[tuple[str, str]]:
    """Pairs that make a token, in the order of its rank, and of the ranks of its parts."""
    ranks = {token: rank for rank, token in enumerate(ranked)}
    merges = []
    for token in ranked:
        cuts = [(token[:place], token[place:]) for place in range(1, len(token))]
        known = [pair for pair in cuts if pair[0] in ranks and pair[1] in ranks]
        known.sort(key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
        merges += [(_spelled(left), _spelled(right)) for left, right in known]
    return merges


def _byte_characters() -> dict[int, str]:
    """The character that byte-level BPE writes for each byte: itself, or one above all bytes."""
    printed = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printed]
    above = {byte: chr(256 + number) for number, byte in enumerate(others)}
    return {byte: chr(byte) for byte in printed} | above


_CHARACTERS = _byte_characters()


def _spelled(token: bytes) -> str:
    return "".join(_CHARACTERS[byte] for byte in token)
