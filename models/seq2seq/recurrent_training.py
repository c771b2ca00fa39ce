"""How a recurrent network is made from settings: symbols between spaces are its tokens."""

from tokenizers import Tokenizer

from models.seq2seq.recurrent import RecurrentConfig, RecurrentSeq2Seq
from models.seq2seq.settings import Seq2SeqSettings
from models.seq2seq.tokens import END, PAD, START, symbols_tokenizer
from models.seq2seq.training import Training


def build(settings: Seq2SeqSettings, tokenizer: Tokenizer, max_positions: int) -> RecurrentSeq2Seq:
    config = RecurrentConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=settings.hidden_size,
        attention=settings.attention,
        max_positions=max_positions,
        pad_token_id=tokenizer.token_to_id(PAD),
        start_token_id=tokenizer.token_to_id(START),
        end_token_id=tokenizer.token_to_id(END),
    )
    return RecurrentSeq2Seq(config)


TRAINING = Training(lambda pairs, _: symbols_tokenizer(pairs), build)
