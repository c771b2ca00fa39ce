"""Which requests are traced, what the files say, and what a client may set."""

import json
from pathlib import Path
from typing import Any

import pytest

from service.errors import (
    AttendantError,
    InvalidArgument,
    Overloaded,
    SettingError,
    Unimplemented,
)
from service.observe import trace_files as trace
from service.observe.trace_files import ModelTracer, Tracing
from service.records import EndedRequest, Timings

TIMINGS = Timings(
    received_s=10.0,
    queued_s=10.001,
    started_s=10.003,
    finished_s=10.02,
    collate_s=0.001,
    run_s=0.01,
    split_s=0.002,
)


def answer(tracer: ModelTracer, *request_ids: str) -> None:
    for request_id in request_ids:
        tracer.request_ended(EndedRequest(TIMINGS, 1, request_id))


def traced(folder: Path, file: str = "trace.json") -> list[str]:
    """The ids of the requests in a file."""
    return [found["request_id"] for found in json.loads((folder / file).read_text())]


def test_a_trace_says_when_its_request_passed_each_station(tmp_path: Path) -> None:
    tracing = Tracing(tmp_path)
    tracing.update({"trace_level": ["TIMESTAMPS"], "trace_rate": ["1"]})
    answer(tracing.for_model("m", 3), "mine")
    tracing.close(10)
    (found,) = json.loads((tmp_path / "trace.json").read_text())
    assert (found["model_name"], found["model_version"], found["request_id"]) == ("m", 3, "mine")
    stations = [(stamp["name"], stamp["ns"] - 10_000_000_000) for stamp in found["timestamps"]]
    assert stations == [
        ("REQUEST_START", 0),
        ("QUEUE_START", 1_000_000),
        ("COMPUTE_START", 3_000_000),
        ("COMPUTE_INPUT_END", 4_000_000),
        ("COMPUTE_OUTPUT_START", 14_000_000),
        ("COMPUTE_END", 16_000_000),
        ("REQUEST_END", 20_000_000),
    ]


def test_nothing_is_traced_until_somebody_asks(tmp_path: Path) -> None:
    tracing = Tracing(tmp_path)
    answer(tracing.for_model("m", 1), "a")
    tracing.close(10)
    assert not list(tmp_path.iterdir())


def test_a_request_that_failed_is_neither_traced_nor_counted(tmp_path: Path) -> None:
    """Of one that fails and two that succeed, at every second one, the last is traced."""
    tracing = Tracing(tmp_path)
    tracing.update({"trace_level": ["TIMESTAMPS"], "trace_rate": ["2"]})
    tracer = tracing.for_model("m", 1)
    tracer.request_ended(EndedRequest(TIMINGS, 1, "failed", error=Overloaded("")))
    answer(tracer, "1", "2")
    tracing.close(10)
    assert traced(tmp_path) == ["2"]


def test_one_request_in_rate_is_traced_and_no_more_than_count(tmp_path: Path) -> None:
    """Every second one, two in all: the second and the fourth; asked again, it counts anew."""
    tracing = Tracing(tmp_path)
    tracer = tracing.for_model("m", 1)
    settings = {"trace_level": ["TIMESTAMPS"], "trace_rate": ["2"], "trace_count": ["2"]}
    tracing.update(settings)
    answer(tracer, "1", "2", "3")
    assert tracing.settings()["trace_count"] == ["1"]
    answer(tracer, "4", "5", "6")
    assert not tracing.samplers["m"].is_on
    assert tracing.settings()["trace_count"] == ["0"]
    tracing.update({"trace_count": ["1"]})
    answer(tracer, "7", "8", "9")
    tracing.close(10)
    assert traced(tmp_path) == ["2", "4", "8"]


def test_log_frequency_numbers_the_files(tmp_path: Path) -> None:
    tracing = Tracing(tmp_path)
    tracing.update({"trace_level": ["TIMESTAMPS"], "trace_rate": ["1"], "log_frequency": ["2"]})
    answer(tracing.for_model("m", 1), *"12345")
    tracing.close(10)
    found = {path.name: traced(tmp_path, path.name) for path in tmp_path.iterdir()}
    assert found == {
        "trace.json.0": ["1", "2"],
        "trace.json.1": ["3", "4"],
        "trace.json.2": ["5"],
    }


def test_a_model_has_what_it_does_not_set_from_the_server(tmp_path: Path) -> None:
    """Own settings stay when the server's change; without values the server's count again."""
    tracing = Tracing(tmp_path)
    first, second = tracing.for_model("first", 1), tracing.for_model("second", 1)
    tracing.update({"trace_rate": ["1"]}, "first")
    tracing.update({"trace_level": ["TIMESTAMPS"], "trace_rate": ["7"], "trace_file": ["all"]})
    tracing.update({"trace_file": ["own"]}, "first")
    assert tracing.settings("first") == {
        "trace_level": ["TIMESTAMPS"],
        "trace_rate": ["1"],
        "trace_count": ["-1"],
        "log_frequency": ["0"],
        "trace_file": ["own"],
        "trace_mode": ["triton"],
    }
    assert tracing.settings("second") == tracing.settings()
    answer(first, "a")
    answer(second, *"1234567")
    tracing.update({"trace_rate": [], "trace_file": []}, "first")
    assert tracing.settings("first") == tracing.settings()
    tracing.update({"trace_level": [], "trace_rate": [], "trace_file": []})
    assert tracing.settings("first")["trace_level"] == ["OFF"]
    assert tracing.settings("first")["trace_rate"] == ["1000"]
    tracing.close(10)
    assert traced(tmp_path, "own") == ["a"]
    assert traced(tmp_path, "all") == ["7"]


