"""Measure of how well an ELMo separates the meanings of a word.

    python -m models.recipes.senses CHECKPOINT

Asked of sentences of `models/data/generated/homographs.py` that training has not seen. By layer:
cosines of the word's vectors where it means the same and where it does not, and how often the
nearest vector from a sentence of another pattern means the same.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: N occurrences, L layers, D values

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn import functional as F

from models.checkpoints.checkpoint import Checkpoint, load_checkpoint
from models.data.generated.homographs import ASKED, MEANINGS, Occurrence, occurrences

NUM_OCCURRENCES = 400  # of each word
NUMBER_OF = {name: number for number, name in enumerate(chain.from_iterable(MEANINGS.values()))}


@dataclass(frozen=True, slots=True)
class Senses:
    """The figures of one word in one layer."""

    same_cosine: float  # mean over pairs of the same meaning
    other_cosine: float
    nearest_share: float  # of occurrences whose nearest one of another pattern means the same


def vectors_of(checkpoint: Checkpoint, sentences: Sequence[str], word: str) -> Tensor:
    """[N, L + 1, D]: of the word's first occurrence in each sentence."""
    vectors = []
    for encoding in checkpoint.tokenizer.encode_batch(list(sentences)):
        ids = torch.tensor([encoding.ids])
        with torch.inference_mode():
            states = checkpoint.text_network(ids, torch.ones_like(ids))
        vectors.append(states[encoding.tokens.index(word)])
    return torch.stack(vectors)


def cosines_of(vectors_NLD: Tensor) -> Tensor:
    """[L, N, N]."""
    units_LND = F.normalize(vectors_NLD, dim=2).transpose(0, 1)
    return units_LND @ units_LND.transpose(1, 2)


def senses_of(cosines_NN: Tensor, found: Sequence[Occurrence]) -> Senses:
    meanings = torch.tensor([NUMBER_OF[each.meaning] for each in found])
    patterns = [each.template for each in found]
    is_same_NN = meanings[:, None] == meanings
    is_other_pattern_NN = torch.tensor([[a != b for b in patterns] for a in patterns])
    is_pair_NN = ~torch.eye(len(found), dtype=torch.bool)
    nearest = cosines_NN.where(is_other_pattern_NN, -torch.inf).argmax(dim=1)
    return Senses(
        cosines_NN[is_same_NN & is_pair_NN].mean().item(),
        cosines_NN[~is_same_NN].mean().item(),
        (meanings[nearest] == meanings).float().mean().item(),
    )


def main(arguments: list[str]) -> None:
    if len(arguments) != 1:
        sys.exit("usage: python -m models.recipes.senses CHECKPOINT")
    checkpoint = load_checkpoint(arguments[0])
    console = Console()
    table = Table("word", "layer", "same meaning", "other meaning", "nearest means the same")
    for word in MEANINGS:
        found = occurrences(word, NUM_OCCURRENCES)
        sentences = [each.sentence for each in found]
        for layer, cosines in enumerate(cosines_of(vectors_of(checkpoint, sentences, word))):
            senses = senses_of(cosines, found)
            cells = f"{senses.same_cosine:.3f}", f"{senses.other_cosine:.3f}"
            table.add_row(word, str(layer), *cells, f"{senses.nearest_share:.1%}")
    console.print(table)
    for word, meanings in ASKED.items():
        texts = [text for meaning in meanings for text in meaning]
        cosines = cosines_of(vectors_of(checkpoint, texts, word))[-1]
        asked = Table("", *map(str, range(1, len(texts) + 1)), title=f"{word}, last layer")
        for number, (text, row) in enumerate(zip(texts, cosines.tolist(), strict=True), start=1):
            asked.add_row(f"{number} {text}", *(f"{value:.3f}" for value in row))
        console.print(asked)


if __name__ == "__main__":
    main(sys.argv[1:])
