"""Processes in which grammars are compiled before the server does; see `worker.py`.

One is started with the first grammar and kept; more where several are compiled at once, and these
end with their grammar. A process that reaches a bound ends, and another takes its place.
"""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from service.errors import Unavailable
from service.runtime.worker_process import WorkerProcess

WORKER = Path(__file__).with_name("worker.py")
MAX_BYTES = 2**28  # of address space beside the vocabulary's, while a grammar is compiled
MAX_GRAMMAR_BYTES = 2**26  # of what is kept of one; 900 properties take 4 MB
MAX_FORCED_BYTES = 2**16  # of a text that must come next; a grammar has no more characters
# Of the stack, where the library's own depth ends the process; a thread of the server has 2 MiB.
STACK_BYTES = 3 * 2**19
START_S = 60.0  # for a process to read the vocabulary; 0.4 s for 100,000 tokens on an idle machine
# Beyond the server's limit of time; the server has ended the process by then, unless it is gone.
EXTRA_S = 1


class GrammarProcesses:
    """Processes that compile grammars for one vocabulary.

    `_idle`, `_busy` and `_is_closed` are guarded by `_lock`, which is held for moments only.
    """

    def __init__(
        self,
        tokens: list[bytes],
        eos_token_ids: list[int],
        limits: Mapping[str, Any],
        limit_s: float,
    ) -> None:
        self._start_frame = {
            "tokens": [token.decode("latin-1") for token in tokens],
            "eos_token_ids": eos_token_ids,
            "limits": dict(limits),
            "limit_s": limit_s + EXTRA_S,
            "max_bytes": MAX_BYTES,
            "max_grammar_bytes": MAX_GRAMMAR_BYTES,
            "max_forced_bytes": MAX_FORCED_BYTES,
            "stack_bytes": STACK_BYTES,
        }
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._idle: WorkerProcess | None = None
        self._busy: set[WorkerProcess] = set()
        self._is_closed = False

    def check(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The process's answer. Blocks.

        Raises `TimeoutError` where it was late, `EOFError` where the grammar ended the process, and
        `Unavailable` where none can be started.
        """
        if (kept := self._kept()) is not None:
            try:
                return self._checked(kept, request)
            except EOFError:  # it may have ended before, for want of memory on the machine
                pass
        return self._checked(self._started(), request)

    def close(self) -> None:
        """End them all; called on any thread."""
        with self._lock:
            self._is_closed = True
            processes = [*self._busy, *([self._idle] if self._idle else [])]
            self._idle = None
        for process in processes:
            process.close()

    @property
    def pid(self) -> int | None:
        """The process that is ready, if there is one."""
        with self._lock:
            return self._idle.pid if self._idle is not None else None

    def _checked(self, process: WorkerProcess, request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            answer = process.exchange(request, self._limit_s)
        except TimeoutError:
            self._end(process)
            raise
        except (OSError, EOFError, ValueError) as error:
            self._end(process)
            raise EOFError from error
        self._give_back(process)
        return answer

    def _kept(self) -> WorkerProcess | None:
        with self._lock:
            self._check_open()
            process, self._idle = self._idle, None
            if process is not None:
                self._busy.add(process)
        return process

    def _started(self) -> WorkerProcess:
        try:
            process = WorkerProcess(WORKER, is_silent=True)
        except OSError as error:
            raise Unavailable(f"cannot start the process of grammars: {error}") from error
        try:
            with self._lock:
                self._check_open()
                self._busy.add(process)
            process.exchange(self._start_frame, START_S)
        except Unavailable:
            process.close()
            raise
        except (OSError, EOFError) as error:
            self._end(process)
            raise Unavailable("the process of grammars does not start") from error
        return process

    def _give_back(self, process: WorkerProcess) -> None:
        with self._lock:
            self._busy.discard(process)
            is_kept = self._idle is None and not self._is_closed
            if is_kept:
                self._idle = process
        if not is_kept:
            process.close()

    def _end(self, process: WorkerProcess) -> None:
        with self._lock:
            self._busy.discard(process)
        process.close()

    def _check_open(self) -> None:
        """The lock is held."""
        if self._is_closed:
            raise Unavailable("the model is being unloaded")
