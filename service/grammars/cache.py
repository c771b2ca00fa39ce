"""Compiles the grammars of one model's requests, beside the event loop and before the queue.

A few are compiled at once, on threads of their own: one that takes long delays its request until
the time limit, and others only if there are as many like it. Compiled ones are kept for requests
with the same, and the refusals of those that cannot be, as texts: an error would keep what its
traceback leads to. What is kept and in use is bounded in bytes. All but `_compile` and `_copies` is
of the event loop.
"""

import asyncio
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakSet

from service.errors import InvalidArgument, Overloaded, invalid_field
from service.grammars.checks import LateGrammar, late
from service.grammars.compiler import GrammarMatcher, Wear, has_library
from service.grammars.form import KINDS, Grammar

MAX_WAITING = 64  # requests of one model whose grammar is compiled, or waits for it
MAX_COMPILING = 4  # grammars of one model at a time; a published schema takes milliseconds
CHARACTER_BYTES = 4  # at most, of a grammar's text and of a refusal's


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a grammar is refused, without what raised it."""

    text: str
    field: str | None
    logged: str | None
    subject: str
    is_kept: bool  # else the next request tries again

    @classmethod
    def of(cls, error: InvalidArgument) -> "Refusal":
        is_kept = not isinstance(error, LateGrammar)
        return cls(error.text, error.field, error.logged, error.subject, is_kept)


Compiled = GrammarMatcher | Refusal


@dataclass(frozen=True, slots=True)
class GrammarLimits:
    """Bounds of the grammars of one model."""

    max_cached: int
    max_bytes: int  # of those that are kept and in use
    timeout_s: float  # of a request that waits


class Compiler(Protocol):
    """Compiler of grammars into matchers, see `service/grammars/compiler.py`."""

    def prepare(self) -> None: ...

    def compile(self, grammar: Grammar) -> GrammarMatcher: ...

    def close(self) -> None: ...


class Grammars:
    """The grammars of one model."""

    def __init__(self, compiler: Compiler, limits: GrammarLimits) -> None:
        self._compiler, self._limits = compiler, limits
        self._compiled: OrderedDict[Grammar, Compiled] = OrderedDict()  # the last used at the end
        self._running: dict[Grammar, asyncio.Future[Compiled]] = {}  # or waiting for a thread
        self._in_use: WeakSet[Wear] = WeakSet()  # of those that are kept or that outputs follow
        self._num_waiting = 0
        self._threads = ThreadPoolExecutor(MAX_COMPILING, "grammars")
        self._copying = ThreadPoolExecutor(1, "grammar-copies")
        if has_library():
            compiler.prepare()

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of grammar that outputs can be held to; none without the library."""
        return KINDS if has_library() else ()

    async def matchers(self, grammar: Grammar, count: int) -> tuple[GrammarMatcher, ...]:
        """One matcher for each of `count` samples. Raises `InvalidArgument` and `Overloaded`."""
        if not has_library():
            raise invalid_field(
                grammar.kind,
                "is set, and the server has no library for grammars: pip install "
                "'attendant[grammar]'",
            )
        if max(self._num_waiting, len(self._running)) >= MAX_WAITING:
            raise Overloaded("Exceeds maximum queue size")
        self._num_waiting += 1
        try:
            compiled = await self._compiled_of(grammar)
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._copying, _copies, compiled, count)
        finally:
            self._num_waiting -= 1

    def close(self) -> None:
        """End the threads; what waits for them fails."""
        self._compiler.close()
        for threads in (self._threads, self._copying):
            threads.shutdown(wait=False, cancel_futures=True)

    async def _compiled_of(self, grammar: Grammar) -> GrammarMatcher:
        kept = self._compiled.get(grammar)
        if isinstance(kept, GrammarMatcher) and kept.wear.is_out:
            del self._compiled[grammar]
            kept = None
        if kept is not None:
            self._compiled.move_to_end(grammar)
        else:
            running = self._running.get(grammar) or self._start(grammar)
            try:
                kept = await asyncio.wait_for(asyncio.shield(running), self._limits.timeout_s)
            except TimeoutError as error:
                raise self._late(grammar) from error
        if isinstance(kept, Refusal):
            raise InvalidArgument(kept.text, kept.field, kept.logged, subject=kept.subject)
        if grammar not in self._compiled and self.num_bytes > self._limits.max_bytes:
            raise Overloaded(
                f"compiled grammars that are in use take {self.num_bytes} bytes, the limit is "
                f"{self._limits.max_bytes} (--max-grammar-bytes)"
            )
        return kept

    def _start(self, grammar: Grammar) -> "asyncio.Future[Compiled]":
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(self._threads, self._compile, grammar)
        self._running[grammar] = running
        running.add_done_callback(lambda done: self._keep(grammar, done))
        return running

    @property
    def num_bytes(self) -> int:
        """Bytes of all that is kept or in use, texts among it."""
        refusals = (each.text for each in self._compiled.values() if isinstance(each, Refusal))
        texts = (*refusals, *(grammar.text for grammar in self._compiled))
        return CHARACTER_BYTES * sum(map(len, texts)) + sum(each.num_bytes for each in self._in_use)

    def _keep(self, grammar: Grammar, done: "asyncio.Future[Compiled]") -> None:
        del self._running[grammar]
        if done.cancelled() or done.exception() is not None:
            return
        compiled = done.result()
        if isinstance(compiled, Refusal) and not compiled.is_kept:
            return
        if isinstance(compiled, GrammarMatcher):
            self._in_use.add(compiled.wear)
        self._compiled[grammar] = compiled
        del compiled
        while self._compiled and (
            len(self._compiled) > self._limits.max_cached or self.num_bytes > self._limits.max_bytes
        ):
            self._compiled.popitem(last=False)

    def _late(self, grammar: Grammar) -> InvalidArgument | Overloaded:
        """Why a request waits no longer: its own grammar takes long, or those before it."""
        if grammar in list(self._running)[MAX_COMPILING:]:  # in the order in which they came
            limit = f"{self._limits.timeout_s:g} s (--grammar-timeout-s)"
            return Overloaded(f"{MAX_COMPILING} grammars of others take longer than {limit}")
        return late(grammar, self._limits.timeout_s)

    def _compile(self, grammar: Grammar) -> Compiled:
        try:
            return self._compiler.compile(grammar)
        except InvalidArgument as error:
            return Refusal.of(error)


def _copies(compiled: GrammarMatcher, count: int) -> tuple[GrammarMatcher, ...]:
    return tuple(compiled.copy() for _ in range(count))
