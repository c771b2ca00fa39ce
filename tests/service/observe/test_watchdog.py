"""Liveness goes off with a run that takes too long, and comes back with its end."""

import logging
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.grpc import service_pb2

from service.observe.watchdog import Watchdog
from tests.fakes.serving import Served, eventually, serving, within_patience
from tests.fakes.sessions import PATIENCE_S


@dataclass(slots=True)
class Model:
    """A model that runs since then."""

    name: str
    running_since_s: float | None = None


@pytest.fixture
def watched() -> list[Model]:
    return [Model("quick"), Model("slow")]


def test_a_run_beyond_the_bound_turns_liveness_off_until_it_returns(
    watched: list[Model], caplog: pytest.LogCaptureFixture
) -> None:
    """Told once at each change; one line says which model, for how long, and the bound."""
    told = list[bool]()
    watchdog = Watchdog(lambda: watched, told.append, max_run_s=120.0)
    watched[1].running_since_s = 1_000.0
    for now_s, expected in ((1_120.0, []), (1_120.1, [False]), (1_170.0, [False])):
        watched[0].running_since_s = now_s
        watchdog.check(now_s)
        assert told == expected
    (line,) = [record.message for record in caplog.records if record.levelno == logging.ERROR]
    assert line == (
        "not live: a run of 'slow' has taken 120 s, at most 120 are expected (--max-run-s)"
    )
    watched[1].running_since_s = None
    watchdog.check(1_171.0)
    watchdog.check(1_172.0)
    assert told == [False, True]


def test_without_a_bound_a_run_may_take_for_ever(watched: list[Model]) -> None:
    told = list[bool]()
    watchdog = Watchdog(lambda: watched, told.append, max_run_s=0.0)
    watched[0].running_since_s = 0.0
    watchdog.check(1e9)
    assert not told


def test_a_lost_device_turns_liveness_off_for_good(watched: list[Model]) -> None:
    told = list[bool]()
    watchdog = Watchdog(lambda: watched, told.append, max_run_s=120.0)
    watchdog.device_lost("quick", "CUDA failure 700")
    watchdog.check(1.0)
    watchdog.check(2.0)
    assert told == [False]


async def liveness(served: Served) -> tuple[bool, int]:
    """What ServerLive says, and the health of the name `liveness`."""
    live = await served.inference.ServerLive(service_pb2.ServerLiveRequest(), timeout=PATIENCE_S)
    stub = health_pb2_grpc.HealthStub(served.channel)
    request = health_pb2.HealthCheckRequest(service="liveness")
    health = await stub.Check(request, timeout=PATIENCE_S)
    return bool(live.live), int(health.status)


async def test_a_server_whose_run_hangs_says_that_it_is_not_live(models: Path) -> None:
    """And stays ready, as other models answer; when the run ends, it is live again."""
    async with serving(models, max_run_s=0.05) as served:
        check = served.app._watchdog.check
        assert await liveness(served) == (True, health_pb2.HealthCheckResponse.SERVING)
        running = await served.hold("spam")
        check(time.monotonic() + 0.05)
        assert await liveness(served) == (False, health_pb2.HealthCheckResponse.NOT_SERVING)
        assert (await served.infer_text("mini", "lunch")).outputs
        served.release("spam")
        await within_patience(running)
        await eventually(lambda: served.num_running("spam") == 0)
        check(time.monotonic())
        assert await liveness(served) == (True, health_pb2.HealthCheckResponse.SERVING)
