"""A tokenizer in GGUF gives the tokens of the one that it was written from."""

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers, trainers
from tokenizers.models import BPE

from models.checkpoints.checkpoint import load_checkpoint
from models.errors import CheckpointError
from tests.models.checkpoints.gguf.test_networks import of
from tests.models.checkpoints.gguf.writing import write_gguf

TEXTS = (
    "The quick brown fox, isn't it? 12345 times 3.14",
    "  leading spaces\n\n\tand tabs  ",
    "Größe, naïve café, 東京タワー, Привет, مرحبا",
    "👩‍👩‍👧 emoji and HTML <b>bold</b> &amp;",
    "I'LL they'Ve IT'S don't",
    "",
    "e\u0301 composed, or not: \u00e9",
    "x = [1, 2]; y=x[0]+x[1]\r\nprint(y)",
)
# As the tokenizers' own files on the hub have them.
LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
BEFORE: dict[str, Any] = {
    "llama-bpe": [
        pre_tokenizers.Split(Regex(LLAMA_3), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ],
    "qwen2": [
        pre_tokenizers.Split(Regex(LLAMA_3.replace("{1,3}", "")), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ],
    "gpt-2": [pre_tokenizers.ByteLevel(add_prefix_space=False)],
    "smollm": [
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
    ],
}


def parts(tokenizer: Tokenizer) -> tuple[list[str], list[str]]:
    """Tokens by id, and merges in their order."""
    import json

    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    return tokens, [" ".join(merge) for merge in model["merges"]]


def keys_of(tokens: list[str], **further: Any) -> dict[str, Any]:
    types = [3 if token.startswith("<|") else 1 for token in tokens]
    return {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        **{f"tokenizer.ggml.{name}": value for name, value in further.items()},
    }


def imported(path: Path, keys: dict[str, Any]) -> Any:
    model = of("llama", vocab_size=len(keys["tokenizer.ggml.tokens"]))
    write_gguf(model, path / "tiny.gguf", further=keys)
    return load_checkpoint(path)


@pytest.mark.parametrize("split", BEFORE)
def test_byte_level_tokens_are_those_of_their_tokenizer(split: str, tmp_path: Path) -> None:
    reference = Tokenizer(BPE())
    if split == "qwen2":
        reference.normalizer = normalizers.NFC()
    reference.pre_tokenizer = pre_tokenizers.Sequence(BEFORE[split])
    reference.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=["<|begin|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    reference.train_from_iterator([*TEXTS, Path(__file__).read_text()], trainer)
    tokens, merges = parts(reference)
    keys = keys_of(tokens, pre=split, merges=merges, eos_token_id=1, bos_token_id=0)
    keys |= {"tokenizer.ggml.add_bos_token": True, "tokenizer.chat_template": "{{ messages }}"}
    checkpoint = imported(tmp_path, keys)
    for text in (*TEXTS, "<|im_end|> inside"):
        found = checkpoint.tokenizer.encode(text)
        assert found.ids == [0, *reference.encode(text).ids], text
        assert checkpoint.tokenizer.decode(found.ids) == reference.decode(found.ids)
    assert checkpoint.chat is not None
    assert 1 in checkpoint.model.config.eos_token_ids


@pytest.mark.parametrize("has_prefix", [True, False])
def test_sentence_pieces_are_merged_by_their_scores(has_prefix: bool, tmp_path: Path) -> None:
    reference = Tokenizer(BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))  # noqa: S106 - no password
    space = "\N{LOWER ONE EIGHTH BLOCK}"
    replace = normalizers.Replace(" ", space)
    reference.normalizer = (
        normalizers.Sequence([normalizers.Prepend(space), replace]) if has_prefix else replace
    )
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))],
        show_progress=False,
        limit_alphabet=60,
    )
    reference.train_from_iterator([*TEXTS[:2], Path(__file__).read_text()], trainer)
    tokens, merges = parts(reference)
    order = {merge.replace(" ", ""): -float(rank + 1) for rank, merge in enumerate(merges)}
    types = [2, 3, 3, *[6] * 256, *[1] * (len(tokens) - 259)]
    keys = keys_of(
        tokens,
        model="llama",
        scores=[order.get(token, -1e6) for token in tokens],
        token_type=types,
        eos_token_id=2,
        bos_token_id=1,
        unknown_token_id=0,
        add_space_prefix=has_prefix,
    )
    checkpoint = imported(tmp_path, keys)
    for text in TEXTS:
        found = checkpoint.tokenizer.encode(text)
        assert found.ids == [1, *reference.encode(text).ids], text
        assert checkpoint.tokenizer.decode(found.ids) == text


def test_a_tokenizer_that_is_not_usable_is_refused_by_name(tmp_path: Path) -> None:
    for keys, message in (
        ({"tokenizer.ggml.model": "t5"}, r"tokenizer\.ggml\.model is 't5'"),
        ({"tokenizer.ggml.merges": ["no pair"]}, "its tokenizer is not usable"),
    ):
        write_gguf(of("llama"), tmp_path / "tiny.gguf", further=keys)
        with pytest.raises(CheckpointError, match=message):
            load_checkpoint(tmp_path)
