"""Triton's traces: which requests are traced, and files with the time stamps of each.

Settings are the server's, and a model's own if it has any. One thread appends traces to files: no
request waits for the disk, and if the disk is too slow, traces are dropped and
counted. The files are valid JSON at any time between two writes.

A file's name may come from a client, so it must be a bare name in a folder that the operator
chose; without a folder nothing is traced. All methods except the thread's run on the event loop.
"""

import json
import logging
import os
import queue
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from service.errors import InvalidArgument, SettingError, Unimplemented
from service.records import EndedRequest, Observer

MAX_WAITING = 4_096  # traces for the thread to write; the next is dropped
MAX_FILES = 1_000  # written by one server; traces for further ones are dropped
MAX_BYTES = 2**30  # of all files together
MAX_REQUEST_ID = 256  # characters of a request's id in a trace
DEFAULT_FILE = "trace.json"
_FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,19}")
_UINT32, _INT32 = 2**32 - 1, 2**31 - 1
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """Trace settings by the protocol's names, with Triton's defaults."""

    trace_level: tuple[str, ...] = ("OFF",)
    trace_rate: int = 1_000  # one of this number of requests
    trace_count: int = -1  # traces until no more are made; -1: no end
    log_frequency: int = 0  # traces per file, which are then numbered; 0: all in one
    trace_file: str = ""
    trace_mode: str = "triton"


class Sampler:
    """Counts the requests that share settings, and says which of them are traced."""

    def __init__(self, settings: TraceSettings) -> None:
        self.settings = settings
        self.is_on = settings.trace_level != ("OFF",) and settings.trace_count != 0
        self._num_requests = 0
        self._num_traces = 0

    def next_file(self) -> str | None:
        """Count a request; where its trace belongs, or None where it is not traced."""
        settings = self.settings
        self._num_requests += 1
        if self._num_requests % settings.trace_rate:
            return None
        number, self._num_traces = self._num_traces, self._num_traces + 1
        self.is_on = self._num_traces != settings.trace_count
        if not settings.log_frequency:
            return settings.trace_file
        return f"{settings.trace_file}.{number // settings.log_frequency}"

    def to_protocol(self) -> dict[str, list[str]]:
        """Every setting as lists of words; of `trace_count` what is left."""
        settings = asdict(self.settings)
        if settings["trace_count"] > 0:
            settings["trace_count"] -= self._num_traces
        return {
            key: list(value) if isinstance(value, tuple) else [str(value)]
            for key, value in settings.items()
        }


class ModelTracer(Observer):
    """Counts the requests that a model version answers, and writes the traces of some."""

    def __init__(self, tracing: "Tracing", name: str, version: int) -> None:
        self._tracing = tracing
        self._name = name
        self._version = version

    def request_ended(self, request: EndedRequest) -> None:
        sampler = self._tracing.samplers[self._name]
        file = sampler.next_file() if sampler.is_on and request.error is None else None
        if file is not None:
            self._tracing.write(file, _to_json(self._name, self._version, request))


