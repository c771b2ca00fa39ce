"""ModelStatistics, TraceSetting and LogSettings over a real port, as Triton's clients use them."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from attendant.v1 import generation_pb2, text_pb2
from tritonclient.grpc import service_pb2 as pb

from tests.fakes.serving import add_strings, eventually, num_runs, refusal, serving, simple_request
from tests.fakes.sessions import PATIENCE_S

INVALID, UNIMPLEMENTED = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED


async def test_statistics_of_everything_have_a_row_per_version(models: Path) -> None:
    async with serving(models) as served:
        response = await served.inference.ModelStatistics(pb.ModelStatisticsRequest())
    found = [(stats.name, stats.version) for stats in response.model_stats]
    assert found == [(name, "1") for name in ("mini", "simple", "spam", "strings", "tale")]


async def test_statistics_of_a_generative_model_count_its_steps(models: Path) -> None:
    """Three tokens after a prompt of one step: three steps, one answer."""
    async with serving(models) as served:
        request = pb.ModelInferRequest(model_name="tale")
        add_strings(request, "text_input", "once")
        request.parameters["max_tokens"].int64_param = 3
        await served.inference.ModelInfer(request, timeout=PATIENCE_S)
        await eventually(lambda: num_runs(served, "tale") == 3)  # counted after the answer
        asked = pb.ModelStatisticsRequest(name="tale", version="1")
        (stats,) = (await served.inference.ModelStatistics(asked)).model_stats
    assert (stats.inference_count, stats.execution_count) == (1, 3)
    assert stats.inference_stats.success.count == stats.inference_stats.queue.count == 1
    assert stats.inference_stats.compute_infer.ns > 0
    assert [batch.batch_size for batch in stats.batch_stats] == [1]


async def test_every_kind_of_request_is_traced_into_the_folder(
    models: Path, tmp_path: Path
) -> None:
    """By both protocols, also a generative model's; the settings read back are those in effect."""
    folder = tmp_path / "traces"
    folder.mkdir()
    async with serving(models, trace_folder=str(folder)) as served:
        await served.inference.TraceSetting(
            trace_request({"trace_level": ["TIMESTAMPS"], "trace_rate": ["1"]})
        )
        response = await served.inference.TraceSetting(
            trace_request({"trace_file": ["spam.json"]}, "spam")
        )
        settings = {key: list(value.value) for key, value in response.settings.items()}
        assert settings["trace_level"] == ["TIMESTAMPS"]
        assert settings["trace_file"] == ["spam.json"]
        request = simple_request()
        request.id = "mine"
        await served.inference.ModelInfer(request, timeout=PATIENCE_S)
        await served.infer_text("spam", "lunch")
        await served.text.Embed(text_pb2.EmbedRequest(model="mini", texts=["lunch"]))
        await served.generation.GenerateUnary(
            generation_pb2.GenerateRequest(model="tale", text="once")
        )
    spam = json.loads((folder / "spam.json").read_text())
    others = json.loads((folder / "trace.json").read_text())
    assert [found["model_name"] for found in spam] == ["spam"]
    assert [found["model_name"] for found in others] == ["simple", "mini", "tale"]
    assert others[0]["request_id"] == "mine"
    for found in spam + others:
        stamps = [stamp["ns"] for stamp in found["timestamps"]]
        assert len(stamps) == 7
        assert stamps == sorted(stamps)


async def test_answers_without_a_batch_pass_their_stations_in_order(
    models: Path, tmp_path: Path
) -> None:
    """From the cache; of no texts; of no rows."""
    (models / "simple" / "config.pbtxt").write_text(
        "max_batch_size: 8 response_cache { enable: true }"
    )
    async with serving(models, trace_folder=str(tmp_path), response_cache_bytes=10**6) as served:
        await served.inference.TraceSetting(
            trace_request({"trace_level": ["TIMESTAMPS"], "trace_rate": ["1"]})
        )
        for num_rows in (1, 1, 0):
            await served.inference.ModelInfer(simple_request(num_rows), timeout=PATIENCE_S)
        await served.infer_text("mini")
    traces = json.loads((tmp_path / "trace.json").read_text())
    assert [found["model_name"] for found in traces] == ["simple"] * 3 + ["mini"]
    for found in traces:
        stamps = [stamp["ns"] for stamp in found["timestamps"]]
        assert stamps == sorted(stamps)


async def test_trace_settings_are_refused_where_they_mean_nothing(models: Path) -> None:
    """An unknown model; a file where the operator named no folder."""
    async with serving(models) as served:
        refused = await refusal(served.inference.TraceSetting(trace_request({}, "nope")))
        assert refused == (INVALID, "Request for unknown model : nope")
        refused = await refusal(
            served.inference.TraceSetting(trace_request({"trace_file": ["/etc/passwd"]}))
        )
        assert refused[0] is INVALID
        refused = await refusal(served.inference.TraceSetting(trace_request({"trace_file": ["x"]})))
        text = "trace file location can not be updated through network protocol"
        assert refused == (UNIMPLEMENTED, text)


def trace_request(settings: dict[str, list[str]], model: str = "") -> pb.TraceSettingRequest:
    request = pb.TraceSettingRequest(model_name=model)
    for key, values in settings.items():
        request.settings[key].value.extend(values)
    return request


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    """Put back what a server changes for its whole process."""
    logger = logging.getLogger()
    level, filters = logger.level, [list(handler.filters) for handler in logger.handlers]
    yield logger
    logger.setLevel(level)
    for handler, before in zip(logger.handlers, filters, strict=True):
        handler.filters[:] = before


async def test_log_settings_change_what_the_process_logs(
    models: Path, root_logger: logging.Logger
) -> None:
    async with serving(models) as served:
        request = pb.LogSettingsRequest()
        request.settings["log_verbose_level"].uint32_param = 1
        request.settings["log_info"].bool_param = True
        response = await served.inference.LogSettings(request)
        assert root_logger.level == logging.DEBUG
        settings = response.settings
        assert settings["log_verbose_level"].uint32_param == 1
        assert settings["log_info"].bool_param
        assert settings["log_format"].string_param == "default"
        assert settings["log_file"].WhichOneof("parameter_choice") == "string_param"
        request.settings["log_verbose_level"].uint32_param = 0
        request.settings["log_info"].bool_param = False
        await served.inference.LogSettings(request)
        assert root_logger.level == logging.WARNING
        assert (
            not (await served.inference.LogSettings(pb.LogSettingsRequest()))
            .settings["log_info"]
            .bool_param
        )
