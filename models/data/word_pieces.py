"""Train a WordPiece tokenizer on texts, and find the special tokens in one that is given.

Knows nothing about models. Words that are rare come in pieces, of which all but the first begin
with ##; a text is set as `[CLS] text [SEP]` and a pair as `[CLS] one [SEP] other [SEP]`, whose
second part has token type 1.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from tokenizers import Tokenizer
from tokenizers.decoders import WordPiece as WordPieceDecoder
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import WordPieceTrainer

from models.errors import CheckpointError

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # ids 0 to 4
UNKNOWN = SPECIAL[1]
MAX_LETTERS = 1_000  # rarer characters are unknown; as for BERT


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """Ids of the tokens that are no words."""

    pad: int
    first: int
    separator: int
    mask: int
    all: frozenset[int]  # the unknown token included

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Self:
        """Raises CheckpointError naming the one that is missing."""
        pad, _, first, separator, mask = found = [_id(tokenizer, token) for token in SPECIAL]
        return cls(pad, first, separator, mask, frozenset(found))


def _id(tokenizer: Tokenizer, token: str) -> int:
    found: int | None = tokenizer.token_to_id(token)
    if found is None:
        raise CheckpointError(f"the tokenizer has no token {token}, which BERT's pretraining needs")
    return found


def train_word_pieces(
    documents: Sequence[str], vocab_size: int, *, lowercase: bool = True
) -> Tokenizer:
    """At most `vocab_size` tokens, unless letters alone are more; fewer where texts have fewer.

    The same texts give the same tokens, without which no run could be resumed. The library alone
    numbers the pieces of one letter in an order that changes from run to run, and with it which
    of two equally frequent pairs comes first; so it is given their numbers.
    """
    tokenizer = _untrained(lowercase, WordPiece(unk_token=UNKNOWN))
    letters = _letters(documents, tokenizer)
    trainer = WordPieceTrainer(
        vocab_size=vocab_size,
        special_tokens=[*SPECIAL, *(f"##{letter}" for letter in letters)],
        initial_alphabet=letters,
        limit_alphabet=len(letters),
        show_progress=False,  # the caller owns the terminal
    )
    tokenizer.train_from_iterator(documents, trainer, length=len(documents))
    vocabulary = dict(sorted(tokenizer.get_vocab().items(), key=lambda item: item[1]))
    trained = _untrained(lowercase, WordPiece(vocabulary, unk_token=UNKNOWN))
    trained.add_special_tokens(list(SPECIAL))
    special = SpecialTokens.of(trained)
    trained.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", special.first), ("[SEP]", special.separator)],
    )
    return trained


def _untrained(lowercase: bool, model: WordPiece) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.decoder = WordPieceDecoder()
    return tokenizer


def _letters(documents: Sequence[str], tokenizer: Tokenizer) -> list[str]:
    """The commonest characters of words, at most `MAX_LETTERS`, in the order of their codes."""
    counts = Counter[str]()
    for document in documents:
        counts.update(tokenizer.normalizer.normalize_str(document))
    ranked = sorted(counts, key=lambda letter: (-counts[letter], letter))
    return sorted(letter for letter in ranked[:MAX_LETTERS] if not letter.isspace())
