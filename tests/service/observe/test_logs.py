"""How lines look, which are left out, and what they say of the request they are about."""

import json
import logging
import time
from collections.abc import Iterator
from datetime import datetime
from io import StringIO
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tritonclient.grpc import service_pb2 as pb

from service.api.calls import MAX_CHARACTERS, _names
from service.errors import SettingError
from service.observe import logs
from service.observe.logs import (
    ConsoleFormatter,
    JsonFormatter,
    LogFilter,
    LostAnswers,
    RepetitionFilter,
)
from service.observe.metrics import ModelMetrics
from service.records import ObservedCall, current_call
from service.settings import Settings
from tests.fakes.log_lines import Lines
from tests.fakes.serving import refusal, serving, simple_request

_numbers = count()
HOSTILE = "a\nERROR forged\r\x1b[2Jb\u2028c\u202ed\x00\x85e\x7f"


class Logger:
    """A logger of its own, and the lines of its handler."""

    def __init__(self, formatter: logging.Formatter) -> None:
        self.handler = Lines()
        self.handler.setFormatter(formatter)
        self.log = logging.getLogger(f"tests.logs.{next(_numbers)}")
        self.log.propagate = False
        self.log.setLevel(logging.INFO)
        self.log.addHandler(self.handler)

    @property
    def lines(self) -> list[str]:
        return self.handler.lines


@pytest.fixture
def call() -> Iterator[ObservedCall]:
    """The request that this test answers."""
    made = ObservedCall("S", "M", 10.0, model="m", version="2", request_id="r", trace_id="t" * 32)
    token = current_call.set(made)
    yield made
    current_call.reset(token)


def _json(text: str) -> dict[str, Any]:
    assert "\n" not in text
    assert text.isascii()
    found: dict[str, Any] = json.loads(text)
    return found


def test_a_json_line_has_time_level_logger_and_message() -> None:
    logger = Logger(JsonFormatter())
    before = time.time()
    logger.log.warning("model '%s' is %d", "m", 3)
    found = _json(logger.lines[0])
    stamp = datetime.fromisoformat(found.pop("time")).timestamp()
    assert before - 0.001 <= stamp <= time.time() + 0.001
    assert found == {"level": "warning", "logger": logger.log.name, "message": "model 'm' is 3"}


def test_a_json_line_names_the_request_that_the_task_answers(call: ObservedCall) -> None:
    logger = Logger(JsonFormatter())
    logger.log.error("it failed")
    assert (
        _json(logger.lines[0]).items()
        >= {
            "request_id": "r",
            "trace_id": "t" * 32,
            "model": "m",
            "version": "2",
            "method": "S/M",
        }.items()
    )
    call.finished_s = 11.0
    logger.log.error("much later, of a task that it started")
    assert "request_id" not in _json(logger.lines[1])


@pytest.mark.parametrize("formatter", [JsonFormatter(), ConsoleFormatter()])
def test_what_a_client_sends_breaks_no_line(formatter: logging.Formatter) -> None:
    logger = Logger(formatter)
    logger.log.error("unknown model '%s'", HOSTILE)
    (line,) = logger.lines
    assert line.isprintable()
    assert len(line.splitlines()) == 1
    assert r"a\nERROR forged\r" in line


@pytest.mark.parametrize("formatter", [JsonFormatter(), ConsoleFormatter()])
def test_nor_what_an_exception_says(formatter: logging.Formatter) -> None:
    logger = Logger(formatter)
    error = ValueError(HOSTILE)
    logger.log.error("it failed", exc_info=error)
    first, *others = logger.lines[0].splitlines()
    assert "it failed" in first
    assert all(line.startswith("    ") and line.isprintable() for line in others)
    assert "ValueError: a" in logger.lines[0]


def test_a_console_line_has_what_is_known_of_its_request() -> None:
    call = ObservedCall(
        "S", "M", 10.0, "m", "1", 'r" model=other', 10.25, 3, "INVALID_ARGUMENT", "no\n"
    )
    logger = Logger(ConsoleFormatter("ISO8601", has_level=True))
    logger.log.info("M", extra={"call": call})
    assert logger.lines[0].split(" ", 1)[1] == (
        rf'INFO {logger.log.name}: M request_id="r\" model=other" model=m version=1 method=S/M '
        r'protocol=grpc status=INVALID_ARGUMENT duration_s=0.25 error="no\n"'
    )


def test_errors_that_repeat_are_counted_and_others_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    logger = Logger(JsonFormatter())
    logger.handler.addFilter(RepetitionFilter(2))
    for number in range(5):
        logger.log.error("model %d is broken", number)
        logger.log.info("a line")
    logger.log.error("another kind")
    texts = [_json(line)["message"] for line in logger.lines]
    assert [text for text in texts if text != "a line"] == [
        "model 0 is broken",
        "model 1 is broken",
        "another kind",
    ]
    assert texts.count("a line") == 5
    now_s = 101.0
    logger.log.error("model %d is broken", 9)
    logger.log.error("model %d is broken", 10)
    assert [_json(line).get("num_left_out") for line in logger.lines[-2:]] == [3, None]


def test_an_answer_whose_client_is_gone_is_no_error_of_the_server() -> None:
    """GRPC logs it with a traceback, where the deadline passes as the answer leaves."""
    logger = Logger(JsonFormatter())
    logger.handler.addFilter(LostAnswers())
    logger.log.error("ExecuteBatchError raised in core by servicer method [%s]", "/a/B")
    logger.log.error("Unexpected [%s] raised by servicer method", "E")
    assert [_json(line)["message"] for line in logger.lines] == [
        "Unexpected [E] raised by servicer method"
    ]


