"""Texts with all that tokenizers treat apart, and vocabularies for their classes.

Accents, Chinese characters, emoji, tokens that are added, spaces and long words; each vocabulary
has the special tokens of its class in the places that the class expects. No text has two readings
that are equally likely: the last digit of a score, which a file changes, would choose.
"""

import random
from functools import cache

from tokenizers import Tokenizer, models

from tests.checkpoints.spellings import tokenizer
from tests.fakes.sentencepiece import sentencepiece_tokenizer

ADDED = ("[E1]", "[/E1]", "NewWord", "\u00c9lan", "[PAIR]")  # that no vocabulary has
NUM_TEXTS = 200
_PARTS = (
    *("free PRIZE winner", "Caf\u00e9", "nai\u0308ve", "\u00dcber", "\u0130stanbul \u1e9e \ufb01n"),
    *(
        "\u4f60\u597d\u4e16\u754c",
        "\u65e5\u672c\u8a9e text",
        "\uac00\ub098",
        "\U0001f600",
        "\U0001f44d\U0001f3fd",
    ),
    *("  two  spaces ", "\ttab", "line\nend\r\n", "\u00a0", "\u200b", " ", "trailing "),
    *("``quoted''", "don't stop", "1,234.50", "a-b_c/d", "qz" * 60, "I'LL we'Ve", "!?"),
    *("[MASK]", "<mask>", " <mask> ", "[MASK]ed", "<s>", "</s>", "[SEP]", "<|endoftext|>", "<pad>"),
    *(*ADDED, "newword", "aNewWordb", " [E1]x[/E1] ", "\u00e9lan", "[e1]", "the cat sat"),
    *(
        "\ufeffmark",
        "\u0627\u0644\u0639",
        "\u03a3\u03a3",
        "\u1100\u1161",
        "\u2581under",
        "\x00\x07",
    ),
)


@cache
def texts() -> tuple[str, ...]:
    """The parts by themselves, none, and random rows of them."""
    chosen = random.Random(5)  # noqa: S311 - a test repeats
    mixed = [
        chosen.choice(("", " ")).join(chosen.choices(_PARTS, k=chosen.randint(2, 12)))
        for _ in range(NUM_TEXTS - 1 - len(_PARTS))
    ]
    return ("", *_PARTS, *mixed)


@cache
def vocabulary(kind: str) -> Tokenizer:
    """The tokenizer of a spelling, or of a class that spells as none of them."""
    if kind in ("llama", "gemma"):
        return _renamed(sentencepiece_tokenizer(strips_space=kind == "llama"), kind)
    if kind in ("camembert", "deberta-v2"):
        return tokenizer("xlm-roberta" if kind == "camembert" else "albert")
    return tokenizer({"distilbert": "bert", "qwen2": "gpt2"}.get(kind, kind))


def _renamed(made: Tokenizer, kind: str) -> Tokenizer:
    """Gemma's special tokens in the places of Llama's."""
    if kind == "llama":
        return made
    text = made.to_str()
    for old, new in (("<s>", "<bos>"), ("</s>", "<eos>")):
        text = text.replace(f'"{old}"', f'"{new}"').replace(f'"{old} ', f'"{new} ')
    renamed = Tokenizer.from_str(text)
    assert isinstance(renamed.model, models.BPE)
    return renamed
