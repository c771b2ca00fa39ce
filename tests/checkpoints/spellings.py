"""Tokenizers as the families spell them, of a few sentences, the same in every process.

A spelling is the algorithm, the special tokens in the order of their ids, and what goes around a
text and a pair.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path

import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers.processors import TemplateProcessing

from models.data.datasets import read_dataset

VOCABULARY = 600  # ids, special ones included; those of bytes alone are 256
SAMPLES = Path(__file__).parents[2] / "models" / "data" / "spam.tsv"
MAX_TOKENS = 64
MAX_PIECE = 6  # characters


@dataclass(frozen=True, slots=True)
class Spelling:
    """How a family's texts become tokens."""

    algorithm: str  # "words", "bytes" or "pieces"
    roles: Mapping[str, str]  # special tokens by their roles, in the order of their ids
    single: str
    pair: str

    @property
    def special(self) -> list[str]:
        return list(dict.fromkeys(self.roles.values()))

    def id_of(self, role: str) -> int:
        return self.special.index(self.roles[role])


def _roles(**names: str) -> dict[str, str]:
    return {f"{role}_token": name for role, name in names.items()}


_BRACKETS = _roles(pad="[PAD]", unk="[UNK]", cls="[CLS]", sep="[SEP]", mask="[MASK]")
_ANGLES = _roles(
    bos="<s>", cls="<s>", pad="<pad>", eos="</s>", sep="</s>", unk="<unk>", mask="<mask>"
)
_TYPES = "[CLS] $A [SEP] $B:1 [SEP]:1"
_DOUBLED = "<s> $A </s> </s> $B </s>"
SPELLINGS = {
    "bert": Spelling("words", _BRACKETS, "[CLS] $A [SEP]", _TYPES),
    "mpnet": Spelling("words", {**_ANGLES, "unk_token": "[UNK]"}, "<s> $A </s>", _DOUBLED),
    "roberta": Spelling("bytes", _ANGLES, "<s> $A </s>", _DOUBLED),
    "modernbert": Spelling("bytes", _BRACKETS, "[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]"),
    "xlm-roberta": Spelling("pieces", _ANGLES, "<s> $A </s>", _DOUBLED),
    "albert": Spelling("pieces", _BRACKETS, "[CLS] $A [SEP]", _TYPES),
    "t5": Spelling("pieces", _roles(pad="<pad>", eos="</s>", unk="<unk>"), "$A </s>", "$A $B </s>"),
    "gpt2": Spelling("bytes", _roles(eos="<|endoftext|>", pad="<|pad|>"), "$A", "$A $B"),
    "ending": Spelling(
        "bytes", _roles(eos="<|endoftext|>", pad="<|pad|>"), "$A <|endoftext|>", "$A $B"
    ),
}


@cache
def tokenizer(name: str) -> Tokenizer:
    """The trained tokenizer of a spelling."""
    spelling = SPELLINGS[name]
    texts = [example.text for example in read_dataset(SAMPLES).examples]
    trained = _ALGORITHMS[spelling.algorithm](spelling, texts)
    trained.post_processor = TemplateProcessing(
        single=spelling.single,
        pair=spelling.pair,
        special_tokens=[(token, trained.token_to_id(token)) for token in spelling.special],
    )
    assert [trained.token_to_id(token) for token in spelling.special] == list(
        range(len(spelling.special))
    )
    return trained


def save_tokenizer(name: str, folder: Path) -> None:
    """The files of a tokenizer as transformers writes them."""
    spelling = SPELLINGS[name]
    inputs = ["input_ids", "attention_mask"]
    if ":1" in spelling.pair:  # else its class, which takes any file as it is, has no types
        inputs.append("token_type_ids")
    fast = transformers.PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer(name),
        model_max_length=MAX_TOKENS,
        model_input_names=inputs,
        **spelling.roles,
    )
    fast.save_pretrained(folder)


def _words(spelling: Spelling, texts: list[str]) -> Tokenizer:
    unknown = spelling.roles["unk_token"]
    made = Tokenizer(models.WordPiece(unk_token=unknown))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    counts: Counter[str] = Counter()
    for word, count in _counted_words(made, texts).items():
        for end in range(1, len(word) + 1):
            counts[word[:end]] += count
            counts[f"##{word[-end:]}"] += count * (end < len(word))
    letters = {letter for word in counts for letter in word.removeprefix("##")}
    known = [*spelling.special, *sorted({*letters, *(f"##{each}" for each in letters)})]
    pieces = [piece for piece, _ in _commonest(counts) if piece not in known]
    vocabulary = [*known, *pieces][:VOCABULARY]
    made.model = models.WordPiece(
        {piece: number for number, piece in enumerate(vocabulary)}, unk_token=unknown
    )
    made.add_special_tokens(spelling.special)
    return made


def _bytes(spelling: Spelling, texts: list[str]) -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=spelling.special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    made.train_from_iterator(texts, trainer)
    return made


def _pieces(spelling: Spelling, texts: list[str]) -> Tokenizer:
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(" {2,}", " ")])
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    counts: Counter[str] = Counter()
    for word, count in _counted_words(made, texts).items():
        for start, end in combinations(range(len(word) + 1), 2):
            if end - start <= MAX_PIECE:
                counts[word[start:end]] += count
    letters = [each for each in _commonest(counts) if len(each[0]) == 1]
    longer = [each for each in _commonest(counts) if len(each[0]) > 1]
    chosen = [*letters, *longer][: VOCABULARY - len(spelling.special)]
    total = sum(count for _, count in chosen)
    scores = [(piece, math.log(count / total)) for piece, count in chosen]
    made.model = models.Unigram(
        [*((token, 0.0) for token in spelling.special), *scores], spelling.id_of("unk_token")
    )
    made.add_special_tokens(spelling.special)
    return made


def _counted_words(tokenizer: Tokenizer, texts: list[str]) -> Counter[str]:
    """How often each word stands in the texts, as the tokenizer cuts them."""
    normal = (tokenizer.normalizer.normalize_str(text) for text in texts)
    return Counter(
        word for text in normal for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)
    )


def _commonest(counts: Counter[str]) -> list[tuple[str, int]]:
    """The library's trainers of words and of pieces break ties as a process happens to hash."""
    return sorted(counts.items(), key=lambda each: (-each[1], each[0]))


_ALGORITHMS = {"words": _words, "bytes": _bytes, "pieces": _pieces}
