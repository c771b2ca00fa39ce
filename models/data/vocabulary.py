"""Words of plain text: which there are, and the tokenizer that gives each of them an id.

Knows nothing about vectors. The most frequent word has the lowest id after the special tokens.
"""

from collections.abc import Sequence

from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import NFC, Lowercase
from tokenizers.normalizers import Sequence as Normalizers
from tokenizers.pre_tokenizers import Split, Whitespace
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import WordLevelTrainer

from models.errors import CheckpointError, DatasetError

PADDING, UNKNOWN, START, END = SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
WORD = r"\w+(?:['\u2019]\w+)*"  # an apostrophe may stand within one
MAX_WORDS = 1_000_000


def train_word_tokenizer(
    texts: Sequence[str],
    min_count: int,
    max_words: int = MAX_WORDS,
    *,
    keeps_punctuation: bool = False,
) -> Tokenizer:
    """Lower-case words that occur `min_count` times, the most frequent ones if there are too many.

    A text becomes `[CLS] word word ... [SEP]`, so that none has no tokens; all else is `[UNK]`.
    """
    tokenizer = Tokenizer(WordLevel({}, unk_token=UNKNOWN))
    tokenizer.normalizer = Normalizers([NFC(), Lowercase()])
    tokenizer.pre_tokenizer = (
        Whitespace() if keeps_punctuation else Split(Regex(WORD), "removed", invert=True)
    )
    trainer = WordLevelTrainer(
        vocab_size=max_words + len(SPECIAL),
        min_frequency=min_count,
        special_tokens=list(SPECIAL),
        show_progress=False,  # the caller owns the terminal
    )
    tokenizer.train_from_iterator(texts, trainer, length=len(texts))
    if tokenizer.get_vocab_size() < len(SPECIAL) + 2:
        raise DatasetError(
            f"fewer than 2 words occur {min_count} times (min_count) in the text to train on"
        )
    tokenizer.post_processor = TemplateProcessing(
        single=f"{START} $A {END}",
        pair=f"{START} $A {END} $B:1 {END}:1",
        special_tokens=[(token, SPECIAL.index(token)) for token in (START, END)],
    )
    return tokenizer


def id_of(tokenizer: Tokenizer, token: str) -> int:
    """The id of a special token, or CheckpointError where a tokenizer from elsewhere has none."""
    found: int | None = tokenizer.token_to_id(token)
    if found is None:
        raise CheckpointError(
            f"the tokenizer has no token {token}, as one that is trained here has"
        )
    return found


def words_of(tokenizer: Tokenizer) -> list[str]:
    """All tokens by id, the special ones first."""
    vocabulary = tokenizer.get_vocab()
    return sorted(vocabulary, key=vocabulary.__getitem__)
