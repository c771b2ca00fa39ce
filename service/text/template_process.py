"""The process that renders a model's chat templates, and its bounds; see `template_worker.py`.

One render at a time, on the caller's thread. A process that reaches a bound is killed, and the next
render starts a new one.
"""

import signal
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.errors import InvalidArgument, LoadError, ModelFailed, Unavailable
from service.runtime.worker_process import WorkerProcess

WORKER = Path(__file__).with_name("template_worker.py")
# Of address space. The interpreter and jinja2 take 30 MB, a prompt of a million characters 10.
MAX_BYTES = 2**29
START_S = 20.0  # for a process to start; about 0.1 s on an idle machine
REAP_S = 0.1  # for a process that has closed its connection to be gone
# Exit codes of a process at its bound: no memory, no time, no stack, an abort for want of memory.
AT_A_BOUND = (1, -signal.SIGALRM, -signal.SIGSEGV, -signal.SIGABRT)


@dataclass(frozen=True, slots=True)
class TemplateLimits:
    """The bounds of one render."""

    limit_s: float
    max_characters: int  # of the result


class TemplateProcess:
    """Renders for one model.

    `_process` and `_is_closed` are guarded by `_lock`, which is held for moments only:
    `close` ends a render that is under way.
    """

    def __init__(
        self, texts: Mapping[str, str], special_tokens: Mapping[str, str], limits: TemplateLimits
    ) -> None:
        """Start the process. Raises `LoadError` for a template that cannot be read."""
        self._start_frame = {
            "texts": dict(texts),
            "special_tokens": dict(special_tokens),
            "limit_s": limits.limit_s,
            "max_characters": limits.max_characters,
            "max_bytes": MAX_BYTES,
        }
        self._limits = limits
        self._lock = threading.Lock()
        self._process: WorkerProcess | None = None
        self._is_closed = False
        self._start()

    @property
    def pid(self) -> int | None:
        """The process that is ready, if there is one."""
        with self._lock:
            return self._process.pid if self._process is not None else None

    def render(self, request: Mapping[str, Any]) -> str:
        """The text. Blocks; raises `InvalidArgument` for what the template refuses or cannot do.

        `Unavailable` while the model is being unloaded, `ModelFailed` where the process was killed
        by another.
        """
        if self._process is None:
            self._start()
        answer = self._exchange(request, self._limits.limit_s)
        if answer is None:
            raise InvalidArgument(
                f"the chat template did not render the messages in {self._limits.limit_s:g} s and "
                f"{MAX_BYTES // 2**20} MiB, which are the limits (--chat-template-timeout-s)",
                "messages",
            )
        if "error" in answer:
            raise InvalidArgument(answer["error"], "messages")
        return answer["text"]

    def close(self) -> None:
        """End the process, and what it renders; called on any thread."""
        with self._lock:
            self._is_closed = True
        self._end()

    def _start(self) -> None:
        try:
            process = WorkerProcess(WORKER)
        except OSError as error:
            raise LoadError(f"cannot start the process of chat templates: {error}") from error
        with self._lock:
            is_closed = self._is_closed
            if not is_closed:
                self._process = process
        if is_closed:
            process.close()
            raise Unavailable("the model is being unloaded")
        answer = self._exchange(self._start_frame, START_S)
        if answer is None:
            raise LoadError("the chat template cannot be read within its bounds of time and memory")
        if "error" in answer:
            self._end()
            raise LoadError(f"the chat template cannot be read: {answer['error']}")

    def _exchange(self, value: Mapping[str, Any], limit_s: float) -> dict[str, str] | None:
        """The answer to a frame; None where the process reached a bound, and is gone.

        Raises `Unavailable` and `ModelFailed` where it ended for another reason.
        """
        process = self._process
        assert process is not None, "the process was started"
        try:
            return process.exchange(value, limit_s)
        except (OSError, EOFError) as error:
            code = self._end(REAP_S)
            with self._lock:
                is_closed = self._is_closed
            if is_closed:
                raise Unavailable("the model is being unloaded") from error
            if isinstance(error, TimeoutError) or code in AT_A_BOUND:
                return None
            raise ModelFailed(f"the process of chat templates has ended: {code}") from error

    def _end(self, reap_s: float = 0.0) -> int | None:
        """End the process, which may do so by itself for a moment; its exit code."""
        with self._lock:
            process, self._process = self._process, None
        return process.close(reap_s) if process is not None else None