LONG = "x" * 129
REFUSALS: dict[str, tuple[dict[str, list[str]], type[AttendantError], str]] = {
    "unknown level": ({"trace_level": ["MAX"]}, InvalidArgument, "Unable to parse 'trace_level'"),
    "off and more": (
        {"trace_level": ["OFF", "TIMESTAMPS"]},
        InvalidArgument,
        "Expect only one trace level 'OFF' is specified",
    ),
    "tensors": (
        {"trace_level": ["TIMESTAMPS", "TENSORS"]},
        Unimplemented,
        "trace_level TENSORS is not offered by this server",
    ),
    "no number": (
        {"trace_rate": ["often"]},
        InvalidArgument,
        "Unable to parse 'trace_rate', got: often",
    ),
    "two numbers": (
        {"trace_rate": ["1", "2"]},
        InvalidArgument,
        "expect only 1 value for 'trace_rate'",
    ),
    "rate of none": (
        {"trace_rate": ["0"]},
        InvalidArgument,
        "Unable to parse 'trace_rate', value is out of range [ 1, 4294967295 ], got: 0",
    ),
    "count below": (
        {"trace_count": ["-2"]},
        InvalidArgument,
        "Unable to parse 'trace_count', value is out of range [ -1, 2147483647 ], got: -2",
    ),
    "frequency": (
        {"log_frequency": ["9" * 30]},
        InvalidArgument,
        "Unable to parse 'log_frequency', got: 9999",
    ),
    "opentelemetry": (
        {"trace_mode": ["opentelemetry"]},
        Unimplemented,
        "trace_mode opentelemetry is not offered by this server",
    ),
    "mode": ({"trace_mode": ["x"]}, InvalidArgument, "Unable to parse 'trace_mode', got: x"),
    "unknown key": ({"trace_x": ["1"]}, InvalidArgument, "unknown trace setting 'trace_x'"),
    **{
        f"file {name!r}": (
            {"trace_file": [name]},
            InvalidArgument,
            f"Unable to parse 'trace_file', got: {name}",
        )
        for name in ("", ".", "..", "../x", "/x", "a/b", ".hidden", "a\0b", "a\nb", LONG)
    },
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_setting_that_cannot_be_is_refused_and_changes_nothing(case: str, tmp_path: Path) -> None:
    settings, kind, text = REFUSALS[case]
    tracing = Tracing(tmp_path)
    before = tracing.settings()
    with pytest.raises(kind) as caught:
        tracing.update({"log_frequency": ["5"], **settings})
    assert str(caught.value).startswith(text)
    assert tracing.settings() == before
    tracing.close(10)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {"trace_file": ["x"]},
            "trace file location can not be updated through network protocol",
        ),
        ({"trace_level": ["TIMESTAMPS"]}, "trace_level is 'TIMESTAMPS', but there is no folder"),
    ],
)
def test_without_a_folder_nothing_can_be_traced(settings: dict[str, list[str]], text: str) -> None:
    tracing = Tracing()
    with pytest.raises(Unimplemented, match=text):
        tracing.update(settings)
    tracing.update({"trace_level": ["OFF"], "trace_rate": ["3"]})
    assert tracing.settings()["trace_rate"] == ["3"]


def test_a_folder_that_is_none_is_refused_at_start(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"--trace-folder is '.*/gone', which is not a folder"):
        Tracing(tmp_path / "gone")


def test_what_the_disk_cannot_take_is_dropped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file too many, a byte too many, a folder that is gone, a link: the thread goes on."""
    monkeypatch.setattr(trace, "MAX_FILES", 2)
    monkeypatch.setattr(trace, "MAX_BYTES", 100)
    target = tmp_path / "target"
    (tmp_path / "link").symlink_to(target)
    writer = trace.TraceWriter(tmp_path)
    for file, text in (
        ("a", '"1"'),
        ("link", '"1"'),
        ("b", '"1"'),
        ("c", '"1"'),
        ("a", f'"{"x" * 100}"'),
        ("a", '"2"'),
    ):
        writer.put(file, text)
        while not writer._waiting.empty():  # one by one, as batches are of what waits
            pass
    writer.close(10)
    written: dict[str, Any] = {
        path.name: json.loads(path.read_text()) for path in tmp_path.iterdir() if path.exists()
    }
    assert written["b"] == ["1"]
    assert written["a"][0] == "1"
    assert not target.exists()
    assert "c" not in written
    assert writer.num_dropped >= 3


def test_what_waits_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that hangs: two traces wait, the third is dropped, and no request waits."""
    monkeypatch.setattr(trace, "MAX_WAITING", 2)
    writer = trace.TraceWriter(tmp_path)
    writer.close(10)  # they are no longer taken
    for text in "123":
        writer.put("a", text)
    assert writer.num_dropped == 1
