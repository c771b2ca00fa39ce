"""The tokenizer of an encoder-decoder's folder: tokenizer.json, or made of Marian's three files.

Marian's folders have no tokenizer.json, and `transformers` writes none: source.spm and target.spm
are models of SentencePiece, and vocab.json numbers the pieces of both. A source is cut by
source.spm; an output is joined by the pieces' own spelling, for which target.spm is not needed.

One table of pieces serves both. Those of target.spm alone are so unlikely, the longer the more,
that a source has one only where source.spm has no piece for a character, as `transformers` looks up
a piece that is unknown there in vocab.json too. Otherwise than there, the token of a language is
one anywhere in a source, not only at its beginning.
"""

from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import Unigram
from tokenizers.processors import TemplateProcessing

from models.data.tokenizer import TOKENIZER_FILE, load_tokenizer
from models.errors import CheckpointError
from models.json_files import read_object

SOURCE_FILE, VOCABULARY_FILE, SETTINGS_FILE = "source.spm", "vocab.json", "tokenizer_config.json"
MAX_SOURCE_BYTES = 2**26  # that of 32,000 pieces has 0.8 MB
SPACE = "\u2581"  # as SentencePiece spells it
# Of each character of a piece of target.spm alone: below the sum of any pieces of a source that it
# could stand for, as a piece's is about -20 at least, and the longest have tens of characters.
ELSEWHERE_SCORE = -10_000.0
UNIGRAM, NORMAL = 1, 1  # of TrainerSpec.ModelType and SentencePiece.Type
USER_DEFINED = 4
END, UNKNOWN, PAD = "</s>", "<unk>", "<pad>"


def load_source_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of sources and outputs; raises `CheckpointError` where there is none."""
    if (folder / TOKENIZER_FILE).is_file():
        return load_tokenizer(folder)
    if (folder / SOURCE_FILE).is_file():
        return marian_tokenizer(folder)
    raise CheckpointError(
        f"{folder / TOKENIZER_FILE} is missing, and {SOURCE_FILE} too: write the first with "
        "`transformers`, AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
    )


def marian_tokenizer(folder: Path) -> Tokenizer:
    """Source.spm's pieces by the numbers of vocab.json; raises `CheckpointError`."""
    path, vocabulary_path = folder / SOURCE_FILE, folder / VOCABULARY_FILE
    settings = read_object(folder / SETTINGS_FILE, optional=True)
    if settings.get("separate_vocabs"):
        raise CheckpointError(
            f"{folder / SETTINGS_FILE}: separate_vocabs is true, but only one vocabulary for "
            "source and target is supported"
        )
    model = _read_model(path)
    if model.trainer_spec.model_type != UNIGRAM:
        raise CheckpointError(
            f"{path} is no unigram model; write {TOKENIZER_FILE} with another tool and put it there"
        )
    pieces = _pieces_by_id(vocabulary_path)
    scores = {
        piece.piece: piece.score for piece in model.pieces if piece.type in (NORMAL, USER_DEFINED)
    }
    table = [(piece, scores.get(piece, ELSEWHERE_SCORE * len(piece))) for piece in pieces]
    for name in (END, UNKNOWN):
        if name not in pieces:
            raise CheckpointError(f"{vocabulary_path} has no {name}")
    tokenizer = Tokenizer(Unigram(table, unk_id=pieces.index(UNKNOWN), byte_fallback=False))
    tokenizer.normalizer = _normalizer(model.normalizer_spec)
    scheme = "always" if model.normalizer_spec.add_dummy_prefix else "never"
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme=scheme)
    tokenizer.decoder = decoders.Metaspace(SPACE, prepend_scheme=scheme)
    tokenizer.add_special_tokens([name for name in (END, UNKNOWN, PAD) if name in pieces])
    # What says the language of the output, where there are several: `>>fra<<` before the source.
    languages = [piece for piece in pieces if piece.startswith(">>") and piece.endswith("<<")]
    tokenizer.add_tokens([AddedToken(each, normalized=False) for each in languages])
    tokenizer.post_processor = TemplateProcessing(
        single=f"$A {END}", pair=f"$A $B {END}", special_tokens=[(END, pieces.index(END))]
    )
    return tokenizer


def _normalizer(spec: Any) -> normalizers.Normalizer:  # noqa: ANN401 - made below
    """SentencePiece's changes to a text before it is cut."""
    steps: list[normalizers.Normalizer] = []
    if spec.precompiled_charsmap:
        steps.append(normalizers.Precompiled(spec.precompiled_charsmap))
    if spec.remove_extra_whitespaces:
        steps += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    return normalizers.Sequence(steps)


def _pieces_by_id(path: Path) -> list[str]:
    """The pieces in the order of their ids."""
    numbered = read_object(path)
    pieces = sorted(numbered, key=lambda piece: (str(type(numbered[piece])), numbered[piece]))
    if [numbered[piece] for piece in pieces] != list(range(len(pieces))):
        raise CheckpointError(f"{path}: the ids of {len(pieces)} pieces are not 0, 1, 2, ...")
    return pieces


def _read_model(path: Path) -> Any:  # noqa: ANN401 - a message of a class that is made below
    size = path.stat().st_size
    if size > MAX_SOURCE_BYTES:
        raise CheckpointError(f"{path} has {size} bytes, but must have at most {MAX_SOURCE_BYTES}")
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
        "Trainer": (("model_type", 3, field.TYPE_INT32, str(UNIGRAM)),),
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
