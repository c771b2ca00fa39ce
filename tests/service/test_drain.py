"""A server that stops: accepted calls are answered, and clients hear of it."""

import asyncio
from pathlib import Path

import grpc
import numpy as np
from attendant.v1 import text_pb2 as pb
from grpc import StatusCode
from grpc_health.v1 import health_pb2
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.fakes.serving import (
    SlowOpening,
    Watcher,
    check_health,
    eventually,
    make_app,
    refusal,
    serving,
    within_patience,
)
from tests.fakes.sessions import (
    PATIENCE_S,
    FakeSessions,
    text_values,
    token_ids,
    write_model,
)
from tests.fakes.slow_network import UNLIMITED, SlowNetwork, wide_request, wide_session

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


async def test_watchers_hear_at_once_and_when_the_server_stops(models: Path) -> None:
    async with serving(models) as served:
        watchers = [Watcher(served.channel, name) for name in ("", "spam", "nope")]
        assert [await watcher.next() for watcher in watchers] == [SERVING, SERVING, UNKNOWN]
        running = await served.hold("spam")
        stopping = asyncio.create_task(served.app.stop())
        assert [await watcher.next() for watcher in watchers[:2]] == [NOT_SERVING, NOT_SERVING]
        served.release("spam")
        await within_patience(asyncio.gather(running, stopping))


async def test_a_watcher_that_leaves_takes_nothing_from_the_others(models: Path) -> None:
    """Two watch the same model; one goes, the other still hears of the end."""
    async with serving(models) as served:
        leaver, stayer = (Watcher(served.channel, "spam") for _ in range(2))
        assert [await leaver.next(), await stayer.next()] == [SERVING, SERVING]
        leaver.call.cancel()
        await check_health(served.channel)  # on the same connection, so behind the cancellation
        running = await served.hold("spam")
        stopping = asyncio.create_task(served.app.stop())
        try:
            assert await stayer.next() == NOT_SERVING
        finally:
            served.release("spam")
            await within_patience(asyncio.gather(running, stopping))


async def test_drain_answers_what_was_admitted(models: Path) -> None:
    """One call runs and one waits; later clients find the port closed, and go elsewhere."""
    async with serving(models) as served:
        watchers = [Watcher(served.channel, name) for name in ("", "spam")]
        assert [await watcher.next() for watcher in watchers] == [SERVING] * 2
        running = await served.hold("spam")
        waiting = asyncio.create_task(served.infer_text("spam", "now"))
        await eventually(lambda: served.num_waiting("spam") == 1)
        stopping = asyncio.create_task(served.app.stop())
        await eventually(lambda: served.app._admission.is_draining)
        assert [await watcher.next() for watcher in watchers] == [NOT_SERVING] * 2
        classify = pb.ClassifyRequest(model="spam", texts=["now"])
        for call in (
            served.infer_text("mini", "lunch"),
            served.text.Classify(classify, timeout=PATIENCE_S),
            served.inference.ServerLive(service_pb2.ServerLiveRequest(), timeout=PATIENCE_S),
            check_health(served.channel),
        ):
            code, text = await refusal(call)
            assert code is StatusCode.UNAVAILABLE
            assert "Connection refused" in text
        assert not stopping.done()
        served.release("spam")
        for call, text in ((running, "lunch"), (waiting, "now")):
            response = await within_patience(call)
            logits = np.frombuffer(response.raw_output_contents[-1], np.float32)
            assert logits.tolist() == text_values(token_ids(text), 3).tolist()
        await within_patience(stopping)
        code, _ = await refusal(check_health(served.channel))
        assert code is StatusCode.UNAVAILABLE


async def test_what_grpc_still_accepts_is_answered_while_the_server_drains(
    models: Path,
) -> None:
    """Such a call was on its way when clients were told to go: refused, it would be lost."""
    async with serving(models) as served:
        await served.app._admission.drain(0.0)  # its ports are still open
        assert (await served.infer_text("spam", "lunch")).outputs
        await within_patience(served.app.stop())


async def test_answers_are_held_while_clients_are_told_to_go(models: Path) -> None:
    """A client that asks anew with each answer would ask in the moment in which gRPC closes."""
    async with serving(models) as served:
        with served.app._admission.holding():
            call = asyncio.create_task(served.infer_text("spam", "lunch"))
            await asyncio.to_thread(served.sessions["spam"].wait_for_runs, 1)
            await asyncio.sleep(0.05)
            assert not call.done()
        assert (await within_patience(call)).outputs


