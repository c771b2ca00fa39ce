"""A form holds for the answer behind thoughts, and thoughts are free."""

import llguidance
import pytest

from service.grammars.behind import behind_thoughts
from service.grammars.form import Grammar
from service.grammars.source_text import grammar_text

GRAMMARS = [
    (Grammar.of("json_schema", {"const": {"a": 1}}), '{"a": 1}'),
    (Grammar.of("choice", ["a/b", 'say "yes"']), 'say "yes"'),
    (Grammar.of("regex", r"[0-9]/\/\d"), "1//2"),
    (Grammar.of("regex", "[a-z]+\n[0-9]"), "go\n1"),
    (Grammar.of("lark", 'start: WORD "!"\nWORD: /[a-z]+/'), "go!"),
    (Grammar.of("lark", 'start: thoughts "!"\nthoughts: /start/'), "start!"),
    (Grammar.of("lark", 'start: "start" | "(" start ")" // start'), "((start))"),
]
MARKS = [("<think>", "</think>"), ("◁think▷", "◁/think▷")]


def takes(grammar: Grammar, text: str) -> bool:
    tokens = [bytes([each]) for each in range(256)] + [b"<end>"]
    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Tokens(tokens)), eos_token=256)
    matcher = llguidance.LLMatcher(tokenizer, grammar_text(grammar))
    assert not matcher.is_error(), matcher.get_error()
    ids = list(text.encode())
    return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()


class _Tokens:
    def __init__(self, tokens: list[bytes]) -> None:
        self.tokens, self.special_token_ids = tokens, [256]
        self.eos_token_id, self.bos_token_id = 256, None

    def __call__(self, text: str | bytes) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


@pytest.mark.parametrize(("grammar", "text"), GRAMMARS)
@pytest.mark.parametrize(("begin", "end"), MARKS)
def test_thoughts_may_precede_the_form(grammar: Grammar, text: str, begin: str, end: str) -> None:
    free = behind_thoughts(grammar, begin, end, is_open=False)
    assert takes(free, text)
    assert takes(free, f"{begin}\nany {{ text\n{end}\n\n{text}")
    assert not takes(free, f"#{text}")
    assert not takes(free, f"{begin}any{end}any")


@pytest.mark.parametrize(("grammar", "text"), GRAMMARS)
@pytest.mark.parametrize(("begin", "end"), MARKS)
def test_open_thoughts_must_end_before_the_form(
    grammar: Grammar, text: str, begin: str, end: str
) -> None:
    is_open = behind_thoughts(grammar, begin, end, is_open=True)
    assert takes(is_open, f"any\n{end}\n{text}")
    assert not takes(is_open, text)


def test_a_form_within_itself_has_no_thoughts_within() -> None:
    grammar = Grammar.of("lark", 'start: "a" | "(" start ")"')
    free = behind_thoughts(grammar, "<think>", "</think>", is_open=False)
    assert takes(free, "<think>any</think>(a)")
    assert not takes(free, "(<think>any</think>a)")
