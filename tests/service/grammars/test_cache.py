"""Grammars of a model: compiled once, kept within a bound, refused without the library."""

import asyncio
import sys
import threading
from dataclasses import astuple

import pytest

from service.errors import InvalidArgument, Overloaded
from service.grammars.cache import MAX_COMPILING, MAX_WAITING, GrammarLimits, Grammars, Refusal
from service.grammars.checks import CheckedCompiler
from service.grammars.compiler import GrammarCompiler, GrammarMatcher, GrammarVocabulary
from service.grammars.form import Grammar
from tests.fakes.grammars import BYTES, VOCAB_SIZE
from tests.fakes.sessions import PATIENCE_S

VOCABULARY = GrammarVocabulary(BYTES, (256,), VOCAB_SIZE, lambda text: list(text.encode()))
WORD = Grammar.of("regex", "[a-z]+")
TIMEOUT_S = 0.2
MAX_BYTES = 2**28


def grammars_of(max_cached: int) -> Grammars:
    return Grammars(GrammarCompiler(VOCABULARY), GrammarLimits(max_cached, MAX_BYTES, PATIENCE_S))


class SlowCompiler(GrammarCompiler):
    """Grammars that begin with "slow" take as long as a test wants."""

    def __init__(self) -> None:
        super().__init__(VOCABULARY)
        self.may_end = threading.Event()

    def compile(self, grammar: Grammar) -> GrammarMatcher:
        if grammar.text.startswith("slow"):
            self.may_end.wait(PATIENCE_S)
        return super().compile(grammar)


async def test_without_the_library_a_grammar_is_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(InvalidArgument, match=r"pip install 'attendant\[grammar\]'") as caught:
        await grammars_of(1).matchers(WORD, 1)
    assert caught.value.field == "regex"
    assert grammars_of(1).kinds == ()


async def test_a_grammar_is_compiled_once_and_each_sample_follows_its_own() -> None:
    pytest.importorskip("llguidance")
    grammars = grammars_of(2)
    one, other = await grammars.matchers(WORD, 2)
    one.take(ord("a"))
    assert one.is_accepting
    assert not other.is_accepting
    first = grammars._compiled[WORD]
    await asyncio.gather(*(grammars.matchers(WORD, 1) for _ in range(5)))
    assert grammars._compiled[WORD] is first
    grammars.close()


async def test_the_grammars_used_last_are_kept_and_so_are_refusals() -> None:
    pytest.importorskip("llguidance")
    grammars = grammars_of(2)
    wrong = Grammar.of("regex", "(")
    for _ in range(2):
        with pytest.raises(InvalidArgument, match="unclosed group"):
            await grammars.matchers(wrong, 1)
    await grammars.matchers(WORD, 1)
    assert list(grammars._compiled) == [wrong, WORD]
    with pytest.raises(InvalidArgument):
        await grammars.matchers(wrong, 1)
    await grammars.matchers(Grammar.of("regex", "b"), 1)
    assert list(grammars._compiled) == [wrong, Grammar.of("regex", "b")]
    grammars.close()


def slow(number: int) -> Grammar:
    return Grammar.of("regex", f"slow{number}")


async def test_a_grammar_that_compiles_too_long_is_refused_and_delays_no_other() -> None:
    """It is refused after 0.2 s with the limit, others go on, and it is kept once it is done."""
    pytest.importorskip("llguidance")
    compiler = SlowCompiler()
    grammars = Grammars(compiler, GrammarLimits(4, MAX_BYTES, TIMEOUT_S))
    late = asyncio.create_task(grammars.matchers(slow(0), 1))
    assert len(await grammars.matchers(WORD, 2)) == 2
    with pytest.raises(InvalidArgument, match=r"more than 0.2 s \(--grammar-timeout-s\)") as caught:
        await late
    assert caught.value.field == "regex"
    (running,) = grammars._running.values()
    compiler.may_end.set()
    await running
    assert len(await grammars.matchers(slow(0), 1)) == 1
    grammars.close()