async def test_drain_sends_a_large_answer_to_its_end(repository: Path) -> None:
    """16 MiB through a network that stalls: the call is computed, and not yet answered."""
    wide = wide_session()
    write_model(repository, "wide", config="max_batch_size: 8")
    async with serving(repository, FakeSessions(wide=lambda: wide)) as served:
        network = SlowNetwork(served.app.grpc_port)
        async with network as port:
            network.can_pass.set()
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", UNLIMITED) as channel:
                wide.hold()
                stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
                call = stub.ModelInfer(wide_request(7), timeout=PATIENCE_S)
                await eventually(lambda: served.num_running("wide") == 1)
                network.can_pass.clear()
                stopping = asyncio.create_task(served.app.stop())
                await eventually(lambda: served.app._admission.is_draining)
                wide.release()
                await eventually(lambda: served.num_running("wide") == 0)
                await asyncio.sleep(0.05)  # time in which a hasty server would close the port
                assert not stopping.done()
                network.can_pass.set()
                response = await within_patience(call)
                await within_patience(stopping)
    assert response.raw_output_contents[0] == np.full(2**22, 7, "<f4").tobytes()


async def test_a_drain_is_bounded_and_cancels_what_is_left(models: Path) -> None:
    """0.1 s for a session that does not end: its callers are told, and the port closes."""
    async with serving(models, drain_timeout_s=0.1) as served:
        running = await served.hold("spam")
        waiting = asyncio.create_task(served.infer_text("spam", "now"))
        await eventually(lambda: served.num_waiting("spam") == 1)
        stopping = asyncio.create_task(served.app.stop())
        for call in (running, waiting):
            code, _ = await refusal(call)
            assert code in (StatusCode.UNAVAILABLE, StatusCode.CANCELLED)
        await eventually(lambda: served.num_waiting("spam") == 0)  # clients hear of it first
        served.release("spam")
        await within_patience(stopping)
    assert len(served.sessions["spam"].batches) == 1


async def test_an_idle_server_stops_at_once_though_a_stream_is_open(repository: Path) -> None:
    """A drain bound of 1,000 s: an idle watcher does not use it up."""
    async with serving(repository, drain_timeout_s=1_000.0) as served:
        watcher = Watcher(served.channel, "")
        assert await watcher.next() == SERVING
        await within_patience(served.app.stop())


async def test_a_drain_serves_on_unready_for_its_delay(models: Path) -> None:
    """1,000 s, cut short: until then calls are answered, and every probe but liveness says no."""
    async with serving(models, drain_delay_s=1_000.0) as served:
        stopping = asyncio.create_task(served.app.stop())
        await eventually(lambda: served.app._admission.is_leaving)
        for name in ("", "readiness", "spam"):
            assert await check_health(served.channel, name) == NOT_SERVING
        assert await check_health(served.channel, "liveness") == SERVING
        ready = await served.inference.ServerReady(service_pb2.ServerReadyRequest())
        live = await served.inference.ServerLive(service_pb2.ServerLiveRequest())
        of_model = await served.inference.ModelReady(service_pb2.ModelReadyRequest(name="spam"))
        assert (live.live, ready.ready, of_model.ready) == (True, False, False)
        assert (await served.infer_text("spam", "lunch")).outputs
        assert not stopping.done()
        served.app.hurry()
        await within_patience(stopping)


async def test_a_delay_ends_by_itself_and_the_drain_begins(models: Path) -> None:
    """0.05 s; what was admitted in it is answered."""
    async with serving(models, drain_delay_s=0.05) as served:
        stopping = asyncio.create_task(served.app.stop())
        await eventually(lambda: served.app._admission.is_leaving)
        running = await served.hold("spam")
        await eventually(lambda: served.app._admission.is_draining)
        code, _ = await refusal(served.infer_text("mini", "lunch"))
        assert code is StatusCode.UNAVAILABLE
        served.release("spam")
        assert (await within_patience(running)).outputs
        await within_patience(stopping)


async def test_a_second_signal_ends_the_drain_at_once(models: Path) -> None:
    """A drain bound of 1,000 s, and a session that does not end: its caller is told at once."""
    async with serving(models, drain_timeout_s=1_000.0) as served:
        running = await served.hold("spam")
        stopping = asyncio.create_task(served.app.stop())
        await eventually(lambda: served.app._admission.is_draining)
        served.app.hurry()
        code, _ = await refusal(running)
        assert code in (StatusCode.UNAVAILABLE, StatusCode.CANCELLED)
        served.release("spam")
        await within_patience(stopping)


async def test_a_load_under_way_is_refused_when_the_server_leaves(repository: Path) -> None:
    """Its client is told at once, though the drain may take 1,000 s."""
    write_model(repository, "m")
    sessions = SlowOpening()
    settings = {"model_control_mode": "explicit", "drain_delay_s": 1_000.0}
    app = make_app(repository, sessions, settings)
    await within_patience(app.start())
    async with grpc.aio.insecure_channel(f"127.0.0.1:{app.grpc_port}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        request = service_pb2.RepositoryModelLoadRequest(model_name="m")
        loading = asyncio.ensure_future(refusal(stub.RepositoryModelLoad(request)))
        await eventually(lambda: bool(app.repository._background))
        stopping = asyncio.create_task(app.stop())
        assert await loading == (StatusCode.UNAVAILABLE, "Server exiting")
        sessions.may_open.set()
        app.hurry()
        await within_patience(stopping)
