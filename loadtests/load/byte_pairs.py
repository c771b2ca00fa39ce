"""Tokenizers of bytes and made-up pieces, of any size: for measurements that are given tokens."""

import json
from collections.abc import Iterator, Sequence
from itertools import islice, product
from pathlib import Path

END_OF_TEXT = "<|endoftext|>"


def write_byte_pairs(folder: Path, vocab_size: int, max_tokens: int) -> None:
    """The end of a text as token 0, bytes, pairs of bytes, and triples while there is room."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    num_merges = vocab_size - 1 - len(alphabet)
    merges = list(islice(_merges(alphabet), num_merges))
    pieces = (END_OF_TEXT, *alphabet, *(first + second for first, second in merges))
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([END_OF_TEXT])
    tokenizer.save(str(folder / "tokenizer.json"))
    write_tokenizer_config(
        folder,
        tokenizer_class="PreTrainedTokenizerFast",
        model_max_length=max_tokens,
        **{f"{kind}_token": END_OF_TEXT for kind in ("bos", "eos", "unk", "pad")},
    )


def _merges(alphabet: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Pairs, each of which is another text."""
    pairs = list(product(alphabet, alphabet))
    yield from pairs
    for first, second in pairs:
        yield from ((first + second, third) for third in alphabet)


def write_tokenizer_config(folder: Path, **values: object) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps(values, indent=1))
