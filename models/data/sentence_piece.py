"""Models of SentencePiece as tokenizers: their pieces and scores, from a file or from elsewhere.

A file is a message of protobuf, of which the fields that are needed here are described below, so
that neither the package sentencepiece nor the one that its messages need is. BPE becomes merges in
the order of scores, Unigram stays what it is. Knows nothing about families of networks.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE, Unigram

from models.errors import CheckpointError

MAX_FILE_BYTES = 2**26  # that of 262,144 pieces has 5 MB
MAX_CHARACTERS = 2**10  # of a piece; the time for merges grows with the square of its length
SPACE = "\u2581"  # as SentencePiece spells it
UNIGRAM, PAIRS = 1, 2  # of TrainerSpec.ModelType
NORMAL, UNKNOWN, CONTROL, USER, BYTE = 1, 2, 3, 4, 6  # of SentencePiece.Type


@dataclass(frozen=True, slots=True)
class SentencePiece:
    """Pieces in the order of their ids, and what is done to a text before it is cut into them."""

    pieces: tuple[str, ...]
    scores: tuple[float, ...]
    types: tuple[int, ...]
    is_unigram: bool = False
    has_bytes: bool = True  # whether a character without a piece is written as its bytes
    begins_with_space: bool = True
    joins_spaces: bool = False  # takes them from the ends, and leaves one of several
    charsmap: bytes = b""
    unknown: str | None = None
    begin: str | None = None
    end: str | None = None

    @classmethod
    def read(cls, path: Path) -> Self:
        """The model of a file. Raises `CheckpointError`."""
        stored = _message_of(path)
        trainer, normalizer = stored.trainer_spec, stored.normalizer_spec
        pieces = tuple(each.piece for each in stored.pieces)
        if trainer.model_type not in (UNIGRAM, PAIRS):
            raise CheckpointError(
                f"{path}: model_type is {trainer.model_type}, but must be {UNIGRAM} (unigram) or "
                f"{PAIRS} (BPE); write tokenizer.json with another tool and put it there"
            )
        longest = max(map(len, pieces))
        if longest > MAX_CHARACTERS:
            raise CheckpointError(
                f"{path} has a piece of {longest} characters, but must have at most "
                f"{MAX_CHARACTERS}"
            )
        of_ids = {
            name: pieces[index] if 0 <= index < len(pieces) else None
            for name, index in (
                ("unknown", trainer.unk_id),
                ("begin", trainer.bos_id),
                ("end", trainer.eos_id),
            )
        }
        return cls(
            pieces,
            tuple(each.score for each in stored.pieces),
            tuple(each.type for each in stored.pieces),
            trainer.model_type == UNIGRAM,
            trainer.byte_fallback,
            normalizer.add_dummy_prefix,
            normalizer.remove_extra_whitespaces,
            normalizer.precompiled_charsmap,
            **of_ids,
        )

    @property
    def scored(self) -> list[tuple[str, float]]:
        return list(zip(self.pieces, self.scores, strict=True))

    @property
    def ids(self) -> dict[str, int]:
        return {piece: index for index, piece in enumerate(self.pieces)}

    @property
    def merges(self) -> list[tuple[str, str]]:
        """Pairs of pieces that make a piece, those of the best score first."""
        ids = self.ids
        ordered: list[tuple[float, int, int, tuple[str, str]]] = []
        for index, (piece, score) in enumerate(self.scored):
            for place in range(1, len(piece)):
                left, right = piece[:place], piece[place:]
                if left in ids and right in ids:
                    ordered.append((-score, index, place, (left, right)))
        return [pair for *_, pair in sorted(ordered)]

    @property
    def added(self) -> list[AddedToken]:
        """Pieces that a text is first searched for: control tokens, and those of users."""
        return [
            AddedToken(piece, normalized=False, special=kind == CONTROL)
            for piece, kind in zip(self.pieces, self.types, strict=True)
            if kind in (CONTROL, USER)
        ]

    @property
    def steps(self) -> list[normalizers.Normalizer]:
        """Changes to a text before it is cut."""
        steps: list[normalizers.Normalizer] = []
        if self.charsmap:
            steps.append(normalizers.Precompiled(self.charsmap))
        if self.joins_spaces:
            steps += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
        return steps

    def tokenizer(self) -> Tokenizer:
        """The tokenizer as the model itself says it, without tokens around texts."""
        tokenizer = self._of_unigrams() if self.is_unigram else self._of_pairs()
        tokenizer.add_tokens(self.added)
        return tokenizer

    def _of_unigrams(self) -> Tokenizer:
        unk_id = None if self.unknown is None else self.pieces.index(self.unknown)
        tokenizer = Tokenizer(Unigram(self.scored, unk_id=unk_id, byte_fallback=self.has_bytes))
        tokenizer.normalizer = normalizers.Sequence(self.steps)
        scheme = "always" if self.begins_with_space else "never"
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme=scheme)
        tokenizer.decoder = self._decoder()
        return tokenizer

    def _of_pairs(self) -> Tokenizer:
        tokenizer = Tokenizer(
            BPE(
                self.ids,
                self.merges,
                unk_token=self.unknown,
                fuse_unk=True,
                byte_fallback=self.has_bytes,
            )
        )
        before = [normalizers.Prepend(SPACE)] if self.begins_with_space else []
        tokenizer.normalizer = normalizers.Sequence(
            [*self.steps, *before, normalizers.Replace(" ", SPACE)]
        )
        tokenizer.decoder = self._decoder()
        return tokenizer

    def _decoder(self) -> decoders.Decoder:
        back = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
        strip = [decoders.Strip(" ", 1, 0)] if self.begins_with_space else []
        return decoders.Sequence([*back, *strip])


def _message_of(path: Path) -> Any:  # noqa: ANN401 - a message of a class that is made below
    size = path.stat().st_size
    if size > MAX_FILE_BYTES:
        raise CheckpointError(f"{path} has {size} bytes, but must have at most {MAX_FILE_BYTES}")
    model = model_class()()
    try:
        model.ParseFromString(path.read_bytes())
    except DecodeError as error:
        raise CheckpointError(f"{path} is no model of SentencePiece: {error}") from error
    if not model.pieces:
        raise CheckpointError(f"{path} is no model of SentencePiece: it has no pieces")
    return model


@cache
def model_class() -> Any:  # noqa: ANN401 - a class of messages
    """ModelProto of sentencepiece_model.proto, with the fields that are read here."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="attendant/sentencepiece.proto", package="attendant.sentencepiece", syntax="proto2"
    )
    messages: dict[str, tuple[tuple[str, int, int, str], ...]] = {
        "Piece": (
            ("piece", 1, field.TYPE_STRING, ""),
            ("score", 2, field.TYPE_FLOAT, "0"),
            ("type", 3, field.TYPE_INT32, str(NORMAL)),
        ),
        "Trainer": (
            ("model_type", 3, field.TYPE_INT32, str(UNIGRAM)),
            ("byte_fallback", 35, field.TYPE_BOOL, "false"),
            ("unk_id", 40, field.TYPE_INT32, "0"),
            ("bos_id", 41, field.TYPE_INT32, "1"),
            ("eos_id", 42, field.TYPE_INT32, "2"),
        ),
        "Normalizer": (
            ("precompiled_charsmap", 2, field.TYPE_BYTES, ""),
            ("add_dummy_prefix", 3, field.TYPE_BOOL, "true"),
            ("remove_extra_whitespaces", 4, field.TYPE_BOOL, "true"),
        ),
        "Model": (
            ("pieces", 1, field.TYPE_MESSAGE, "Piece"),
            ("trainer_spec", 2, field.TYPE_MESSAGE, "Trainer"),
            ("normalizer_spec", 3, field.TYPE_MESSAGE, "Normalizer"),
        ),
    }
    for message_name, described in messages.items():
        message = file.message_type.add(name=message_name)
        for name, number, kind, more in described:
            is_message = kind == field.TYPE_MESSAGE
            added = message.field.add(
                name=name, number=number, type=kind, label=field.LABEL_OPTIONAL
            )
            if name == "pieces":
                added.label = field.LABEL_REPEATED
            if is_message:
                added.type_name = f".{file.package}.{more}"
            elif more:
                added.default_value = more
    pool: Any = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.Model"))
