"""The families that the help of an import names are those that are read."""

from commands.folders.import_command import import_checkpoint
from models.checkpoints.decoder_families import FAMILIES as DECODERS
from models.checkpoints.decoder_families import WITH_TEXT_CONFIG
from models.checkpoints.families import FAMILIES
from models.checkpoints.gpt2 import GPT2
from models.checkpoints.known import KNOWN, known_names, known_types
from models.checkpoints.seq2seq import SEQ2SEQ
from models.checkpoints.vit import ARCHITECTURES


def test_every_family_that_is_read_has_a_name_for_people() -> None:
    types = known_types()
    assert len(set(types)) == len(types)
    read = {*FAMILIES, GPT2, *DECODERS, *WITH_TEXT_CONFIG, *SEQ2SEQ, *ARCHITECTURES}
    assert set(types) == read


def test_the_help_of_an_import_has_all_names() -> None:
    names = known_names()
    assert names.startswith("an encoder (BERT, RoBERTa, XLM-R, ")
    assert names.endswith(" or a classifier of images (ViT, DeiT)")
    assert all(name in names for family in KNOWN.values() for name in family)
    source = import_checkpoint.__signature__.parameters["source"]  # type: ignore[attr-defined]
    assert names in source.default.help
