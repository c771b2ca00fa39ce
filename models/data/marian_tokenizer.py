"""The tokenizer of an encoder-decoder's folder: tokenizer.json, or made of Marian's three files.

Marian's folders have no tokenizer.json, and `transformers` writes none: source.spm and target.spm
are models of SentencePiece, and vocab.json numbers the pieces of both. A source is cut by
source.spm; an output is joined by the pieces' own spelling, for which target.spm is not needed.

One table of pieces serves both. Those of target.spm alone are so unlikely, the longer the more,
that a source has one only where source.spm has no piece for a character, as `transformers` looks up
a piece that is unknown there in vocab.json too. Otherwise than there, the token of a language is
one anywhere in a source, not only at its beginning.
"""

from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import Unigram
from tokenizers.processors import TemplateProcessing

from models.data.sentence_piece import NORMAL, SPACE, USER, SentencePiece
from models.data.tokenizer import TOKENIZER_FILE, load_tokenizer
from models.errors import CheckpointError
from models.json_files import read_object

SOURCE_FILE, VOCABULARY_FILE, SETTINGS_FILE = "source.spm", "vocab.json", "tokenizer_config.json"
# Of each character of a piece of target.spm alone: below the sum of any pieces of a source that it
# could stand for, as a piece's is about -20 at least, and the longest have tens of characters.
ELSEWHERE_SCORE = -10_000.0
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
    model = SentencePiece.read(path)
    if not model.is_unigram:
        raise CheckpointError(
            f"{path} is no unigram model; write {TOKENIZER_FILE} with another tool and put it there"
        )
    pieces = _pieces_by_id(vocabulary_path)
    scores = {
        piece: score
        for (piece, score), kind in zip(model.scored, model.types, strict=True)
        if kind in (NORMAL, USER)
    }
    table = [(piece, scores.get(piece, ELSEWHERE_SCORE * len(piece))) for piece in pieces]
    for name in (END, UNKNOWN):
        if name not in pieces:
            raise CheckpointError(f"{vocabulary_path} has no {name}")
    tokenizer = Tokenizer(Unigram(table, unk_id=pieces.index(UNKNOWN), byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence(model.steps)
    scheme = "always" if model.begins_with_space else "never"
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


def _pieces_by_id(path: Path) -> list[str]:
    """The pieces in the order of their ids."""
    numbered = read_object(path)
    pieces = sorted(numbered, key=lambda piece: (str(type(numbered[piece])), numbered[piece]))
    if [numbered[piece] for piece in pieces] != list(range(len(pieces))):
        raise CheckpointError(f"{path}: the ids of {len(pieces)} pieces are not 0, 1, 2, ...")
    return pieces
