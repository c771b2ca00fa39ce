"""A server that starts and serves: its ports, its health, its metrics and its warnings."""

import asyncio
import json
import logging
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import grpc
import pytest
from attendant.v1 import generation_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc import StatusCode
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from tritonclient.grpc import service_pb2, service_pb2_grpc

from service.app import App
from service.errors import LoadError
from service.open_ports import Ports, log_open_ports
from service.settings import Settings
from tests.fakes.serving import (
    SlowOpening,
    Watcher,
    check_health,
    default_sessions,
    eventually,
    make_app,
    metrics_page,
    refusal,
    serving,
    simple_request,
    text_request,
    within_patience,
)
from tests.fakes.sessions import (
    PATIENCE_S,
    FakeSessions,
    doubling_session,
    write_model,
)

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


async def test_health_is_told_per_model_and_overall(models: Path) -> None:
    async with serving(models) as served:
        for name in ("", "spam", "mini", "simple"):
            assert await check_health(served.channel, name) == SERVING
        for name in ("nope", "é" * 100_000):  # a status of any length would not be sent
            code, text = await refusal(check_health(served.channel, name))
            assert code is StatusCode.NOT_FOUND
            assert text.startswith(f"unknown service '{name[:4]}")


async def test_a_model_that_failed_is_not_serving_and_under_strictness_nor_is_the_server(
    models: Path,
) -> None:
    write_model(models, "broken")
    for is_strict, overall in ((True, NOT_SERVING), (False, SERVING)):
        async with serving(models, strict_readiness=is_strict) as served:
            assert await check_health(served.channel, "broken") == NOT_SERVING
            assert await check_health(served.channel, "spam") == SERVING
            assert await check_health(served.channel) == overall
            ready = await served.inference.ServerReady(service_pb2.ServerReadyRequest())
            assert ready.ready is not is_strict
            await served.infer_text("spam", "lunch")
            code, text = await refusal(served.infer_text("broken", "lunch"))
            assert code is StatusCode.NOT_FOUND
            assert text == "Request for unknown model: 'broken' has no available versions"


async def test_a_server_without_the_models_demanded_is_alive_and_not_ready(
    models: Path,
) -> None:
    """So that a rollout with a wrong folder waits; clients may load what is missing."""
    async with serving(models, model_control_mode="explicit", min_models=1) as served:
        for name, status in (("", NOT_SERVING), ("readiness", NOT_SERVING), ("liveness", SERVING)):
            assert await check_health(served.channel, name) == status
        assert not (await served.inference.ServerReady(service_pb2.ServerReadyRequest())).ready
        assert "attendant_ready 0.0" in await metrics_page(served.app)
        load = service_pb2.RepositoryModelLoadRequest(model_name="simple")
        await served.inference.RepositoryModelLoad(load)
        assert await check_health(served.channel) == SERVING
        unload = service_pb2.RepositoryModelUnloadRequest(model_name="simple")
        await served.inference.RepositoryModelUnload(unload)
        assert await check_health(served.channel) == NOT_SERVING


SERVICES = {
    "attendant.v1.FeatureService",
    "attendant.v1.GenerationService",
    "attendant.v1.ReadingService",
    "attendant.v1.TextService",
    "attendant.v1.VisionService",
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
    "inference.GRPCInferenceService",
}


async def test_reflection_lists_every_service(repository: Path) -> None:
    async with serving(repository) as served:

        def services() -> Iterable[str]:
            with grpc.insecure_channel(served.address) as channel:
                found: Iterable[str] = ProtoReflectionDescriptorDatabase(channel).get_services()
                return found

        assert set(await within_patience(asyncio.to_thread(services))) == SERVICES


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_both_versions_of_reflection_list_and_describe_every_service(
    repository: Path, version: str
) -> None:
    """As grpcurl asks: it lists the services and asks which file describes each."""
    async with serving(repository) as served:
        reflect: Any = served.channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )
        call = reflect(timeout=PATIENCE_S)
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        listed = {entry.name for entry in (await call.read()).list_services_response.service}
        assert listed == SERVICES
        for name in listed:
            await call.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol=name))
            files = (await call.read()).file_descriptor_response.file_descriptor_proto
            file = FileDescriptorProto.FromString(files[0])
            assert name in {f"{file.package}.{service.name}" for service in file.service}
        await call.done_writing()


async def test_health_is_told_under_the_names_of_the_services_as_of_the_server(
    models: Path,
) -> None:
    """Proxies ask so by default; a model of such a name has no health of its own."""
    name = "inference.GRPCInferenceService"
    write_model(models, name, config="max_batch_size: 8")
    async with serving(models) as served:
        for service in SERVICES:
            assert (
                await check_health(served.channel, service) == NOT_SERVING
            )  # its session is missing
    async with serving(models, strict_readiness=False) as served:
        for service in SERVICES:
            assert await check_health(served.channel, service) == SERVING
        watcher = Watcher(served.channel, name)
        assert await watcher.next() == SERVING
        stopping = asyncio.create_task(served.app.stop())
        assert await watcher.next() == NOT_SERVING
        await within_patience(stopping)


