"""Compiles grammars in a process of its own: started by `process.py`, as a script.

A grammar is a program for the library that compiles it, and no limit of the library bounds all of
its time, memory and depth: a schema of one number ends the process that compiles it. So a grammar
is compiled here first, where the operating system bounds all three. What it takes is told, and the
server compiles only what has passed.

Texts that a grammar must take or refuse are walked through it, byte by byte: the literals and the
bounds of a schema, and choices.

Frames of JSON come through standard input, and answers leave through standard output, each after
its number of bytes. The first frame has the vocabulary and the bounds. Imports nothing of ours.
"""

import ctypes
import json
import resource
import signal
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import llguidance

SIZE = struct.Struct("<Q")
END = 256  # of the vocabulary of bytes: the token that ends a text
COUNTS = (
    *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
    *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
)
Values = Mapping[str, Any]


class RefusedError(Exception):
    """A grammar that is not compiled, or does not allow what it is to."""

    def __init__(self, **answer: object) -> None:
        super().__init__(str(answer))
        self.answer = answer


class Tokens:
    """A vocabulary as the library reads it, which spells texts by the longest tokens."""

    bos_token_id = None

    def __init__(self, tokens: Sequence[bytes], eos_token_ids: Sequence[int]) -> None:
        self.tokens = list(tokens)
        self.eos_token_ids = list(eos_token_ids)
        self.eos_token_id = self.eos_token_ids[0]
        empty = {n for n, each in enumerate(tokens) if not each or each.startswith(b"\xff[")}
        self.special_token_ids = sorted(empty | {*eos_token_ids})
        self._ids = {each: token_id for token_id, each in enumerate(tokens) if each}
        self._most_bytes = max(map(len, tokens), default=1)

    def __call__(self, text: str | bytes) -> list[int]:
        content = text.encode() if isinstance(text, str) else text
        ids, place = [], 0
        while place < len(content):
            ends = range(min(len(content), place + self._most_bytes), place, -1)
            end = next((end for end in ends if content[place:end] in self._ids), None)
            if end is None:
                break
            ids.append(self._ids[content[place:end]])
            place = end
        return ids

    def read(self) -> llguidance.LLTokenizer:
        wrapper = llguidance.TokenizerWrapper(self)
        return llguidance.LLTokenizer(wrapper, eos_token=self.eos_token_ids)


class Checker:
    """The grammars of one vocabulary."""

    def __init__(self, start: Values) -> None:
        tokens = [each.encode("latin-1") for each in start["tokens"]]
        self._tokenizer = Tokens(tokens, start["eos_token_ids"]).read()
        alphabet = [*(bytes([value]) for value in range(256)), b""]
        self._bytes = Tokens(alphabet, [END]).read()
        self._limits = llguidance.LLParserLimits(**start["limits"])
        self._max_forced, self._max_grammar = start["max_forced_bytes"], start["max_grammar_bytes"]

    def check(self, request: Values) -> dict[str, object]:
        """Memory that the grammar takes. Raises `RefusedError`."""
        try:
            taken = self._measured(request["grammar"])
        except RefusedError as error:
            if "error" in error.answer:  # at one of its parts, maybe
                self._walk_all(request["walks"])
            raise
        self._walk_all(request["walks"])
        return {"num_bytes": taken}

    def _measured(self, text: str) -> int:
        before = _allocated()
        matcher = self._compiled(self._tokenizer, text)
        # Before a mask is computed, for which a forced text would be cut into tokens.
        if (num_bytes := len(matcher.compute_ff_bytes())) > self._max_forced:
            raise RefusedError(num_forced=num_bytes)
        matcher.compute_bitmask()
        _check(matcher)
        if (taken := max(0, _allocated() - before)) > self._max_grammar:
            raise RefusedError(num_bytes=taken)
        return taken

    def _walk_all(self, walks: Sequence[Values]) -> None:
        for number, walk in enumerate(walks):
            self._walk(number, walk)

    def _walk(self, number: int, walk: Values) -> None:
        try:
            matcher = self._compiled(self._bytes, walk["grammar"])
        except RefusedError:
            for place, single in enumerate(walk["singles"]):  # which one it is
                try:
                    self._compiled(self._bytes, single)
                except RefusedError as error:
                    raise RefusedError(walk=number, place=place, **error.answer) from error
            raise
        last = len(walk["places"]) - 1
        self._take(matcher, walk["opening"])
        for place, (accepted, refused) in enumerate(walk["places"]):
            behind = walk["closing"] if place == last else walk["between"]
            for text in accepted:
                if not _takes(matcher, text, behind):
                    raise RefusedError(walk=number, place=place, lost=text)
            for text in refused:
                if _takes(matcher, text, behind):
                    raise RefusedError(walk=number, place=place, extra=text)
            self._take(matcher, accepted[-1] + behind)

    def _compiled(self, tokenizer: llguidance.LLTokenizer, text: str) -> llguidance.LLMatcher:
        matcher = llguidance.LLMatcher(tokenizer, text, limits=self._limits, log_level=0)
        _check(matcher)
        return matcher

    def _take(self, matcher: llguidance.LLMatcher, text: str) -> None:
        if text:
            matcher.consume_tokens(list(text.encode()))
            _check(matcher)


def _takes(matcher: llguidance.LLMatcher, text: str, behind: str) -> bool:
    """Whether a text may be next, with what must follow it; without that, the output must end."""
    ids = [*(text + behind).encode()] + ([] if behind else [END])
    is_taken = bool(matcher.validate_tokens(ids) == len(ids))
    _check(matcher)
    return is_taken


def _check(matcher: llguidance.LLMatcher) -> None:
    if matcher.is_error():
        raise RefusedError(error=matcher.get_error())


class _Allocations(ctypes.Structure):
    """`struct mallinfo2`, as glibc has it."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in COUNTS)


def _reader() -> Any:  # noqa: ANN401 - a function of the C library, or None where it has none
    try:
        read = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError):
        return None
    read.restype = _Allocations
    return read


_READ = _reader()


def _allocated() -> int:
    """Bytes that are in use, as the C library counts them; else those of the process."""
    if _READ is None:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize()
    counts = _READ()
    return int(counts.uordblks + counts.hblkhd)


def _bound(start: Values) -> None:
    """Bound what the process may take from here on."""
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    most = taken + start["max_bytes"]
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    resource.setrlimit(resource.RLIMIT_STACK, (start["stack_bytes"], hard))


def _read(stream: BinaryIO) -> dict[str, Any]:
    """The object in the next frame. Raises `EOFError`."""
    head = stream.read(SIZE.size)
    if len(head) < SIZE.size:
        raise EOFError
    values: dict[str, Any] = json.loads(stream.read(SIZE.unpack(head)[0]))
    return values


def _write(stream: BinaryIO, value: Values) -> None:
    content = json.dumps(value).encode()
    stream.write(SIZE.pack(len(content)) + content)
    stream.flush()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server decides when it ends
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    start = _read(requests)
    checker = Checker(start)
    _bound(start)
    _write(answers, {})
    while True:
        signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            request = _read(requests)
        except EOFError:
            return
        signal.setitimer(signal.ITIMER_REAL, start["limit_s"])
        try:
            answer = checker.check(request)
        except RefusedError as error:
            answer = error.answer | {"is_refused": True}
        except MemoryError:
            sys.exit(1)  # as where the process is killed: the server says which limits there are
        except BaseException as error:  # a panic of the library is no Exception
            answer = {"is_refused": True, "error": f"panic: {type(error).__name__}"}
        _write(answers, answer)


if __name__ == "__main__":
    main()
