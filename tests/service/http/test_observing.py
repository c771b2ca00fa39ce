"""Logs, traces and metrics of requests over HTTP: the names of gRPC's, and the protocol."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from service.observe import telemetry
from service.observe.logs import JsonFormatter
from tests.fakes.every_task import every_task
from tests.fakes.http import ask, exchange, port_of
from tests.fakes.serving import eventually, metrics_page

TRACE = "0af7651916cd43dd8448eb211c80319c"
SENT = {"model": "spam", "texts": ["win"]}


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    made = InMemorySpanExporter()

    def make(_: str) -> SpanExporter:
        return made

    monkeypatch.setattr(telemetry, "make_exporter", make)
    return made


async def test_a_request_is_traced_as_its_caller_decides(
    tmp_path: Path, exporter: InMemorySpanExporter
) -> None:
    traced = [("traceparent", f"00-{TRACE}-b7ad6b7169203331-01")]
    async with every_task(
        tmp_path, http_port=0, otlp_endpoint="http://localhost:4317", trace_sample_ratio=0.0
    ) as served:
        await ask(served, "POST", "/api/Classify", SENT, traced)
        await ask(served, "POST", "/api/Classify", {"model": "nix", "texts": ["a"]}, traced)
        await ask(served, "POST", "/api/Classify", SENT)
    spans = [span for span in exporter.get_finished_spans() if "/Classify" in span.name]
    assert [f"{span.context.trace_id:032x}" for span in spans if span.context] == [TRACE] * 2
    good, bad = [dict(span.attributes or {}) for span in spans]
    assert good["http.response.status_code"] == 200
    assert good["network.protocol.name"] == "http"
    assert bad["http.response.status_code"] == 404
    assert "rpc.grpc.status_code" not in good


async def test_a_request_has_a_line_with_its_protocol_and_id(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "attendant.requests")
    async with every_task(tmp_path, http_port=0, log_requests=True) as served:
        await ask(served, "POST", "/api/Classify", SENT, [("x-request-id", "mine")])
        await ask(served, "POST", "/api/Classify", {"model": "nix", "texts": ["a"]})
        await ask(served, "GET", "/health")
    records = [each for each in caplog.records if each.name == "attendant.requests"]
    first, second = [json.loads(JsonFormatter().format(record)) for record in records]
    assert _part(first, "protocol", "status", "request_id", "model") == (
        "http", "OK", "mine", "spam",
    )  # fmt: skip
    assert _part(second, "protocol", "status", "model") == ("http", "NOT_FOUND", "nix")


def _part(line: dict[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(line[name] for name in names)


async def test_answers_and_calls_are_counted(tmp_path: Path) -> None:
    async with every_task(tmp_path, http_port=0) as served:
        held = await served.hold("spam")
        await ask(served, "GET", "/ping")
        await ask(served, "GET", "/nix")
        await exchange(port_of(served), b"garbage\r\n\r\n")
        page = await metrics_page(served.app)
        own = await ask(served, "GET", "/metrics")
        assert own.headers["content-type"].startswith("text/plain")
        assert 'attendant_calls_in_flight{protocol="http"} 1.0' in own.body.decode()
        assert 'attendant_http_responses_total{status="200"} 1.0' in page
        assert 'attendant_http_responses_total{status="404"} 1.0' in page
        assert 'attendant_http_responses_total{status="400"} 1.0' in page
        assert 'attendant_calls_in_flight{protocol="grpc"} 1.0' in page
        assert 'attendant_calls_in_flight{protocol="http"} 0.0' in page
        served.release("spam")
        await held


async def test_calls_in_flight_are_bounded_and_probes_go_beside_them(tmp_path: Path) -> None:
    async with every_task(tmp_path, http_port=0, max_concurrent_rpcs=1) as served:
        held = await served.hold("spam")
        first = asyncio.create_task(ask(served, "POST", "/api/Classify", SENT))
        await eventually(lambda: served.num_waiting("spam") == 1)
        refused = await ask(served, "POST", "/api/Classify", SENT)
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        assert (await ask(served, "GET", "/health")).status == 200
        assert served.app._admission.refusals["calls"] == 1
        served.release("spam")
        assert (await first).status == 200
        await held
