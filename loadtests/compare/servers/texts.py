"""Token ids as texts: every server tokenizes by itself, and all get exactly the ids that are meant.

Rows of the comparison are random token ids, which no trained tokenizer gives back. So servers have
a WordPiece tokenizer, with all the steps of BERT's, whose words are `t` and the id.
"""

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing

from loadtests.compare.models import BERT_VOCABULARY

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
FIRST, LAST = SPECIAL.index("[CLS]"), SPECIAL.index("[SEP]")


def text_of(row: Sequence[int]) -> str:
    """The text whose token ids are `row`, which begins with [CLS] and ends with [SEP]."""
    if len(row) < 2 or (row[0], row[-1]) != (FIRST, LAST) or min(row[1:-1], default=5) < 5:
        raise ValueError(f"a row is [CLS], words, [SEP], not {list(row[:3])} ... {list(row[-1:])}")
    return " ".join(f"t{token}" for token in row[1:-1])


def write_tokenizer(path: Path) -> None:
    words = [*SPECIAL, *(f"t{token}" for token in range(len(SPECIAL), BERT_VOCABULARY))]
    vocabulary = {word: token for token, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))  # noqa: S106
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", FIRST), ("[SEP]", LAST)]
    )
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.save(str(path))
