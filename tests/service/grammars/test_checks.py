"""Grammars compiled in a process first: what would end or fill the server is refused by one."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from service.errors import InvalidArgument, Unavailable
from service.grammars.checks import CheckedCompiler, LateGrammar
from service.grammars.compiler import GrammarCompiler, GrammarVocabulary, cannot
from service.grammars.form import Grammar
from tests.fakes.grammars import BYTES, VOCAB_SIZE
from tests.fakes.sessions import PATIENCE_S

pytest.importorskip("llguidance")
VOCABULARY = GrammarVocabulary(BYTES, (256,), VOCAB_SIZE, lambda text: list(text.encode()))
DEEP = {"minimum": -1e30, "type": "integer"}
WORD = Grammar.of("regex", "[a-z]+")


@pytest.fixture(scope="module")
def checked() -> Iterator[CheckedCompiler]:
    compiler = CheckedCompiler(GrammarCompiler(VOCABULARY), PATIENCE_S)
    yield compiler
    compiler.close()


COSTLY: dict[str, tuple[str, Any]] = {
    "counted in counted": ("regex", "((a{999}){999}){999}"),
    "counted": ("regex", "(ab){1000000}"),
    "counted in Lark": ("lark", "start: /((a{999}){999}){999}/"),
    "counted in a schema": ("json_schema", {"type": "string", "pattern": "^(x{999}){999}$"}),
    "counted in a name": (
        "json_schema",
        {
            "type": "object",
            "patternProperties": {"^(x{999}){999}$": {}},
            "additionalProperties": False,
            "minProperties": 1,
        },
    ),
}


@pytest.mark.parametrize("name", COSTLY)
def test_a_text_without_end_that_must_be_said_is_refused_and_leaves_nothing(
    checked: CheckedCompiler, name: str
) -> None:
    """Refused with its length by the process, before the server compiles it; others go on."""
    kind, value = COSTLY[name]
    with pytest.raises(InvalidArgument, match="must be said, expected at most 65536") as caught:
        checked.compile(Grammar.of(kind, value))
    assert caught.value.field == kind
    assert checked.compile(WORD).wear.num_bytes > 0


def test_a_grammar_that_ends_the_process_is_refused_and_the_next_one_is_compiled(
    checked: CheckedCompiler,
) -> None:
    """The library recurses without end for these bounds; in the server, it would end that."""
    checked.compile(WORD)
    before = checked.pid
    with pytest.raises(InvalidArgument, match="more than 256 MiB, or goes deeper"):
        checked.compile(
            Grammar.of("json_schema", {"type": "integer", "allOf": [{"maximum": -1e25}, DEEP]})
        )
    assert checked.compile(WORD).wear.num_bytes > 0
    assert checked.pid != before


def test_a_process_that_ended_between_two_grammars_is_no_fault_of_the_next(
    checked: CheckedCompiler,
) -> None:
    checked.compile(WORD)
    assert checked.pid is not None
    os.kill(checked.pid, 9)
    assert checked.compile(Grammar.of("regex", "[a-y]+")).wear.num_bytes > 0


def test_a_late_grammar_ends_its_process_and_may_be_tried_again() -> None:
    compiler = CheckedCompiler(GrammarCompiler(VOCABULARY), 0.001)
    many = {"properties": {f"p{each}": {"type": "integer"} for each in range(900)}}
    with pytest.raises(LateGrammar, match=r"more than 0.001 s \(--grammar-timeout-s\)"):
        compiler.compile(Grammar.of("json_schema", many))
    assert compiler.pid is None
    compiler.close()


def test_after_closing_no_process_is_started() -> None:
    compiler = CheckedCompiler(GrammarCompiler(VOCABULARY), PATIENCE_S)
    compiler.compile(WORD)
    pid = compiler.pid
    assert pid is not None
    compiler.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(Unavailable):
        compiler.compile(WORD)


def test_a_panic_of_the_library_is_one_sentence() -> None:
    """Its text has the places in the library's code, and a backtrace of 100 lines."""
    error = cannot(WORD, "panic: index out of bounds\n<backtrace>\n 0: rust_begin\n</backtrace>")
    assert str(error) == "regex cannot be kept to: the library that compiles it failed"


def test_logs_have_no_part_of_a_refused_expression(checked: CheckedCompiler) -> None:
    with pytest.raises(InvalidArgument) as caught:
        checked.compile(Grammar.of("regex", "secret-(a"))
    assert "secret-(a" in str(caught.value)
    assert caught.value.logged == "regex cannot be kept to [reason left out]"


COUNTS = some.sampled_from(["{9}", "{99}", "{999}", "{0,99}", "{1,999}", "{5,}", "*", "+", "?"])
COUNTED = some.recursive(
    some.sampled_from(["a", "b", ".", r"\w", r"\d", "[a-m]", "the", " "]),
    lambda inner: (
        some.tuples(inner, COUNTS).map(lambda both: f"({both[0]}){both[1]}")
        | some.tuples(inner, inner).map("".join)
        | some.tuples(inner, inner).map(lambda both: f"({both[0]}|{both[1]})")
    ),
    max_leaves=6,
)


@given(expression=COUNTED)
@settings(max_examples=60, deadline=None, database=None, derandomize=True)
def test_expressions_of_counted_repetition_are_kept_within_bounds_or_refused(
    checked: CheckedCompiler, expression: str
) -> None:
    try:
        matcher = checked.compile(Grammar.of("regex", expression))
    except InvalidArgument:
        return
    assert matcher.wear.num_bytes < 2**26 + 2**25
    assert len(matcher.forced) <= 2**16


SMALL_SERVER = """
    import resource, sys
    from pathlib import Path
    from service.grammars.form import Grammar
    from service.errors import InvalidArgument
    from service.grammars.checks import CheckedCompiler
    from tests.service.grammars.test_checks import COSTLY, PATIENCE_S, VOCABULARY
    from service.grammars.compiler import GrammarCompiler

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    compiler = CheckedCompiler(GrammarCompiler(VOCABULARY), PATIENCE_S)
    compiler.prepare()
    compiler.compile(Grammar.of("regex", "a+"))
    address = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (address + 2**28, address + 2**28))
    kept, before = [], resident()
    for number in range(2):
        costly = [("regex", "((a{999}){99%d}){999}"), ("lark", "start: /(b{99%d}){9999}/")]
        for kind, text in costly:
            try:
                compiler.compile(Grammar.of(kind, text % number))
            except InvalidArgument as error:
                kept.append(error)
    compiler.close()
    assert len(kept) == 4, kept
    print(resident() - before)
"""


def test_refused_expressions_take_no_memory_of_a_process_with_little() -> None:
    """Four of them, their errors kept: less than 16 MB, in a process with room for 256."""
    ran = subprocess.run(  # noqa: S603
        [sys.executable, "-c", textwrap.dedent(SMALL_SERVER)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) < 16 * 2**20
