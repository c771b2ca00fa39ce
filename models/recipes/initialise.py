"""Give a network's token vectors what skip-gram knows of words.

Knows nothing about what the network is for. Tokens that are no word of the vocabulary (pieces of
words, punctuation, special tokens) keep what they had.
"""
# ruff: noqa: N806 - suffixes are array layouts: K known words, D values

import torch
from tokenizers import Tokenizer
from torch import nn

from models.checkpoints.checkpoint import Checkpoint
from models.data.vocabulary import SPECIAL
from models.errors import SettingError


def initialise_words(
    embedding: nn.Embedding, tokenizer: Tokenizer, vectors: Checkpoint, deviation: float
) -> int:
    """Set the rows of all tokens that have a word vector; returns how many there are.

    They are scaled to a standard deviation: what is fresh in a network was chosen for one.
    """
    table = vectors.model.state_dict()["words.weight"]
    if table.shape[1] != embedding.embedding_dim:
        limit = f"the network's hidden size, {embedding.embedding_dim}"
        raise SettingError("vector_size", table.shape[1], limit)
    known = {
        tokenizer.token_to_id(word): index
        for word, index in vectors.tokenizer.get_vocab().items()
        if index >= len(SPECIAL) and tokenizer.token_to_id(word) is not None
    }
    if not known:
        return 0
    ids, rows = torch.tensor(list(known)), torch.tensor(list(known.values()))
    with torch.no_grad():
        vectors_KD = table[rows]
        embedding.weight[ids] = vectors_KD * (deviation / vectors_KD.std())
    return len(known)
