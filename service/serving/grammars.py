"""Compiles the grammars of one model's requests, beside the event loop and before the queue.

A few are compiled at once, on threads of their own: one that takes long delays its request until
the time limit, and others only if there are as many like it. Such a thread cannot be stopped: it
goes on until the library's own limits end it, and what it has compiled is kept. Compiled ones, and
the refusals of those that cannot be, are kept for requests with the same. All but `_compile` and
`_copies` is of the event loop.
"""

import asyncio
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from service.contract.grammar import KINDS, Grammar
from service.errors import InvalidArgument, Overloaded, invalid_field
from service.runtime.grammar import GrammarMatcher, has_library

MAX_WAITING = 64  # requests of one model whose grammar is compiled, or waits for it
MAX_COMPILING = 4  # grammars of one model at a time; a published schema takes milliseconds
Compiled = GrammarMatcher | InvalidArgument


class Compiler(Protocol):
    """What makes matchers of grammars, see `service/runtime/grammar.py`."""

    def prepare(self) -> None: ...

    def compile(self, grammar: Grammar) -> GrammarMatcher: ...


class Grammars:
    """The grammars of one model."""

    def __init__(self, compiler: Compiler, max_cached: int, timeout_s: float) -> None:
        self._compiler = compiler
        self._max_cached = max_cached
        self._timeout_s = timeout_s
        self._compiled: OrderedDict[Grammar, Compiled] = OrderedDict()  # the last used at the end
        self._running: dict[Grammar, asyncio.Future[Compiled]] = {}  # or waiting for a thread
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
        for threads in (self._threads, self._copying):
            threads.shutdown(wait=False, cancel_futures=True)

    async def _compiled_of(self, grammar: Grammar) -> GrammarMatcher:
        if grammar in self._compiled:
            self._compiled.move_to_end(grammar)
            compiled = self._compiled[grammar]
        else:
            running = self._running.get(grammar) or self._start(grammar)
            try:
                compiled = await asyncio.wait_for(asyncio.shield(running), self._timeout_s)
            except TimeoutError as error:
                raise self._late(grammar) from error
        if isinstance(compiled, InvalidArgument):
            raise InvalidArgument(str(compiled), compiled.field)
        return compiled

    def _start(self, grammar: Grammar) -> "asyncio.Future[Compiled]":
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(self._threads, self._compile, grammar)
        self._running[grammar] = running
        running.add_done_callback(lambda done: self._keep(grammar, done))
        return running

    def _keep(self, grammar: Grammar, done: "asyncio.Future[Compiled]") -> None:
        del self._running[grammar]
        if done.cancelled() or done.exception() is not None:
            return
        self._compiled[grammar] = done.result()
        while len(self._compiled) > self._max_cached:
            self._compiled.popitem(last=False)

    def _late(self, grammar: Grammar) -> InvalidArgument | Overloaded:
        """Why a request waits no longer: its own grammar takes long, or those before it."""
        limit = f"{self._timeout_s:g} s (--grammar-timeout-s)"
        if grammar in list(self._running)[MAX_COMPILING:]:  # in the order in which they came
            return Overloaded(f"{MAX_COMPILING} grammars of others take longer than {limit}")
        return invalid_field(grammar.kind, f"cannot be kept to: it compiles for more than {limit}")

    def _compile(self, grammar: Grammar) -> Compiled:
        try:
            return self._compiler.compile(grammar)
        except InvalidArgument as error:
            return error


def _copies(compiled: GrammarMatcher, count: int) -> tuple[GrammarMatcher, ...]:
    return tuple(compiled.copy() for _ in range(count))
