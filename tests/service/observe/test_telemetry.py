"""What is traced of every kind of call, what shared a batch, and what a collector receives."""

import asyncio
import logging
import re
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import pytest
from attendant.v1 import generation_pb2, text_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from tritonclient.grpc import service_pb2 as pb

from service.api import calls
from service.contract.tensors import Arrays
from service.errors import SettingError
from service.observe import telemetry
from service.observe.logs import JsonFormatter
from service.records import ObservedCall
from service.rpc.status import ENDS
from tests.fakes.serving import (
    Served,
    eventually,
    make_app,
    refusal,
    serving,
    simple_request,
    text_request,
    write_models,
)
from tests.fakes.sessions import (
    PATIENCE_S,
    FakeSessions,
    classifier_manifest,
    text_session,
    write_model,
)

MODEL_INFER = "inference.GRPCInferenceService/ModelInfer"
STREAM_INFER = "inference.GRPCInferenceService/ModelStreamInfer"
TRACE_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACED: dict[str, Any] = {"otlp_endpoint": "http://unused:4317", "trace_sample_ratio": 1.0}


Ask = Callable[[Served], Awaitable[None]]


class Spans:
    """What a server has sent once it is stopped."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    @property
    def all(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    def inside(self, parent: ReadableSpan) -> list[ReadableSpan]:
        """In the order of their beginnings."""
        found = [s for s in self.all if s.parent and s.parent.span_id == _context(parent).span_id]
        return sorted(found, key=lambda span: span.start_time or 0)


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    exporter = InMemorySpanExporter()
    monkeypatch.setattr(telemetry, "make_exporter", lambda _: exporter)
    return Spans(exporter)


def _context(span: ReadableSpan) -> Any:
    return span.get_span_context()


def _attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def _linked(span: ReadableSpan) -> set[int]:
    return {link.context.span_id for link in span.links}


async def _model_infer(served: Served) -> None:
    await served.inference.ModelInfer(simple_request(2))


async def _classify(served: Served) -> None:
    await served.text.Classify(text_pb2.ClassifyRequest(model="spam", texts=["free lunch"]))


async def _embed(served: Served) -> None:
    await served.text.Embed(text_pb2.EmbedRequest(model="mini", texts=["lunch"]))


async def _tokenize(served: Served) -> None:
    await served.text.Tokenize(text_pb2.TokenizeRequest(model="mini", texts=["lunch"]))


async def _generate(served: Served) -> None:
    async for _ in served.generation.Generate(_prompt()):
        pass


async def _generate_unary(served: Served) -> None:
    await served.generation.GenerateUnary(_prompt())


async def _stream(served: Served) -> None:
    await _answers(served, simple_request())


async def _metadata(served: Served) -> None:
    await served.inference.ModelMetadata(pb.ModelMetadataRequest(name="simple"))


def _prompt(**params: Any) -> generation_pb2.GenerateRequest:
    sampling = generation_pb2.SamplingParams(**({"max_tokens": 3, "temperature": 0.0} | params))
    return generation_pb2.GenerateRequest(model="tale", text="once", sampling_params=sampling)


async def _answers(served: Served, *requests: pb.ModelInferRequest) -> list[Any]:
    return [answer async for answer in served.inference.ModelStreamInfer(iter(requests))]


TEXT = "attendant.v1.TextService"
GENERATION = "attendant.v1.GenerationService"


@pytest.mark.parametrize(
    ("call", "method", "model", "parts"),
    [
        (_model_infer, MODEL_INFER, "simple", ["queue", "batch", "compute"]),
        (_stream, STREAM_INFER, "simple", ["queue", "batch", "compute"]),
        (_classify, f"{TEXT}/Classify", "spam", ["tokenize", "queue", "batch", "compute"]),
        (_embed, f"{TEXT}/Embed", "mini", ["tokenize", "queue", "batch", "compute"]),
        (_tokenize, f"{TEXT}/Tokenize", "mini", ["tokenize"]),
        (_generate, f"{GENERATION}/Generate", "tale", ["tokenize", "queue", "prefill", "decode"]),
        (
            _generate_unary,
            f"{GENERATION}/GenerateUnary",
            "tale",
            ["tokenize", "queue", "prefill", "decode"],
        ),
        (_metadata, "inference.GRPCInferenceService/ModelMetadata", "simple", []),
    ],
)
async def test_every_kind_of_call_has_a_span_with_what_it_went_through(
    models: Path, spans: Spans, call: Ask, method: str, model: str, parts: list[str]
) -> None:
    async with serving(models, server_name="here", **TRACED) as served:
        await call(served)
    span = spans.one(method)
    assert (span.kind, span.parent) == (SpanKind.SERVER, None)
    assert span.status.status_code is StatusCode.UNSET
    assert span.resource.attributes["service.name"] == "here"
    expected = {
        "rpc.system": "grpc",
        "rpc.service": method.split("/")[0],
        "rpc.method": method.split("/")[1],
        "rpc.grpc.status_code": 0,
        "server.address": "127.0.0.1",
        "attendant.model.name": model,
    }
    assert _attributes(span).items() >= expected.items()
    inside = spans.inside(span)
    assert [part.name for part in inside] == parts
    stamps = [span.start_time, *(stamp for part in inside for stamp in _stamps(part))]
    assert stamps == sorted(stamps, key=lambda stamp: stamp or 0), "one after the other"
    assert not inside or (stamps[-1] or 0) <= (span.end_time or 0)


def _stamps(span: ReadableSpan) -> tuple[int | None, int | None]:
    return span.start_time, span.end_time


async def test_a_batch_and_the_requests_that_shared_it_are_linked(
    models: Path, spans: Spans
) -> None:
    async with serving(models, **TRACED) as served:
        held = await served.hold("spam")
        others = [asyncio.create_task(served.infer_text("spam", text)) for text in ("a", "b c d")]
        await eventually(lambda: served.num_waiting("spam") == 2)
        served.release("spam")
        await asyncio.gather(held, *others)
    batches = [span for span in spans.named("batch") if span.parent is None]
    assert len(batches) == 2
    alone, shared = sorted(batches, key=lambda span: len(span.links))
    assert _attributes(shared) == {
        "attendant.model.name": "spam",
        "attendant.model.version": "1",
        "attendant.batch.rows": 2,
        "attendant.batch.tokens": 8,  # 3 and 5
        "attendant.batch.padding_ratio": pytest.approx(0.2),
    }
    requests = {_context(span).span_id: span for span in spans.named(MODEL_INFER)}
    assert len(_linked(shared)) == 2
    assert _linked(shared) | _linked(alone) == set(requests)
    for span_id in _linked(shared):
        (part,) = [part for part in spans.inside(requests[span_id]) if part.name == "batch"]
        assert _linked(part) == {_context(shared).span_id}
        assert _context(part).trace_id != _context(shared).trace_id


@pytest.mark.parametrize(("flags", "num_spans"), [("01", 1), ("00", 0)])
@pytest.mark.parametrize("ratio", [0.0, 1.0])
async def test_the_callers_trace_goes_on_as_the_caller_decided(
    models: Path, spans: Spans, ratio: float, flags: str, num_spans: int
) -> None:
    caller = (("traceparent", f"00-{TRACE_ID}-{PARENT_ID}-{flags}"), ("tracestate", "a=b"))
    async with serving(models, **TRACED | {"trace_sample_ratio": ratio}) as served:
        await served.inference.ModelInfer(simple_request(), metadata=caller)
    found = spans.named(MODEL_INFER)
    assert len(found) == num_spans
    for span in found:
        assert f"{_context(span).trace_id:032x}" == TRACE_ID
        assert span.parent
        assert f"{span.parent.span_id:016x}" == PARENT_ID
        assert _context(span).trace_state["a"] == "b"


@pytest.mark.parametrize("value", ["", "00-xyz", f"00-{'0' * 32}-{PARENT_ID}-01"])
async def test_a_callers_context_that_is_none_begins_a_trace(
    models: Path, spans: Spans, value: str
) -> None:
    async with serving(models, **TRACED) as served:
        await served.inference.ModelInfer(simple_request(), metadata=[("traceparent", value)])
    assert spans.one(MODEL_INFER).parent is None


async def test_nothing_is_sent_of_requests_that_are_not_sampled(models: Path, spans: Spans) -> None:
    async with serving(models, **TRACED | {"trace_sample_ratio": 0.0}) as served:
        await _model_infer(served)
        await _generate(served)
    assert not spans.all


async def test_neither_texts_nor_secrets_are_in_spans_or_lines(
    tmp_path: Path, spans: Spans, caplog: pytest.LogCaptureFixture
) -> None:
    """Of answers, of refusals, and of errors inside the server."""
    caplog.set_level(logging.DEBUG)
    models = tmp_path / "models"
    write_models(models)
    (tmp_path / "tokens").write_text("hunter2-of-seventeen\n")
    settings = TRACED | {"token_file": str(tmp_path / "tokens"), "log_requests": True}
    secret = (("authorization", "Bearer hunter2-of-seventeen"), ("x-key", "hunter2-of-seventeen"))
    text = text_pb2.ClassifyRequest(model="spam", texts=["confidential"])
    long = text_pb2.ClassifyRequest(model="spam", texts=["confidential " * 10_000])
    prompt = _prompt(stop=["confidential"])
    prompt.text = "confidential"
    async with serving(models, **settings) as served:
        await served.text.Classify(text, metadata=secret)
        await served.generation.GenerateUnary(prompt, metadata=secret)
        await refusal(served.text.Classify(long, metadata=secret))
        await refusal(
            served.text.Classify(text, metadata=(("authorization", "Bearer hunter3-of-seventeen"),))
        )
        served.sessions["spam"].compute = _fail
        await refusal(served.text.Classify(text, metadata=secret))
    lines = [JsonFormatter().format(record) for record in caplog.records]
    told = "\n".join((*lines, *(span.to_json() for span in spans.all)))
    assert len(spans.named(f"{TEXT}/Classify")) == 3
    assert sum("attendant.requests" in line for line in lines) == 4
    assert not re.findall("confidential|hunter", told)


def _fail(inputs: Arrays) -> dict[str, np.ndarray]:
    raise ValueError("boom")


UNKNOWN = simple_request()
UNKNOWN.model_name = "nobody"


@pytest.mark.parametrize(
    ("request_", "is_broken", "code", "is_error"),
    [
        (simple_request(), True, grpc.StatusCode.INTERNAL, True),
        (UNKNOWN, False, grpc.StatusCode.NOT_FOUND, False),
        (simple_request(9), False, grpc.StatusCode.INVALID_ARGUMENT, False),
    ],
)
async def test_a_failure_has_its_status_and_is_an_error_where_the_server_failed(
    models: Path,
    spans: Spans,
    request_: pb.ModelInferRequest,
    is_broken: bool,
    code: grpc.StatusCode,
    is_error: bool,
) -> None:
    async with serving(models, **TRACED) as served:
        if is_broken:
            served.sessions["simple"].compute = _fail
        found, text = await refusal(served.inference.ModelInfer(request_))
        (answer,) = await _answers(served, request_)
    assert found is code
    assert answer.error_message == text
    for span in (spans.one(MODEL_INFER), spans.one(STREAM_INFER)):
        assert _attributes(span)["rpc.grpc.status_code"] == code.value[0]
        assert _attributes(span).get("error.type") == (code.name if is_error else None)
        expected = (StatusCode.ERROR, text) if is_error else (StatusCode.UNSET, None)
        assert (span.status.status_code, span.status.description) == expected


async def test_a_client_that_leaves_and_one_whose_time_is_over_are_told_apart(
    models: Path, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "CLOCKS_APART_S", PATIENCE_S)  # however slow this machine is
    async with serving(models, **TRACED) as served:
        held = await served.hold("spam")
        leaver = served.inference.ModelInfer(text_request("spam", "a"))
        await eventually(lambda: served.num_waiting("spam") == 1)
        leaver.cancel()
        await eventually(lambda: served.num_waiting("spam") == 0)
        await refusal(served.infer_text("spam", "b", timeout=0.5))
        served.release("spam")
        await held
    codes = sorted(_attributes(s)["rpc.grpc.status_code"] for s in spans.named(MODEL_INFER))
    assert codes == [0, 1, 4]
    assert len(spans.named("queue")) == 3, "of those that never ran, too"


@pytest.mark.parametrize(
    ("left_s", "code"),
    [(None, 1), (60.0, 1), (calls.CLOCKS_APART_S / 2, 4), (0.0, 4), (-1.0, 4)],
)
def test_whose_deadline_is_due_has_not_cancelled(left_s: float | None, code: int) -> None:
    ended: list[ObservedCall] = []
    observer = SimpleNamespace(began=lambda *_: None, ended=ended.append)
    arrival = calls.Arrival("grpc", ENDS, (), lambda: left_s)
    watch = calls.Calls(observer).watch(f"/{MODEL_INFER}", simple_request(), arrival)
    with pytest.raises(asyncio.CancelledError), watch:
        raise asyncio.CancelledError
    assert [call.code for call in ended] == [code]


async def test_each_request_of_a_stream_has_a_span_of_its_own(models: Path, spans: Spans) -> None:
    first, second = simple_request(), text_request("spam", "lunch")
    first.id, second.id = "first", "second"
    async with serving(models, **TRACED) as served:
        await _answers(served, first, second)
    found = {_attributes(span)["attendant.request.id"] for span in spans.named(STREAM_INFER)}
    assert found == {"first", "second"}
    assert len({_context(span).trace_id for span in spans.named(STREAM_INFER)}) == 2


async def test_generation_says_what_it_read_and_wrote(models: Path, spans: Spans) -> None:
    async with serving(models, **TRACED) as served:
        await served.generation.GenerateUnary(_prompt(n=2, temperature=0.5, top_k=3, seed=7))
    span = spans.one(f"{GENERATION}/GenerateUnary")
    attributes = _attributes(span)
    assert attributes.pop("gen_ai.server.time_to_first_token") > 0
    assert {key: value for key, value in attributes.items() if key.startswith("gen_ai")} == {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": "attendant",
        "gen_ai.request.model": "tale",
        "gen_ai.response.model": "tale",
        "gen_ai.request.max_tokens": 3,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 1.0,
        "gen_ai.request.top_k": 3,
        "gen_ai.request.seed": 7,
        "gen_ai.request.choice.count": 2,
        "gen_ai.usage.input_tokens": 4,
        "gen_ai.usage.output_tokens": 6,
        "gen_ai.usage.cache_read.input_tokens": 0,
        "gen_ai.response.finish_reasons": ("length", "length"),
    }
    samples = [(_attributes(s)["attendant.sample.index"], s.name) for s in spans.named("prefill")]
    assert sorted(samples) == [(0, "prefill"), (1, "prefill")]


async def test_an_answer_from_the_cache_says_so_and_has_no_parts(
    tmp_path: Path, spans: Spans
) -> None:
    write_model(tmp_path, "spam", classifier_manifest(), "response_cache { enable: true }")
    sessions = FakeSessions(spam=lambda: text_session("logits", 3))
    async with serving(tmp_path, sessions, response_cache_bytes=2**20, **TRACED) as served:
        for _ in range(2):
            await served.infer_text("spam", "lunch")
    computed, cached = spans.named(MODEL_INFER)
    assert "attendant.response_cache.hit" not in _attributes(computed)
    assert _attributes(cached)["attendant.response_cache.hit"] is True
    assert not spans.inside(cached)


async def test_probes_are_not_traced(models: Path, spans: Spans) -> None:
    async with serving(models, **TRACED) as served:
        await served.inference.ServerLive(pb.ServerLiveRequest())
        await served.inference.ModelReady(pb.ModelReadyRequest(name="simple"))
    assert not spans.all


@contextmanager
def collecting() -> Iterator[SimpleNamespace]:
    """A collector on loopback: what it received, and where it listens."""
    received: list[trace_service_pb2.ExportTraceServiceRequest] = []

    class Collector(trace_service_pb2_grpc.TraceServiceServicer):
        def Export(self, request: Any, context: object) -> Any:  # noqa: N802
            received.append(request)
            return trace_service_pb2.ExportTraceServiceResponse()

    server = grpc.server(ThreadPoolExecutor(1))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Collector(), server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield SimpleNamespace(received=received, endpoint=f"http://127.0.0.1:{port}")
    finally:
        server.stop(None).wait(PATIENCE_S)


async def test_a_collector_has_received_everything_when_the_server_is_gone(
    models: Path,
) -> None:
    with collecting() as collector:
        endpoint = collector.endpoint
        async with serving(models, otlp_endpoint=endpoint, trace_sample_ratio=1.0) as served:
            await _classify(served)
    names = [
        span.name
        for request in collector.received
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    own = "attendant.v1.TextService/Classify"
    assert sorted(names) == sorted([own, "tokenize", "queue", "batch", "batch", "compute"])


async def test_a_server_ends_in_time_though_its_collector_is_gone(models: Path) -> None:
    gone = "http://127.0.0.1:9"  # the discard port, without a listener
    async with serving(models, otlp_endpoint=gone, trace_sample_ratio=1.0) as served:
        await _classify(served)


async def test_without_the_extra_a_server_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "service.observe.telemetry", None)
    with pytest.raises(SettingError, match=r"pip install 'attendant\[telemetry\]'"):
        make_app(tmp_path, FakeSessions(), TRACED)
