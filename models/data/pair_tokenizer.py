"""Train the tokenizer that sources and targets share, and turn texts into rows of token ids.

Bytes, and the pairs of them that are most frequent within words; a digit is always a token of its
own, so that a number is read as it is written and 2021 has no token that says nothing of 2022. The
tokenizer itself ends each text with END: every reader of a source, also the server, gets it whole.

Knows nothing about models.
"""

from collections.abc import Sequence

from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Digits
from tokenizers.pre_tokenizers import Sequence as Steps
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer

from models.data.tokenizer import END_OF_TEXT, byte_level

PADDING, START = "<|padding|>", "<|start|>"
SPECIAL = (PADDING, START, END_OF_TEXT)
PAD_ID, START_ID, END_ID = range(len(SPECIAL))


def train_pair_tokenizer(texts: Sequence[str], vocab_size: int) -> Tokenizer:
    """At most `vocab_size` tokens, the special ones first; fewer where pairs run out."""
    tokenizer = byte_level(BPE())
    tokenizer.pre_tokenizer = Steps(
        [Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]
    )
    trainer = BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL),
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,  # the caller owns the terminal
    )
    tokenizer.train_from_iterator(texts, trainer, length=len(texts))
    tokenizer.post_processor = TemplateProcessing(
        single=f"$A {END_OF_TEXT}", special_tokens=[(END_OF_TEXT, END_ID)]
    )
    return tokenizer