class Tracing:
    """The settings of a server and of its models, and the thread that writes."""

    def __init__(self, folder: Path | None = None) -> None:
        if folder is not None and not folder.is_dir():
            raise SettingError(f"--trace-folder is '{folder}', which is not a folder")
        self._writer = TraceWriter(folder) if folder is not None else None
        self._defaults = TraceSettings(trace_file=DEFAULT_FILE if folder is not None else "")
        self._global_changes: dict[str, Any] = {}
        self._changes: dict[str, dict[str, Any]] = {}  # of models with settings of their own
        self._sampler = Sampler(self._defaults)
        self.samplers: dict[str, Sampler] = {}  # of each model, the server's or its own
        self.write = self._writer.put if self._writer else _nowhere

    def for_model(self, name: str, version: int) -> ModelTracer:
        """The observer of a model version; all versions of a model share settings."""
        self.samplers.setdefault(name, self._sampler)
        return ModelTracer(self, name, version)

    def settings(self, name: str = "") -> dict[str, list[str]]:
        """The settings in effect for a model, or for all models without their own."""
        return (self.samplers[name] if name else self._sampler).to_protocol()

    def update(self, settings: Mapping[str, Sequence[str]], name: str = "") -> None:
        """Change some settings, all or none; no value takes the server's, or the default, again.

        Counting starts anew with these settings.
        """
        changes = dict(self._changes.get(name, {}) if name else self._global_changes)
        for key, values in settings.items():
            if key not in _PARSERS:
                raise InvalidArgument(f"unknown trace setting '{key}', expected {_KEYS}")
            changes.pop(key, None)
            if values:
                changes[key] = _PARSERS[key](values)
        self._check_folder(changes)
        if name:
            self._changes[name] = changes
            self.samplers[name] = self._sampler_of(changes)
            return
        self._global_changes = changes
        before, self._sampler = self._sampler, Sampler(replace(self._defaults, **changes))
        for model, present in self.samplers.items():
            sampler = self._sampler_of(self._changes.get(model, {}))
            if present is before or present.settings != sampler.settings:
                self.samplers[model] = sampler

    def close(self, timeout_s: float) -> None:
        """Write what waits, or as much as the time allows; blocks meanwhile."""
        if self._writer is not None:
            self._writer.close(timeout_s)

    def _sampler_of(self, changes: Mapping[str, Any]) -> Sampler:
        return Sampler(replace(self._sampler.settings, **changes)) if changes else self._sampler

    def _check_folder(self, changes: Mapping[str, Any]) -> None:
        if self._writer is not None:
            return
        if "trace_file" in changes:
            raise Unimplemented("trace file location can not be updated through network protocol")
        if changes.get("trace_level", ("OFF",)) != ("OFF",):
            raise Unimplemented(
                f"trace_level is '{changes['trace_level'][0]}', but there is no folder for "
                "traces: see the server's setting --trace-folder"
            )


class TraceWriter:
    """Appends traces to files of one folder, on a thread of its own."""

    def __init__(self, folder: Path) -> None:
        self.num_dropped = 0
        self._folder = folder
        self._waiting: queue.Queue[tuple[str, str] | None] = queue.Queue(MAX_WAITING)
        self._sizes: dict[str, int] = {}  # bytes by file; the thread's own
        self._thread = threading.Thread(target=self._work, name="traces", daemon=True)
        self._thread.start()

    def put(self, file: str, trace: str) -> None:
        """Write a JSON object some time later, or drop it where too many wait."""
        try:
            self._waiting.put_nowait((file, trace))
        except queue.Full:
            self._drop(1, "the disk is too slow")

    def close(self, timeout_s: float) -> None:
        try:
            self._waiting.put(None, timeout=timeout_s)
        except queue.Full:
            return
        self._thread.join(timeout_s)

    def _work(self) -> None:
        is_open = True
        while is_open:
            by_file: dict[str, list[str]] = {}
            taken = self._waiting.get()
            while taken is not None:
                by_file.setdefault(taken[0], []).append(taken[1])
                if self._waiting.empty():
                    break
                taken = self._waiting.get()
            is_open = taken is not None
            for file, traces in by_file.items():
                try:
                    self._append(file, traces)
                except OSError as error:
                    self._drop(len(traces), str(error))

    def _append(self, file: str, traces: list[str]) -> None:
        """Add to an array, in place of its closing bracket; begin the file where it is new."""
        text = ",\n".join(traces).encode()
        size = self._sizes.get(file, 0)
        if sum(self._sizes.values()) + len(text) > MAX_BYTES:
            self._drop(len(traces), f"the files have {MAX_BYTES} bytes, which is the limit")
            return
        if not size and len(self._sizes) >= MAX_FILES:
            self._drop(len(traces), f"there are {MAX_FILES} files, which is the limit")
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        number = os.open(self._folder / file, flags if size else flags | os.O_TRUNC, 0o600)
        with os.fdopen(number, "wb", buffering=0) as opened:  # so that a full disk is heard of here
            self._sizes[file] = size
            opened.seek(max(0, size - 1))
            added = (b",\n" if size else b"[") + text + b"]"
            if opened.write(added) < len(added):  # as it was, and closed again
                opened.truncate(size)
                os.pwrite(number, b"]"[:size], max(0, size - 1))
                raise OSError("the disk is full")
            self._sizes[file] = opened.tell()

    def _drop(self, num_traces: int, reason: str) -> None:
        """The log tells of it once; counted on two threads, so that it is about right."""
        if not self.num_dropped:
            logger.warning("traces are dropped: %s", reason)
        self.num_dropped += num_traces


