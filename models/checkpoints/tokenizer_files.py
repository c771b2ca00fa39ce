"""Files of a tokenizer in a folder without tokenizer.json: of SentencePiece, tiktoken and Mistral.

A file says less than tokenizer.json. What it does not say, and the settings do not either, is taken
as the programs take it that write such files: texts begin with the token of begin that they name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Self

from tokenizers import Tokenizer

from models.checkpoints.file_names import OTHER_TOKENIZERS
from models.checkpoints.tokenizer_settings import TokenizerSettings
from models.data.byte_ranks import BY_DIGIT, BY_THREE_DIGITS, ByteRanks, is_of_tiktoken
from models.data.sentence_piece import SentencePiece
from models.errors import CheckpointError
from models.remarks import remark

TEKKEN = "tekken.json"
BYTES = "byte-level BPE"
# How texts are split before tiktoken's ranks count, which its files do not say, by model_type.
SPLITS: Mapping[str, str] = {
    "llama": BY_THREE_DIGITS,
    **dict.fromkeys(("qwen2", "qwen3"), BY_DIGIT),
}


@dataclass(frozen=True)
class OtherFile:
    """A file that a tokenizer is made of."""

    path: Path

    @classmethod
    def of(cls, folder: Path) -> Self | None:
        """The file of a folder; None where it has none."""
        for pattern in OTHER_TOKENIZERS:
            paths = sorted(path for path in folder.glob(pattern) if path.is_file())
            if paths:
                return cls(paths[-1])
        return None

    @cached_property
    def pieces(self) -> SentencePiece | None:
        """The model of SentencePiece; None for ranks of bytes. Raises `CheckpointError`."""
        if self.path.name == TEKKEN or self.path.suffix == ".tiktoken":
            return None
        return None if is_of_tiktoken(self.path) else SentencePiece.read(self.path)

    @property
    def algorithm(self) -> str:
        """The class of the library's models, or byte-level BPE."""
        if self.pieces is None:
            return BYTES
        return "Unigram" if self.pieces.is_unigram else "BPE"

    def plain(self, model_type: str) -> Tokenizer:
        """The tokenizer as the file alone says it. Raises `CheckpointError`."""
        if self.pieces is not None:
            return self.pieces.tokenizer()
        if self.path.name == TEKKEN:
            ranks = ByteRanks.of_tekken(self.path)
            return ranks.tokenizer(str(ranks.pattern))
        if model_type not in SPLITS:
            raise CheckpointError(
                f"{self.path} does not say how texts are split before its ranks count, and that is "
                f"known for {', '.join(SPLITS)} alone: put tokenizer.json there too"
            )
        return ByteRanks.of_tiktoken(self.path).tokenizer(SPLITS[model_type])

    def completed(self, settings: TokenizerSettings) -> TokenizerSettings:
        """The settings with the special tokens that the file names and they do not."""
        begin, end, unknown = "<s>", "</s>", "<unk>"
        stated = settings.special
        if self.pieces is not None:
            of_file = {"bos": self.pieces.begin, "eos": self.pieces.end}
            of_file["unk"] = self.pieces.unknown
        elif self.path.name == TEKKEN:
            of_file = {"bos": begin, "eos": end, "unk": unknown}
        else:
            of_file = {}
        named = {f"{role}_token": token for role, token in of_file.items() if token is not None}
        values = settings.values
        begins = stated.get("bos_token", named.get("bos_token"))
        if "add_bos_token" not in values and begins is not None:
            remark(
                f"{self.path}: texts begin with {begins}, as tokenizer_config.json does not say "
                "otherwise by add_bos_token"
            )
            values = {**values, "add_bos_token": True}
        return replace(settings, values=values, special={**named, **stated})
