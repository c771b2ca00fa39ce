"""The form of log lines: for people on a console, or a JSON object a line for programs.

What clients send may be in any message, so that no character of it may end a line or steer a
terminal. Errors that repeat are counted instead of written.

Which messages are logged and how they look, changed while serving; Triton's log settings.

Acts on one logger's handlers, by default the root's, and on nothing before the first change.
"""

import json
import logging
import re
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.console import Console
from rich.logging import RichHandler

from service.errors import InvalidArgument, Unimplemented
from service.records import ObservedCall, current_call

CONSOLE_TIMES = {"default": "%H:%M:%S", "ISO8601": "%Y-%m-%dT%H:%M:%SZ"}  # by Triton's names
MAX_TRACEBACK = 16 * 2**10  # characters
MAX_KINDS = 256  # of lines whose repetitions are counted
MAX_KIND = 256  # characters that tell one from another
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_PLAIN = re.compile(r"[\w./:-]+", re.ASCII)
requests = logging.getLogger("attendant.requests")


class ConsoleFormatter(logging.Formatter):
    """Time and message on one line, a traceback's lines below it, set in."""

    def __init__(self, times: str = "default", *, has_level: bool = False) -> None:
        level = "%(levelname)s %(name)s: " if has_level else ""
        super().__init__(f"%(asctime)s {level}%(message)s", CONSOLE_TIMES[times])
        self.has_level = has_level
        self.converter = time.gmtime if times == "ISO8601" else time.localtime

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        words = [
            f"{name}={value if _PLAIN.fullmatch(str(value)) else json.dumps(value)}"
            for name, value in _call_fields(getattr(record, "call", None)).items()
        ]
        if num_left_out := getattr(record, "num_left_out", 0):
            words.append(f"[{num_left_out} more like this were not logged]")
        return " ".join((_escaped(super().formatMessage(record)), *words))

    def formatException(self, ei: Any) -> str:  # noqa: ANN401, N802
        return _set_in(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802
        return _set_in(super().formatStack(stack_info))


class JsonFormatter(logging.Formatter):
    """One JSON object, ASCII only: readers decode its escapes."""

    def format(self, record: logging.LogRecord) -> str:
        milliseconds = round(record.created * 1e3)
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(milliseconds // 1000))
        fields = {
            "time": f"{seconds}.{milliseconds % 1000:03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_call_fields(getattr(record, "call", None) or _open_call()),
        }
        if num_left_out := getattr(record, "num_left_out", 0):
            fields["num_left_out"] = num_left_out
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)[-MAX_TRACEBACK:]
        return json.dumps(fields)


class RepetitionFilter(logging.Filter):
    """A filter that passes a number of similar warnings and errors per second and counts the rest.

    A kind is a logger and a message before its arguments are filled in. Of more kinds than
    `MAX_KINDS` the one that came first is forgotten.
    """

    def __init__(self, max_per_s: int) -> None:
        super().__init__()
        self._max_per_s = max_per_s
        self._lock = threading.Lock()
        # By kind: when the present second began, what passed in it, and what did not.
        self._kinds: dict[tuple[str, str], tuple[float, int, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        kind = record.name, str(record.msg)[:MAX_KIND]
        now_s = time.monotonic()
        with self._lock:
            began_s, num_passed, num_left_out = self._kinds.get(kind, (now_s, 0, 0))
            if now_s - began_s >= 1:
                began_s, num_passed = now_s, 0
            passes = num_passed < self._max_per_s
            after = (num_passed + 1, 0) if passes else (num_passed, num_left_out + 1)
            self._kinds[kind] = began_s, *after
            if len(self._kinds) > MAX_KINDS:
                del self._kinds[next(iter(self._kinds))]
        if passes:
            record.num_left_out = num_left_out
        return passes


class RequestLog:
    """A line for every request that ended. Off, it only has requests known to other lines."""

    def __init__(self, *, is_on: bool) -> None:
        self._is_on = is_on

    def began(self, call: ObservedCall, metadata: Iterable[object]) -> None:
        """No-op: a call is logged when it ends."""

    def ended(self, call: ObservedCall) -> None:
        if self._is_on:
            requests.info("%s %s", call.method, call.status, extra={"call": call})


class LostAnswers(logging.Filter):
    """Leaves out a traceback of gRPC's: a client was gone by the time its answer was sent."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith("ExecuteBatchError raised in core")


def configure(log_format: str, level: str, max_repeats: int, console: Console) -> None:
    """Set up the root logger: JSON, or lines that are coloured where a terminal reads them."""
    log_to: logging.Handler
    if log_format == "json":
        log_to = logging.StreamHandler()
        log_to.setFormatter(JsonFormatter())
    elif console.is_terminal:
        log_to = RichHandler(console=console, show_time=False)  # the formatter writes it
        log_to.setFormatter(ConsoleFormatter())
    else:
        log_to = logging.StreamHandler()
        log_to.setFormatter(ConsoleFormatter(has_level=True))
    log_to.addFilter(LostAnswers())
    log_to.addFilter(RepetitionFilter(max_repeats))
    logging.basicConfig(level=level.upper(), handlers=[log_to])


def set_times(handler: logging.Handler, times: str) -> None:
    """Change how lines say the time, by Triton's names; JSON has one way only."""
    formatter = handler.formatter
    if not isinstance(formatter, JsonFormatter):
        has_level = isinstance(formatter, ConsoleFormatter) and formatter.has_level
        handler.setFormatter(ConsoleFormatter(times, has_level=has_level))


def _open_call() -> ObservedCall | None:
    """The request of this task; not that of which the task was born, and which has ended."""
    call = current_call.get()
    return None if call is None or call.finished_s else call


def _call_fields(call: ObservedCall | None) -> dict[str, str | float]:
    """The known data of a request, by the names in log lines."""
    if call is None:
        return {}
    fields: dict[str, str | float] = {
        "request_id": call.request_id,
        "trace_id": call.trace_id,
        "model": call.model,
        "version": call.version,
        "method": f"{call.service}/{call.method}",
        "protocol": call.protocol,
    }
    if call.finished_s:
        fields["status"] = call.status
        fields["duration_s"] = round(call.finished_s - call.started_s, 6)
        fields["error"] = call.error
    return {name: value for name, value in fields.items() if value != ""}


def _escaped(text: str) -> str:
    return _CONTROLS.sub(lambda match: ascii(match[0])[1:-1], text)


def _set_in(text: str) -> str:
    lines = text[-MAX_TRACEBACK:].split("\n")
    return "\n".join(f"    {_escaped(line)}" for line in lines)


@dataclass(frozen=True, slots=True)
class LogValues:
    """Log settings by the protocol's names."""

    log_file: str = ""  # cannot be set: what is logged goes to standard error
    log_info: bool = True
    log_warning: bool = True
    log_error: bool = True
    log_verbose_level: int = 0  # above 0 debug messages are logged
    log_format: str = "default"

    def lets_pass(self, level: int) -> bool:
        """Whether messages of this level of `logging` are logged."""
        if level < logging.INFO:
            return self.log_verbose_level > 0
        if level < logging.WARNING:
            return self.log_info
        return self.log_warning if level < logging.ERROR else self.log_error


class LogFilter(logging.Filter):
    """The filter of the logger's handlers; it follows the logger's level until it is changed."""

    def __init__(self, logger: logging.Logger | None = None) -> None:
        super().__init__()
        self._logger = logger or logging.getLogger()
        level = self._logger.getEffectiveLevel()
        self.values = LogValues(
            log_info=level <= logging.INFO,
            log_warning=level <= logging.WARNING,
            log_error=level <= logging.ERROR,
            log_verbose_level=int(level <= logging.DEBUG),
        )

    def filter(self, record: logging.LogRecord) -> bool:
        return self.values.lets_pass(record.levelno)

    def update(self, changes: Mapping[str, bool | int | str | None]) -> None:
        """Change some settings, all or none."""
        for key, value in changes.items():
            _check(key, value)
        self.values = replace(self.values, **changes)  # type: ignore[arg-type]
        levels = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
        passing = (level for level in levels if self.values.lets_pass(level))
        self._logger.setLevel(next(passing, logging.CRITICAL))
        for handler in self._logger.handlers:
            handler.addFilter(self)
            if "log_format" in changes:
                set_times(handler, self.values.log_format)


def _check(key: str, value: bool | int | str | None) -> None:
    known = asdict(LogValues())
    if key not in known:
        raise InvalidArgument(f"unknown log setting '{key}', expected {', '.join(known)}")
    if key == "log_file":
        raise Unimplemented("log file location can not be updated through network protocol")
    if type(value) is not type(known[key]):
        expected = {bool: "boolean", int: "int32", str: "string"}[type(known[key])]
        raise InvalidArgument(f"expect {expected} for '{key}'")
    if key == "log_format" and value not in CONSOLE_TIMES:
        raise InvalidArgument(f"invalid argument for log_format, got: {value}")
