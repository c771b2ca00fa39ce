"""What a health stream says while everything ends."""

import asyncio
from typing import Any

from grpc_health.v1 import health_pb2 as pb

from service.rpc.health import HealthService

SERVING, NOT_SERVING = pb.HealthCheckResponse.SERVING, pb.HealthCheckResponse.NOT_SERVING


class Stopping:
    """A stream whose server stops while its first message is on the way."""

    def __init__(self, health: HealthService) -> None:
        self.health = health
        self.said: list[int] = []

    async def write(self, response: Any) -> None:
        self.said.append(response.status)
        if len(self.said) == 1:
            self.health.refuse()
            self.health.end()


async def test_a_watcher_hears_the_end_though_it_comes_while_it_is_told_something_else() -> None:
    health = HealthService()
    health.set_overall(is_serving=True)
    stream = Stopping(health)
    watching = health.Watch(pb.HealthCheckRequest(), stream)  # type: ignore[arg-type]
    await asyncio.wait_for(watching, 5)
    assert stream.said == [SERVING, NOT_SERVING]
