"""Train a byte-level tokenizer on texts, and turn texts into one stream of tokens.

Knows nothing about models. All 256 bytes are tokens, so that every text has tokens and comes back
from them as it was; the rest of the vocabulary are the pairs that were most frequent. The end of
text is a token that no text can contain: where it is spelt out, it is ordinary characters.
"""

from collections.abc import Iterator, Sequence

import torch
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer
from torch import Tensor

from models.data.tokenizer import END_OF_TEXT, byte_level
from models.errors import CheckpointError

ENCODED_DOCUMENTS = 256  # encoded at once, by all cores


def train_tokenizer(documents: Sequence[str], vocab_size: int) -> Tokenizer:
    """At most `vocab_size` tokens, fewer if the texts have fewer different pairs."""
    tokenizer = byte_level(BPE())
    trainer = BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,  # the caller owns the terminal
    )
    tokenizer.train_from_iterator(documents, trainer, length=len(documents))
    return tokenizer


def end_of_text_id(tokenizer: Tokenizer) -> int:
    found: int | None = tokenizer.token_to_id(END_OF_TEXT)
    if found is None:
        raise CheckpointError(f"the tokenizer has no token {END_OF_TEXT}, which parts documents")
    return found


def token_stream(documents: Sequence[str], tokenizer: Tokenizer, end: int | None = None) -> Tensor:
    """[T] of all documents one after the other, each followed by the end of text; int32."""
    plain = Tokenizer.from_str(tokenizer.to_str())
    plain.encode_special_tokens = True
    end = end_of_text_id(tokenizer) if end is None else end
    return torch.cat(list(_encoded(documents, plain, end)))


def _encoded(documents: Sequence[str], plain: Tokenizer, end: int) -> Iterator[Tensor]:
    yield torch.empty(0, dtype=torch.int32)
    for start in range(0, len(documents), ENCODED_DOCUMENTS):
        some = list(documents[start : start + ENCODED_DOCUMENTS])
        for encoding in plain.encode_batch_fast(some, add_special_tokens=False):
            yield torch.tensor([*encoding.ids, end], dtype=torch.int32)