def _to_json(name: str, version: int, request: EndedRequest) -> str:
    """A trace as Triton's tools read it; a request of several batches has their times summed."""
    timings = request.timings
    input_end_s = timings.started_s + timings.collate_s
    output_start_s = input_end_s + timings.run_s
    stations = {
        "REQUEST_START": timings.received_s,
        "QUEUE_START": timings.queued_s,
        "COMPUTE_START": timings.started_s,
        "COMPUTE_INPUT_END": input_end_s,
        "COMPUTE_OUTPUT_START": output_start_s,
        "COMPUTE_END": output_start_s + timings.split_s,
        "REQUEST_END": timings.finished_s,
    }
    trace = {
        "id": next(_ids),
        "model_name": name,
        "model_version": version,
        "request_id": request.request_id[:MAX_REQUEST_ID],
        "timestamps": [
            {"name": station, "ns": round(time_s * 1e9)} for station, time_s in stations.items()
        ],
    }
    return json.dumps(trace)


_ids = count(1)


def _nowhere(file: str, trace: str) -> None:
    raise AssertionError(f"no folder for {file} and {trace}: levels but OFF are refused")


def _level(values: Sequence[str]) -> tuple[str, ...]:
    for value in values:
        if value not in ("OFF", "TIMESTAMPS", "TENSORS"):
            raise InvalidArgument(
                f"Unable to parse 'trace_level', got: {value}; expected OFF, TIMESTAMPS or TENSORS"
            )
    if "OFF" in values and len(values) > 1:
        raise InvalidArgument("Expect only one trace level 'OFF' is specified")
    if "TENSORS" in values:
        raise Unimplemented("trace_level TENSORS is not offered by this server")
    return (values[0],)


def _single(key: str, values: Sequence[str]) -> str:
    if len(values) > 1:
        raise InvalidArgument(f"expect only 1 value for '{key}'")
    return values[0]


def _number(values: Sequence[str], *, key: str, low: int, high: int) -> int:
    value = _single(key, values)
    if not _WHOLE_NUMBER.fullmatch(value):
        raise InvalidArgument(f"Unable to parse '{key}', got: {value}")
    if not low <= int(value) <= high:
        raise InvalidArgument(
            f"Unable to parse '{key}', value is out of range [ {low}, {high} ], got: {value}"
        )
    return int(value)


def _file_name(values: Sequence[str]) -> str:
    value = _single("trace_file", values)
    if not _FILE_NAME.fullmatch(value):
        raise InvalidArgument(
            f"Unable to parse 'trace_file', got: {value}; expected a file's name without a folder, "
            "of at most 128 letters, digits, '.', '_' and '-'"
        )
    return value


def _mode(values: Sequence[str]) -> str:
    value = _single("trace_mode", values)
    if value == "opentelemetry":
        raise Unimplemented("trace_mode opentelemetry is not offered by this server")
    if value != "triton":
        raise InvalidArgument(f"Unable to parse 'trace_mode', got: {value}; expected triton")
    return value


_PARSERS: dict[str, Callable[[Sequence[str]], Any]] = {
    "trace_level": _level,
    "trace_rate": partial(_number, key="trace_rate", low=1, high=_UINT32),
    "trace_count": partial(_number, key="trace_count", low=-1, high=_INT32),
    "log_frequency": partial(_number, key="log_frequency", low=0, high=_UINT32),
    "trace_file": _file_name,
    "trace_mode": _mode,
}
_KEYS = ", ".join(_PARSERS)
