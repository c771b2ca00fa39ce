"""Makes recurrent networks from settings: symbols between spaces are their tokens."""

import torch
from tokenizers import Tokenizer

from models.data.tokens import END, PAD, START, symbols_tokenizer
from models.networks.recurrent import RecurrentConfig, RecurrentSeq2Seq
from models.recipes.seq2seq import Training
from models.recipes.seq2seq_settings import Seq2SeqSettings

ONE_THREAD_SIZE = (
    128  # values per token up to which one thread is faster: recurrent.md of the lectures
)


def build(settings: Seq2SeqSettings, tokenizer: Tokenizer, max_positions: int) -> RecurrentSeq2Seq:
    vocabulary = tokenizer.get_vocab()
    config = RecurrentConfig(
        vocab_size=len(vocabulary),
        hidden_size=settings.hidden_size,
        attention=settings.attention,
        form=settings.form,
        max_positions=max_positions,
        pad_token_id=vocabulary[PAD],
        start_token_id=vocabulary[START],
        end_token_id=vocabulary[END],
    )
    return RecurrentSeq2Seq(config)


def num_threads(settings: Seq2SeqSettings) -> int:
    """One for a small network: a step's products are too small to share among threads."""
    return 1 if settings.hidden_size <= ONE_THREAD_SIZE else torch.get_num_threads()


TRAINING = Training(lambda pairs, _: symbols_tokenizer(pairs), build, num_threads=num_threads)