async def test_where_all_threads_are_taken_others_are_told_so_and_their_number_is_bounded() -> None:
    pytest.importorskip("llguidance")
    compiler = SlowCompiler()
    grammars = Grammars(compiler, GrammarLimits(4, MAX_BYTES, TIMEOUT_S))
    numbers = range(MAX_WAITING)
    late = [asyncio.create_task(grammars.matchers(slow(each), 1)) for each in numbers]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match="Exceeds maximum queue size"):
        await grammars.matchers(WORD, 1)
    errors = await asyncio.gather(*late, return_exceptions=True)
    assert all(isinstance(each, InvalidArgument) for each in errors[:MAX_COMPILING])
    for each in errors[MAX_COMPILING:]:
        assert isinstance(each, Overloaded)
        assert "4 grammars of others take longer than 0.2 s" in str(each)
    with pytest.raises(Overloaded):  # those that were refused wait for a thread still
        await grammars.matchers(WORD, 1)
    running = list(grammars._running.values())
    compiler.may_end.set()
    await asyncio.gather(*running)
    assert len(await grammars.matchers(WORD, 1)) == 1
    grammars.close()


async def test_the_vocabulary_is_read_before_the_first_grammar() -> None:
    pytest.importorskip("llguidance")
    compiler = GrammarCompiler(VOCABULARY)
    Grammars(compiler, GrammarLimits(1, MAX_BYTES, PATIENCE_S)).close()
    assert "_tokenizer" in vars(compiler)


class CountedCompiler(GrammarCompiler):
    """Each grammar takes a megabyte."""

    def __init__(self) -> None:
        super().__init__(VOCABULARY)
        self.num_compiled = 0

    def compile(self, grammar: Grammar) -> GrammarMatcher:
        matcher = super().compile(grammar)
        matcher.wear.compiled_bytes = 2**20
        self.num_compiled += 1
        return matcher


def word(number: int) -> Grammar:
    return Grammar.of("regex", f"a{number}+")


async def test_what_is_kept_and_in_use_is_bounded_in_bytes() -> None:
    """Four of a megabyte in four and a half: others leave, and in use they refuse a fifth."""
    pytest.importorskip("llguidance")
    grammars = Grammars(CountedCompiler(), GrammarLimits(64, 9 * 2**19, PATIENCE_S))
    for number in range(9):
        await grammars.matchers(word(number), 1)
    assert len(grammars._compiled) == 4
    assert grammars.num_bytes <= 9 * 2**19
    used = [await grammars.matchers(word(number), 2) for number in range(4)]
    with pytest.raises(Overloaded, match=r"grammars that are in use take .* \(--max-grammar-bytes"):
        await grammars.matchers(word(4), 1)
    del used
    assert len(await grammars.matchers(word(4), 1)) == 1
    grammars.close()


async def test_a_refusal_is_kept_as_text_and_leads_to_no_matcher() -> None:
    pytest.importorskip("llguidance")
    grammars = grammars_of(8)
    wrong = Grammar.of("json_schema", {"enum": []})
    for _ in range(2):
        with pytest.raises(InvalidArgument, match="Unsatisfiable") as caught:
            await grammars.matchers(wrong, 1)
        assert caught.value.__context__ is None
    kept = grammars._compiled[wrong]
    assert isinstance(kept, Refusal)
    assert all(isinstance(value, str | bool | None) for value in astuple(kept))
    grammars.close()


async def test_a_grammar_that_failed_is_compiled_anew_for_the_next_request() -> None:
    """Its automaton stays at its bound, for all outputs that share it."""
    pytest.importorskip("llguidance")
    compiler = CountedCompiler()
    grammars = Grammars(compiler, GrammarLimits(8, MAX_BYTES, PATIENCE_S))
    (failed,) = await grammars.matchers(WORD, 1)
    with pytest.raises(InvalidArgument):
        failed.take(ord("!"))
    (anew,) = await grammars.matchers(WORD, 1)
    anew.take(ord("a"))
    assert compiler.num_compiled == 2
    grammars.close()


async def test_a_late_refusal_is_tried_again() -> None:
    pytest.importorskip("llguidance")
    grammars = Grammars(
        CheckedCompiler(GrammarCompiler(VOCABULARY), 0.0001),
        GrammarLimits(8, MAX_BYTES, PATIENCE_S),
    )
    with pytest.raises(InvalidArgument, match="grammar-timeout-s"):
        await grammars.matchers(WORD, 1)
    assert not grammars._compiled
    grammars.close()
