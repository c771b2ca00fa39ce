"""Compiles a grammar in a process of its own before the server does, with what is tried on it.

What has ended a process, was late, or took more than its bound is refused, whatever the library
does. What has passed takes the server the same time and memory again.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from service.errors import InvalidArgument, invalid_field
from service.grammars.compiler import LIMITS, GrammarCompiler, GrammarMatcher, cannot
from service.grammars.form import Grammar
from service.grammars.process import (
    MAX_BYTES,
    MAX_FORCED_BYTES,
    MAX_GRAMMAR_BYTES,
    GrammarProcesses,
)
from service.grammars.schema_faults import NOTHING, fault_of, meaning_of
from service.grammars.source_text import Walk, grammar_text, walks_of

MIB = 2**20
MAX_SHOWN = 100  # characters of a literal in a message
SMALLER = "a number up to 9007199254740992"
DOUBLES = f"grammars count in doubles, take {SMALLER}"
NO_DOUBLE = f"would be another number, as grammars count in doubles: take a string, or {SMALLER}"
BEYOND = f"is beyond the numbers that grammars count with: take a string, or {SMALLER}"


class LateGrammar(InvalidArgument):
    """A grammar was not compiled in time; on an idle machine it may be."""


class CheckedCompiler:
    """A compiler of one vocabulary, for any number of threads once it is prepared."""

    def __init__(self, compiler: GrammarCompiler, limit_s: float) -> None:
        """`limit_s` is of one grammar, by the name of `--grammar-timeout-s`."""
        self._compiler, self._limit_s = compiler, limit_s
        self._processes = GrammarProcesses(*compiler.tokens, LIMITS, limit_s)

    def prepare(self) -> None:
        """Read the vocabulary in the server; the process reads it with the first grammar."""
        self._compiler.prepare()

    def compile(self, grammar: Grammar) -> GrammarMatcher:
        """A matcher at the beginning of an output. Raises `InvalidArgument` and `Unavailable`."""
        walks = walks_of(grammar)
        for walk in walks:
            _check_numbers(grammar, walk)
        request = {"grammar": grammar_text(grammar), "walks": [*map(asdict, walks)]}
        try:
            answer = self._processes.check(request)
        except TimeoutError as error:
            raise late(grammar, self._limit_s) from error
        except EOFError as error:
            raise cannot(
                grammar,
                f"compiling it takes more than {MAX_BYTES // MIB} MiB, or goes deeper than the "
                "library that compiles it can",
            ) from error
        if "is_refused" in answer:
            raise _refusal(grammar, walks, answer)
        matcher = self._compiler.compile(grammar)
        matcher.wear.compiled_bytes = answer["num_bytes"]
        return matcher

    def close(self) -> None:
        """End the processes; called on any thread."""
        self._processes.close()

    @property
    def pid(self) -> int | None:
        """The process that is ready, if there is one."""
        return self._processes.pid


def late(grammar: Grammar, limit_s: float) -> LateGrammar:
    """The refusal of a grammar that compiles too long."""
    limit = f"{limit_s:g} s (--grammar-timeout-s)"
    error = invalid_field(grammar.kind, f"cannot be kept to: it compiles for more than {limit}")
    return LateGrammar(str(error), grammar.kind)


def _check_numbers(grammar: Grammar, walk: Walk) -> None:
    """Refuse numbers that would end the library, with their place, before they do."""
    for path, number in zip(walk.paths, walk.beyond, strict=False):
        if number:
            raise _at(grammar, walk, path, f"{number} {BEYOND}")


def _refusal(grammar: Grammar, walks: Sequence[Walk], answer: Mapping[str, Any]) -> InvalidArgument:
    if "num_forced" in answer:
        return cannot(
            grammar,
            f"it begins with a text of {answer['num_forced']} bytes or more that must be said, "
            f"expected at most {MAX_FORCED_BYTES}",
        )
    if "num_bytes" in answer:
        taken, most = answer["num_bytes"] // MIB, MAX_GRAMMAR_BYTES // MIB
        return cannot(grammar, f"it takes {taken} MiB of memory, expected at most {most}")
    if "place" not in answer:
        return cannot(grammar, _reason(grammar, answer.get("error", "")))
    walk = walks[answer["walk"]]
    path = walk.paths[answer["place"]]
    if "error" in answer:
        reason = meaning_of(answer["error"])
        way_out = "" if reason.endswith(NOTHING) else f": leave it out, or take {SMALLER}"
        return _at(grammar, walk, path, f"{reason}{way_out}")
    if "extra" in answer:
        return _at(grammar, walk, path, f"{_short(answer['extra'])} would be allowed: {DOUBLES}")
    lost = _short(answer["lost"])
    is_number = lost.lstrip("-")[:1].isdigit()
    return _at(
        grammar,
        walk,
        path,
        f"{lost} {NO_DOUBLE}" if is_number else f"{lost} cannot be said exactly",
    )


def _reason(grammar: Grammar, error: str) -> str:
    """Reason for which the compiler refused a grammar, with its place where it is known."""
    fault = fault_of(json.loads(grammar.text)) if grammar.kind == "json_schema" else None
    return fault or meaning_of(error)


def _at(grammar: Grammar, walk: Walk, path: str, reason: str) -> InvalidArgument:
    """The refusal of a part of a schema; in Lark in the words of the library, with the line."""
    where = f"at '{path}': {reason}"
    if walk.line is not None:
        where = f"at {walk.line}(1): failed to compile JSON schema: {where}"
    return cannot(grammar, where)


def _short(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
