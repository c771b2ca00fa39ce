"""The three files of a Marian's tokenizer: two models of SentencePiece and one vocabulary."""

import json
from collections.abc import Sequence
from pathlib import Path

from models.data.sentence_piece import UNIGRAM, model_class

CONTROL, UNKNOWN = 3, 2  # of SentencePiece.Type
LETTERS = "abehosu"
SOURCE = ["\u2581", *LETTERS, "\u2581a", "\u2581house", "ab", "us"]
TARGET = ["\u2581", *"abdehusä", "\u2581das", "\u2581haus", "\u2581ä"]
PIECES = ["</s>", "<unk>", *dict.fromkeys((*TARGET, *SOURCE)), ">>fra<<", "<pad>"]


def write_marian_files(
    folder: Path, pieces: Sequence[str] = PIECES, model_type: int = UNIGRAM
) -> None:
    """A source of `SOURCE`'s pieces, the longer the likelier."""
    for name, own in (("source", SOURCE), ("target", TARGET)):
        model = model_class()()
        model.trainer_spec.model_type = model_type
        for special, kind in (("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)):
            model.pieces.add(piece=special, type=kind)
        for piece in own:
            model.pieces.add(piece=piece, score=-6.0 / len(piece))
        (folder / f"{name}.spm").write_bytes(model.SerializeToString())
    numbered = {piece: place for place, piece in enumerate(pieces)}
    (folder / "vocab.json").write_text(json.dumps(numbered))
