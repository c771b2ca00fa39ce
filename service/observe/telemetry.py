"""Traces of requests and batches, sent by OTLP; the one door to OpenTelemetry, which is an extra.

A request's span begins with it, since its id must be known to the batches that it runs in, and
whether it is traced is decided then. All else is made afterwards from the stamps that a request
carries anyway: a request without a trace costs one decision.

A batch has a trace of its own, with links to the traced requests that shared it, as they have
links to it. Spans wait in a bounded queue for a thread of the SDK; what finds it full is dropped.
"""

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from random import random

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased
from opentelemetry.trace import (
    Link,
    Span,
    SpanKind,
    Status,
    StatusCode,
    format_trace_id,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from service import __version__
from service.records import ObservedCall, Observer, RanBatch, Sample, Sampling
from service.settings import Settings

MAX_SAMPLES = 16  # of one generation that have spans
# The statuses that mean the server failed, not its caller, by OpenTelemetry's conventions.
SERVER_ERRORS = frozenset(
    ("UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS")
)
_CALLER = ("traceparent", "tracestate")
Attributes = dict[str, AttributeValue]


@dataclass(frozen=True, slots=True)
class _BatchSpan:
    """The data of a batch's span for its requests."""

    link: Link
    attributes: Attributes
    started_s: float
    run_at_s: float
    ran_s: float


class Telemetry(Observer):
    """Makes and sends the spans of one server; the event loop reports calls.

    Engine threads report batches, before their requests are answered.
    """

    def __init__(self, settings: Settings) -> None:
        resource = Resource.create(
            {"service.name": settings.server_name, "service.version": __version__}
        )
        self._processor = BatchSpanProcessor(make_exporter(settings.otlp_endpoint))
        # What has no parent is only begun if it is to be traced.
        provider = TracerProvider(ParentBased(ALWAYS_ON), resource, shutdown_on_exit=False)
        provider.add_span_processor(self._processor)
        self._tracer = provider.get_tracer("attendant", __version__)
        self._ratio = settings.trace_sample_ratio
        self._caller = TraceContextTextMapPropagator()
        grpc: Attributes = {"rpc.system": "grpc", "server.address": settings.host}
        if settings.grpc_port:
            grpc["server.port"] = settings.grpc_port
        host = settings.http_host or settings.host
        http: Attributes = {"network.protocol.name": "http", "server.address": host}
        if settings.http_port > 0:
            http["server.port"] = settings.http_port
        self._server = {"grpc": grpc, "http": http}  # by protocol
        self._epoch_ns = 0  # what the monotonic clock's zero is on the other; follows its steps

    def began(self, call: ObservedCall, metadata: Iterable[tuple[str, str | bytes]]) -> None:
        """Decide whether a request is traced, as its caller did or by the ratio."""
        carrier = {key: value for key, value in metadata if key in _CALLER}
        parent = self._caller.extract(carrier, Context()) if carrier else Context()
        has_caller = get_current_span(parent).get_span_context().is_valid if carrier else False
        if not has_caller and random() >= self._ratio:  # noqa: S311 - no secret
            return
        self._epoch_ns = time.time_ns() - time.monotonic_ns()
        span = self._tracer.start_span(
            f"{call.service}/{call.method}",
            parent,
            SpanKind.SERVER,
            start_time=self._ns(call.started_s),
        )
        call.trace_id = format_trace_id(span.get_span_context().trace_id)
        if span.is_recording():
            call.span = span

    def batch_ran(self, batch: RanBatch) -> None:
        """Make the span of a batch, where a request that is traced was in it."""
        requests = {item.request: None for item in batch.items}
        traced = [call for request in requests if (call := _traced(request.call)) is not None]
        if not traced:
            return
        first = traced[0]  # the model and version are the same for all requests of a batch
        names = {"attendant.model.name": first.model, "attendant.model.version": first.version}
        attributes = _batch_attributes(batch)  # sums over all items: once for all requests
        span = self._tracer.start_span(
            "batch",
            Context(),
            attributes=names | attributes,
            links=[Link(_span(call).get_span_context()) for call in traced],
            start_time=self._ns(batch.started_s),
        )
        span.end(self._ns(batch.started_s + batch.collate_s + batch.run_s + batch.split_s))
        run_at_s = batch.started_s + batch.collate_s
        batch_span = _BatchSpan(
            link=Link(span.get_span_context()),
            attributes=attributes,
            started_s=batch.started_s,
            run_at_s=run_at_s,
            ran_s=run_at_s + batch.run_s,
        )
        for call in traced:
            call.ran_in(batch_span)

    def ended(self, call: ObservedCall) -> None:
        """Make the spans of what a request went through, and end its own."""
        if call.span is None:
            return
        span = _span(call)
        span.set_attributes(self._server[call.protocol] | _call_attributes(call))
        if call.status in SERVER_ERRORS:
            span.set_status(Status(StatusCode.ERROR, call.error or None))
        inside = set_span_in_context(span, Context())
        if call.tokenized_s is not None:
            self._part(inside, "tokenize", *call.tokenized_s)
        if call.timings is not None and call.timings.queued_s:
            until_s = call.timings.started_s or call.finished_s
            self._part(inside, "queue", call.timings.queued_s, until_s)
        for batch_span in list(call.batches):
            assert isinstance(batch_span, _BatchSpan), "made above"
            links = [batch_span.link]
            self._part(
                inside,
                "batch",
                batch_span.started_s,
                batch_span.run_at_s,
                batch_span.attributes,
                links,
            )
            self._part(inside, "compute", batch_span.run_at_s, batch_span.ran_s)
        for sample in call.sequences[:MAX_SAMPLES]:
            self._sample_parts(inside, sample, call.finished_s)
        span.end(self._ns(call.finished_s))

    def close(self, timeout_s: float) -> None:
        """Send what waits, or as much as the time allows; blocks meanwhile."""
        closing = threading.Thread(target=self._processor.shutdown, name="otlp", daemon=True)
        closing.start()
        closing.join(timeout_s)

    def _sample_parts(self, inside: Context, sample: Sample, finished_s: float) -> None:
        """The phases in order; the last that began lasts until the sample's end, or the call's."""
        timings, attributes = sample.timings, {"attendant.sample.index": sample.sample_index}
        end_s = timings.finished_s or finished_s
        begins = {
            "queue": timings.queued_s,
            "prefill": timings.scheduled_s,
            "decode": timings.first_token_s,
        }
        begun = [(name, begin_s) for name, begin_s in begins.items() if begin_s]
        ends = [begin_s for _, begin_s in begun[1:]]
        for (name, begin_s), until_s in zip(begun, chain(ends, [end_s]), strict=True):
            self._part(inside, name, begin_s, until_s, attributes)

    def _part(
        self,
        inside: Context,
        name: str,
        begin_s: float,
        end_s: float,
        attributes: Mapping[str, AttributeValue] | None = None,
        links: Sequence[Link] = (),
    ) -> None:
        span = self._tracer.start_span(
            name, inside, attributes=attributes, links=links, start_time=self._ns(begin_s)
        )
        span.end(self._ns(end_s))

    def _ns(self, time_s: float) -> int:
        return self._epoch_ns + round(time_s * 1e9)


def make_exporter(endpoint: str) -> SpanExporter:
    return OTLPSpanExporter(endpoint=endpoint)


def _traced(call: object) -> ObservedCall | None:
    return call if isinstance(call, ObservedCall) and call.span is not None else None


def _span(call: ObservedCall) -> Span:
    assert isinstance(call.span, Span), "only traced calls have any"
    return call.span


def _batch_attributes(batch: RanBatch) -> Attributes:
    num_padded = batch.num_padded_tokens
    return {
        "attendant.batch.rows": batch.num_rows,
        "attendant.batch.tokens": batch.num_tokens,
        "attendant.batch.padding_ratio": 1 - batch.num_tokens / num_padded if num_padded else 0.0,
    }


def _call_attributes(call: ObservedCall) -> Attributes:
    """Attributes by OpenTelemetry's conventions; others begin with `attendant.`."""
    is_grpc = call.protocol == "grpc"
    attributes: Attributes = {
        "rpc.service": call.service,
        "rpc.method": call.method,
        "rpc.grpc.status_code" if is_grpc else "http.response.status_code": call.code,
    }
    named = {
        "attendant.model.name": call.model,
        "attendant.model.version": call.version,
        "attendant.request.id": call.request_id,
    }
    attributes |= {name: value for name, value in named.items() if value}
    if call.is_cached:
        attributes["attendant.response_cache.hit"] = True
    if call.status in SERVER_ERRORS:
        attributes["error.type"] = call.status
    if call.sequences:
        attributes |= _generation_attributes(call.model, call.sequences)
    return attributes


def _generation_attributes(model: str, samples: Sequence[Sample]) -> Attributes:
    first = samples[0]
    reasons = [sample.finish_reason for sample in samples]
    first_tokens_s = [
        sample.timings.time_to_first_token_s for sample in samples if sample.timings.first_token_s
    ]
    attributes: Attributes = {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": "attendant",
        "gen_ai.request.model": model,
        "gen_ai.response.model": model,
        "gen_ai.request.max_tokens": first.request.max_tokens,
        "gen_ai.usage.input_tokens": first.num_prompt_tokens,
        "gen_ai.usage.output_tokens": sum(sample.num_output_tokens for sample in samples),
        "gen_ai.usage.cache_read.input_tokens": first.num_reused_tokens,
        "gen_ai.response.finish_reasons": [reason.value for reason in reasons if reason],
        **_sampling_attributes(first.request.params),
    }
    if first_tokens_s:
        attributes["gen_ai.server.time_to_first_token"] = min(first_tokens_s)
    return attributes


def _sampling_attributes(params: Sampling) -> Attributes:
    attributes: Attributes = {
        "gen_ai.request.temperature": params.temperature,
        "gen_ai.request.top_p": params.top_p,
        "gen_ai.request.choice.count": params.n,
    }
    if params.top_k > 0:
        attributes["gen_ai.request.top_k"] = params.top_k
    if params.seed is not None:
        attributes["gen_ai.request.seed"] = params.seed
    return attributes
