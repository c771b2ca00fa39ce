"""The bytes of tokens: of GPT-2's vocabularies, of SentencePiece's, and of those that have none."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE, Unigram

from service.generation.text_stream import TextStream
from service.text.token_bytes import bytes_of_tokens, kind_of_bytes
from service.text.tokenizer import PromptTokenizer
from tests.fakes.sentencepiece import sentencepiece_tokenizer
from tests.fakes.tiny_gpt import byte_tokenizer

VOCABULARIES = {
    "SentencePiece": sentencepiece_tokenizer(),
    "SentencePiece that keeps the first space": sentencepiece_tokenizer(strips_space=False),
    "bytes": byte_tokenizer(),
}
PIECES = ["<unk>", "\u2581", "\u2581the", "\u2581cat", "s", "猫"]


def metaspace_tokenizer(scheme: str = "always") -> Tokenizer:
    """As tokenizer.json of T5, and of a Marian that was imported."""
    tokenizer = Tokenizer(Unigram([(piece, -1.0) for piece in PIECES], unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)
    return tokenizer


def table(tokenizer: Tokenizer) -> tuple[bytes, ...]:
    kind = kind_of_bytes(tokenizer)
    assert kind is not None
    return bytes_of_tokens(tokenizer, kind)


@pytest.mark.parametrize("name", VOCABULARIES)
@settings(max_examples=60, deadline=None)
@given(text=some.text(max_size=40))
def test_bytes_of_a_text_s_tokens_are_the_text(name: str, text: str) -> None:
    """And a stream of them, token by token, gives the text whatever characters it cuts."""
    tokenizer = VOCABULARIES[name]
    tokens = table(tokenizer)
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    whole = b"".join(tokens[token_id] for token_id in ids).decode()
    expected = text
    if name.startswith("Sentence") and text:
        expected = " " + text.replace("\u2581", " ")  # a space begins every text
    assert whole == expected
    stream = TextStream(tokens)
    pieces = [stream.push(token_id, may_stop=True) for token_id in ids]
    assert "".join(pieces) + stream.finish() == whole


def test_tokens_of_sentencepiece_are_texts_bytes_or_nothing() -> None:
    tokenizer = sentencepiece_tokenizer("<|im_end|>")
    tokenizer.add_tokens(["plain added"])
    tokens = table(tokenizer)

    def bytes_of(token: str) -> bytes:
        return tokens[tokenizer.get_vocab()[token]]

    assert bytes_of("▁cat") == b" cat"
    assert bytes_of("<0xC3>") == b"\xc3"
    assert bytes_of("plain added") == b"plain added"
    assert bytes_of("<s>") == bytes_of("<|im_end|>") == b""


def test_a_text_is_decoded_as_the_library_does(tmp_path: Path) -> None:
    """Without the space that SentencePiece puts before a text."""
    library = sentencepiece_tokenizer()
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer = PromptTokenizer(tmp_path / "tokenizer.json", 100, 1000)
    for text in ("the cat sat, 猫 too", "  two spaces", ""):
        ids = library.encode(text, add_special_tokens=False).ids
        assert tokenizer.text_of(ids) == library.decode(ids, skip_special_tokens=False) == text


@pytest.mark.parametrize("scheme", ["always", "first", "never"])
def test_a_text_of_metaspace_is_decoded_as_the_library_does(scheme: str, tmp_path: Path) -> None:
    """The stream of an output that continues no text gives the same, token by token."""
    library = metaspace_tokenizer(scheme)
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer = PromptTokenizer(tmp_path / "tokenizer.json", 100, 1000)
    for text in ("the cats 猫", " the  cat", "s the"):
        ids = library.encode(text, add_special_tokens=False).ids
        assert tokenizer.text_of(ids) == library.decode(ids, skip_special_tokens=False)
        stream = TextStream(tokenizer.token_bytes, strips_space=tokenizer.strips_space)
        assert "".join(map(stream.push, ids)) + stream.finish() == tokenizer.text_of(ids)


@pytest.mark.parametrize(
    "decoder",
    [
        None,
        decoders.WordPiece(),
        decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()]),
        decoders.Sequence([decoders.Replace("▁", " "), decoders.Strip(" ", 2, 0)]),
        decoders.Metaspace("_"),
    ],
)
def test_other_vocabularies_have_no_bytes(decoder: decoders.Decoder | None) -> None:
    tokenizer = Tokenizer(BPE({"a": 0}, []))
    if decoder is not None:
        tokenizer.decoder = decoder
    assert kind_of_bytes(tokenizer) is None