async def test_ports_open_once_models_are_loaded_and_probes_are_answered_before(
    repository: Path,
) -> None:
    """A client that does not ask for health is refused by a closed port, and goes elsewhere."""
    write_model(repository, "m")
    sessions = SlowOpening()
    app = make_app(repository, sessions, {"http_port": 0, "admin_port": 0})
    ports = (app.grpc_port, app.http_port, app.admin_port)
    starting = asyncio.create_task(app.start())
    await eventually(lambda: bool(app._watching))
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
    assert await probe(app, "/v2/health/live") == (200, {"live": True})
    unready = {"ready": False, "error": "models are loading"}
    assert await probe(app, "/v2/health/ready") == (503, unready)
    assert "attendant_ready 0.0" in await metrics_page(app)
    sessions.may_open.set()
    await within_patience(starting)
    for port in ports:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
    assert await probe(app, "/v2/health/ready") == (200, {"ready": True})
    await within_patience(app.stop())


@pytest.mark.parametrize("is_open", [False, True])
async def test_a_server_that_stops_while_it_loads_ends(repository: Path, is_open: bool) -> None:
    write_model(repository, "m")
    sessions = SlowOpening()
    settings = {"http_port": 0, "open_ports": "start" if is_open else "loaded"}
    app = make_app(repository, sessions, settings)
    starting = asyncio.create_task(app.start())
    await eventually(lambda: bool(app._watching))
    starting.cancel()
    sessions.may_open.set()
    await within_patience(app.stop())


async def probe(app: App, path: str) -> tuple[int, dict[str, Any]]:
    """Status and body that the metrics port answers."""
    return await asyncio.to_thread(_probe, f"http://127.0.0.1:{app.metrics_port}{path}")


def _probe(url: str) -> tuple[int, dict[str, Any]]:
    try:
        with urlopen(url, timeout=PATIENCE_S) as response:  # noqa: S310 - http, our own
            return response.status, json.load(response)
    except HTTPError as error:
        return error.code, json.load(error)


async def test_a_busy_loop_is_live_until_the_bound_and_a_dead_one_is_not(models: Path) -> None:
    """Probes are answered by threads while the loop does nothing else, here for a second."""
    async with serving(models, max_loop_gap_s=0.5) as served:
        url = f"http://127.0.0.1:{served.app.metrics_port}/v2/health/live"
        with ThreadPoolExecutor(1) as prober:
            busy = prober.submit(_probe, url)
            first = busy.result()  # the loop waits here, as it would for a heavy request
            time.sleep(1.0)  # noqa: ASYNC251 - on purpose
            later = prober.submit(_probe, url).result()
        assert first == (200, {"live": True})
        assert later[0] == 503
        assert later[1]["error"].startswith("the event loop stands still for more than 0.5 s")
        await asyncio.sleep(0.3)  # the loop goes on
        assert await probe(served.app, "/v2/health/live") == (200, {"live": True})
        (line,) = (
            line
            for line in (await metrics_page(served.app)).splitlines()
            if line.startswith("attendant_event_loop_gap_seconds ")
        )
        assert float(line.split()[1]) >= 0.8


async def test_while_models_load_a_server_may_listen_and_say_that_it_is_not_ready(
    repository: Path,
) -> None:
    write_model(repository, "m")
    sessions = SlowOpening()
    app = make_app(repository, sessions, {"open_ports": "start"})
    starting = asyncio.create_task(app.start())
    async with grpc.aio.insecure_channel(f"127.0.0.1:{app.grpc_port}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        live = await stub.ServerLive(
            service_pb2.ServerLiveRequest(), timeout=PATIENCE_S, wait_for_ready=True
        )
        ready = await stub.ServerReady(service_pb2.ServerReadyRequest())
        assert (live.live, ready.ready) == (True, False)
        assert await check_health(channel) == NOT_SERVING
        assert await refusal(stub.ModelInfer(service_pb2.ModelInferRequest(model_name="m"))) == (
            StatusCode.UNAVAILABLE,
            "Server not ready",
        )
        sessions.may_open.set()
        await within_patience(starting)
        assert await check_health(channel) == await check_health(channel, "m") == SERVING
        await within_patience(app.stop())


