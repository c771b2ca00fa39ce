"""The bound on the tokens that an answer tells of one by one."""

from pathlib import Path

import pytest

from service.errors import InvalidArgument
from service.text import tokenizer as module
from service.text.tokenizer import TextTokenizer
from tests.fakes.sessions import write_tokenizer


def test_tokens_beyond_the_bound_are_not_told_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tokenizer(tmp_path / "tokenizer.json")
    tokenizer = TextTokenizer(tmp_path / "tokenizer.json", 12, 10_000)
    monkeypatch.setattr(module, "MAX_TOLD_TOKENS", 5)
    assert len(tokenizer.pieces("win a prize", omits_special=True).ids) == 3
    with pytest.raises(InvalidArgument, match="a text of 6 tokens, an answer tells of at most 5"):
        tokenizer.pieces("win " * 6, omits_special=True)


@pytest.mark.parametrize(
    "text", ["win the prize", "win the prize " * 200, "win a prize, now\n" * 99]
)
def test_long_texts_have_the_same_tokens_as_in_pieces(tmp_path: Path, text: str) -> None:
    """Above and below the length from which the interpreter is left to others."""
    write_tokenizer(tmp_path / "tokenizer.json")
    tokenizer = TextTokenizer(tmp_path / "tokenizer.json", 12, 10_000)
    encoding = tokenizer._whole.encode(text, add_special_tokens=False)
    found = tokenizer.pieces(text, omits_special=True)
    assert (found.ids, found.pieces) == (encoding.ids, encoding.tokens)
    assert found.offsets == encoding.offsets
