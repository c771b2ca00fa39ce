"""How a recurrent network is made from settings: symbols between spaces are its tokens."""

from tokenizers import Tokenizer

from models.seq2seq.recurrent import RecurrentConfig, RecurrentSeq2Seq
from models.seq2seq.settings import Seq2SeqSettings
from models.seq2seq.tokens import END, PAD, START, symbols_tokenizer
from models.seq2seq.training import Training


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


TRAINING = Training(lambda pairs, _: symbols_tokenizer(pairs), build)