async def test_ports_are_free_again_after_a_stop(repository: Path) -> None:
    async with serving(repository) as served:
        ports = {"grpc_port": served.app.grpc_port, "metrics_port": served.app.metrics_port}
    async with serving(repository, None, **ports) as served:
        assert served.app.grpc_port == ports["grpc_port"]
        assert "attendant_request_seconds" in await metrics_page(served.app)


async def test_a_port_in_use_is_a_clear_error(repository: Path) -> None:
    async with serving(repository) as served:
        taken = served.app.grpc_port, served.app.metrics_port
        with pytest.raises(LoadError, match=rf"cannot listen on 127\.0\.0\.1:{taken[0]} for gRPC"):
            make_app(repository, default_sessions(), {"grpc_port": taken[0]})
        with pytest.raises(
            LoadError, match=rf"cannot listen on 127\.0\.0\.1:{taken[1]} for metrics"
        ):
            make_app(repository, default_sessions(), {"metrics_port": taken[1]})
        with pytest.raises(LoadError, match=r"for administration: .* with --admin-port"):
            make_app(repository, default_sessions(), {"admin_port": taken[0]})


@pytest.mark.parametrize("host", ["192.0.2.1", "name.invalid"])
async def test_a_host_that_is_not_of_this_machine_is_a_clear_error(
    host: str, repository: Path
) -> None:
    with pytest.raises(LoadError, match=r"; choose another address with --host and --grpc-port"):
        make_app(repository, default_sessions(), {"host": host})