def test_the_count_is_on_a_console_line_too() -> None:
    record = logging.makeLogRecord({"msg": "it failed", "num_left_out": 7})
    assert ConsoleFormatter().format(record).endswith("[7 more like this were not logged]")


def test_kinds_that_are_remembered_are_bounded() -> None:
    repetitions = RepetitionFilter(1)
    for number in range(3 * logs.MAX_KINDS):
        record = logging.makeLogRecord({"msg": f"{number} {'x' * 10_000}", "levelno": 40})
        assert repetitions.filter(record)
    assert len(repetitions._kinds) == logs.MAX_KINDS


def test_triton_s_log_settings_go_on_working_with_json() -> None:
    logger = Logger(JsonFormatter())
    settings = LogFilter(logger.log)
    settings.update({"log_format": "ISO8601", "log_info": False})
    logger.log.info("left out")
    logger.log.warning("it is")
    (line,) = logger.lines
    assert _json(line)["message"] == "it is"


def test_a_console_keeps_its_levels_when_the_times_change() -> None:
    logger = Logger(ConsoleFormatter(has_level=True))
    LogFilter(logger.log).update({"log_format": "ISO8601"})
    logger.log.warning("it is")
    stamp, rest = logger.lines[0].split(" ", 1)
    assert datetime.fromisoformat(stamp)
    assert rest == f"WARNING {logger.log.name}: it is"


@pytest.mark.parametrize(
    ("log_format", "is_terminal", "kind"),
    [
        ("console", True, "RichHandler"),
        ("console", False, "StreamHandler"),
        ("json", True, "StreamHandler"),
    ],
)
def test_only_a_terminal_gets_colours(
    monkeypatch: pytest.MonkeyPatch, log_format: str, is_terminal: bool, kind: str
) -> None:
    root = logging.RootLogger(logging.WARNING)
    monkeypatch.setattr(logging, "root", root)
    console = Console(file=StringIO(), force_terminal=is_terminal)
    logs.configure(log_format, "debug", 5, console)
    (handler,) = root.handlers
    assert type(handler).__name__ == kind
    assert root.level == logging.DEBUG
    assert isinstance(handler.formatter, JsonFormatter) == (log_format == "json")


@pytest.fixture
def json_lines() -> Iterator[Logger]:
    """What the server logs, of any logger, as JSON."""
    made = Logger(JsonFormatter())
    root, level = logging.getLogger(), logging.getLogger().level
    root.addHandler(made.handler)
    root.setLevel(logging.INFO)
    yield made
    root.removeHandler(made.handler)
    root.setLevel(level)


def _requests(logger: Logger) -> list[dict[str, Any]]:
    found = [_json(line) for line in logger.lines]
    return [line for line in found if line["logger"] == "attendant.requests"]


async def test_each_request_has_one_line_where_that_is_asked(
    models: Path, json_lines: Logger
) -> None:
    good, bad = simple_request(), simple_request()
    good.id, bad.id, bad.model_name = "good", "bad", "no\nbody"
    async with serving(models, log_requests=True) as served:
        await served.inference.ServerLive(pb.ServerLiveRequest())  # a probe
        await served.inference.ModelInfer(good)
        await refusal(served.inference.ModelInfer(bad))
        _ = [answer async for answer in served.inference.ModelStreamInfer(iter([good, bad]))]
    found = _requests(json_lines)
    told = [(line["message"], line["request_id"], line["model"], line["status"]) for line in found]
    assert sorted(told) == [
        ("ModelInfer NOT_FOUND", "bad", "no\nbody", "NOT_FOUND"),
        ("ModelInfer OK", "good", "simple", "OK"),
        ("ModelStreamInfer NOT_FOUND", "bad", "no\nbody", "NOT_FOUND"),
        ("ModelStreamInfer OK", "good", "simple", "OK"),
    ]
    for line in found:
        assert 0 < line["duration_s"] < 60
        assert line["method"].startswith("inference.GRPCInferenceService/Model")
        assert ("error" in line) == (line["status"] != "OK")
    assert {line.get("version") for line in found if line["status"] == "OK"} == {"1"}


@pytest.mark.parametrize("settings", [{}, {"log_format": "json"}])
async def test_none_has_any_where_it_is_not(
    models: Path, json_lines: Logger, settings: dict[str, Any]
) -> None:
    async with serving(models, **settings) as served:
        await served.inference.ModelInfer(simple_request())
    assert not _requests(json_lines)


async def test_an_error_inside_the_server_names_its_request(
    models: Path, json_lines: Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    request = simple_request()
    request.id = "mine"
    async with serving(models, log_format="json") as served:
        monkeypatch.setattr(ModelMetrics, "request_ended", fail)
        await refusal(served.inference.ModelInfer(request))
    (line,) = [line for line in map(_json, json_lines.lines) if line["level"] == "error"]
    assert (line["message"], line["request_id"]) == ("ModelInfer failed", "mine")
    assert line["exception"].endswith("RuntimeError: a bug")


def test_names_from_clients_are_cut() -> None:
    request = pb.ModelInferRequest(model_name="m" * 10_000, model_version="1" * 10_000)
    assert [len(name) for name in _names(request)] == [MAX_CHARACTERS, MAX_CHARACTERS, 0]
    assert _names(ValueError("an unreadable message")) == ["", "", ""]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"log_format": "xml"}, "--log-format is 'xml', expected console or json"),
        ({"otlp_endpoint": "h:4317"}, "--otlp-endpoint is 'h:4317', expected http"),
        ({"trace_sample_ratio": 1.5}, "--trace-sample-ratio is 1.5, expected at most 1"),
        ({"max_log_repeats": 0}, "--max-log-repeats is 0, expected at least 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(values: dict[str, Any], expected: str) -> None:
    with pytest.raises(SettingError, match=expected):
        Settings(**values)