async def test_an_empty_repository_is_reported_before_a_port_is_open(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with serving(tmp_path) as served:
        port = served.app.grpc_port
    texts = [record.getMessage() for record in caplog.records]
    (warned,) = (place for place, text in enumerate(texts) if "has no models" in text)
    (opened,) = (place for place, text in enumerate(texts) if f":{port}: plain" in text)
    assert warned < opened


async def test_a_scrape_shows_what_was_asked(models: Path) -> None:
    """Three texts in one call and one tensor call that is refused by the session."""
    async with serving(models) as served:
        await served.infer_text("spam", "lunch", "win a prize", "now")
        served.sessions["simple"].compute = lambda _: {}
        await refusal(served.inference.ModelInfer(simple_request()))
        page = await metrics_page(served.app)
    for line in (
        'nv_inference_request_success{model="spam",version="1"} 1.0',
        'nv_inference_count{model="spam",version="1"} 3.0',
        'nv_inference_exec_count{model="spam",version="1"} 1.0',
        'nv_inference_request_success{model="simple",version="1"} 0.0',
        'nv_inference_request_failure{model="simple",reason="BACKEND",version="1"} 1.0',
        'nv_inference_pending_request_count{model="spam",version="1"} 0.0',
        'attendant_batch_rows_sum{model="spam",version="1"} 3.0',
        'attendant_batch_tokens_sum{model="spam",version="1"} 15.0',  # 3 rows of 5 at most
        'attendant_request_seconds_count{model="spam",version="1"} 1.0',
    ):
        assert line in page.splitlines()


@pytest.mark.parametrize("is_stream", [False, True], ids=["unary", "stream"])
async def test_a_request_that_fails_is_counted_for_any_kind_of_model(
    models: Path, is_stream: bool
) -> None:
    """Inputs that the model does not take, and an answer that breaks; text or tensors."""
    async with serving(models) as served:
        requests = [simple_request(), text_request("spam", "lunch"), text_request("tale", "a")]
        for request in requests:
            request.inputs[0].name = "nonsense"
        other = text_request("spam", "lunch")
        del other.inputs[:]
        wrong_shape = simple_request(2)
        wrong_shape.inputs[0].shape[:] = [4, 8]
        served.sessions["strings"].compute = lambda _: {}
        for request in (*requests, other, wrong_shape, text_request("strings", "x")):
            if is_stream:
                call = served.inference.ModelStreamInfer(iter([request]))
                answers = [answer async for answer in call]
                assert answers[-1].error_message
            else:
                await refusal(served.inference.ModelInfer(request))
        lines = (await metrics_page(served.app)).splitlines()
    counts = {
        line.split('"')[1]: float(line.split()[-1])
        for line in lines
        if line.startswith("nv_inference_request_failure") and 'reason="OTHER"' in line
    }
    assert counts == {"simple": 2, "spam": 2, "tale": 1, "strings": 1, "mini": 0}


async def test_gauges_show_how_many_requests_wait_and_run(models: Path) -> None:
    async with serving(models) as served:
        running = await served.hold("spam")
        waiting = asyncio.create_task(served.infer_text("spam", "now"))
        await eventually(lambda: served.num_waiting("spam") == 1)
        lines = (await metrics_page(served.app)).splitlines()
        served.release("spam")
        await within_patience(asyncio.gather(running, waiting))
    assert 'nv_inference_pending_request_count{model="spam",version="1"} 1.0' in lines
    assert 'attendant_requests_running{model="spam",version="1"} 1.0' in lines


async def test_a_model_that_breaks_while_serving_is_unhealthy_and_so_is_the_server(
    models: Path,
) -> None:
    """Three failed steps in a row; the others are served on, and strict readiness is lost."""
    async with serving(models) as served:
        assert await check_health(served.channel) == SERVING
        served.decoders["tale"].error = ValueError("out of order")
        for _ in range(3):
            request = generation_pb2.GenerateRequest(model="tale", text="once")
            code, _ = await refusal(served.generation.GenerateUnary(request, timeout=PATIENCE_S))
            assert code is StatusCode.INTERNAL
        await eventually(lambda: not served.app.repository.has("tale"))
        assert await check_health(served.channel, "tale") == NOT_SERVING
        assert await check_health(served.channel) == NOT_SERVING
        assert await check_health(served.channel, "spam") == SERVING
        ready = await served.inference.ServerReady(service_pb2.ServerReadyRequest(), timeout=10)
        assert not ready.ready
        assert len((await served.infer_text("spam", "free")).outputs) == 3


async def test_a_model_may_not_speak_for_the_server(repository: Path) -> None:
    """`liveness` and `readiness` stay the server's, though models have these names."""
    write_model(repository, "liveness")
    write_model(repository, "readiness", config="max_batch_size: 8")
    sessions = FakeSessions(readiness=doubling_session)
    async with serving(repository, sessions) as served:
        assert await check_health(served.channel, "liveness") == SERVING
        assert await check_health(served.channel, "readiness") == await check_health(served.channel)
        assert await check_health(served.channel) == NOT_SERVING


OPEN: dict[str, tuple[dict[str, Any], list[str]]] = {
    "default": ({}, []),
    "all addresses": (
        {"host": "0.0.0.0", "metrics_host": "::"},  # noqa: S104
        [
            "--host 0.0.0.0 is reached by other machines, and every machine there may call it: "
            "see docs/explanation/security.md",
            "--metrics-host :: is reached by other machines, and every machine there may read it",
        ],
    ),
    "all addresses of a trusted network": (
        {"host": "0.0.0.0", "metrics_host": "::", "trusted_network": True},  # noqa: S104
        [],
    ),
    "tokens without TLS in a trusted network": (
        {"host": "10.0.0.1", "token_file": "t", "trusted_network": True},
        [
            "--host 10.0.0.1 is reached by other machines, and tokens and texts pass in the "
            "clear, as neither --tls-cert nor --tls-key is set: see docs/explanation/security.md"
        ],
    ),
    "tokens without TLS": (
        {"host": "10.0.0.1", "token_file": "t"},
        [
            "--host 10.0.0.1 is reached by other machines, and tokens and texts pass in the "
            "clear, as neither --tls-cert nor --tls-key is set: see docs/explanation/security.md"
        ],
    ),
    "TLS for anybody": (
        {"host": "10.0.0.1", "tls_cert": "c", "tls_key": "k"},
        [
            "--host 10.0.0.1 is reached by other machines, and every machine there may call it: "
            "see docs/explanation/security.md"
        ],
    ),
    "TLS and tokens": (
        {"host": "10.0.0.1", "tls_cert": "c", "tls_key": "k", "token_file": "t"},
        [],
    ),
    "mutual TLS": (
        {"host": "10.0.0.1", "tls_cert": "c", "tls_key": "k", "tls_client_ca": "a"},
        [],
    ),
}


@pytest.mark.parametrize("case", OPEN)
def test_what_is_open_to_whom_is_logged_and_warned_of(
    case: str, caplog: pytest.LogCaptureFixture
) -> None:
    flags, warnings = OPEN[case]
    caplog.set_level(logging.INFO)
    log_open_ports(Settings(**flags), Ports(8001, 8002))
    assert [r.message for r in caplog.records if r.levelno == logging.WARNING] == warnings
    (first,) = [r.message for r in caplog.records if r.levelno == logging.INFO]
    if case == "default":
        assert first == ("gRPC is open on 127.0.0.1:8001: plain, no tokens, model control none")


def test_the_http_port_is_logged_and_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    settings = Settings(http_host="10.0.0.1", http_allowed_origins="https://ui.example")
    log_open_ports(settings, Ports(8001, 8002, http=8000, admin=8003))
    said = [record.message for record in caplog.records]
    assert (
        "HTTP is open on 10.0.0.1:8000: plain, no tokens; pages of https://ui.example may call it"
        in said
    )
    assert "administration is open on 127.0.0.1:8003: plain, no tokens" in said
    assert (
        "--http-host 10.0.0.1 is reached by other machines, and every machine there may call it: "
        "see docs/explanation/security.md" in said
    )
