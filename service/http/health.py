"""Probes, which need no token: whether the server lives, and is ready. And the metrics."""

import asyncio
from dataclasses import dataclass
from typing import Any, Protocol

from service import __version__
from service.http.request import Reply, Request
from service.http.routes import OPEN, Route

# Its names and counts are those of statistics, and protected as they are.
STATISTICS = "/inference.GRPCInferenceService/ModelStatistics"
METRICS_TYPE = b"text/plain; version=1.0.0; charset=utf-8"


class ServerState(Protocol):
    """State of the process: its probes, its page of metrics, its numbers."""

    @property
    def is_ready(self) -> bool: ...

    @property
    def is_live(self) -> bool: ...

    def metrics_page(self) -> bytes: ...

    def live_numbers(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Health:
    """The handlers; bodies as KServe's clients parse them, statuses as all others read them."""

    state: ServerState

    async def live(self, _: Request) -> Reply:
        is_live = self.state.is_live
        return Reply.json({"live": is_live}, 200 if is_live else 503)

    async def ready(self, _: Request) -> Reply:
        is_ready = self.state.is_ready
        return Reply.json({"ready": is_ready}, 200 if is_ready else 503)

    async def metrics(self, _: Request) -> Reply:
        page = await asyncio.to_thread(self.state.metrics_page)
        return Reply(page, content_type=METRICS_TYPE)

    async def numbers(self, _: Request) -> Reply:
        return Reply.json(await asyncio.to_thread(self.state.live_numbers))

    async def version(self, _: Request) -> Reply:
        return Reply.json({"version": __version__})


def health_routes(state: ServerState) -> tuple[Route, ...]:
    health = Health(state)
    return (
        Route("GET", "/ping", health.live, OPEN, answers_503=True),
        Route("GET", "/v2/health/live", health.live, OPEN, answers_503=True),
        Route("GET", "/health", health.ready, OPEN, answers_503=True),
        Route("GET", "/v2/health/ready", health.ready, OPEN, answers_503=True),
        Route("GET", "/version", health.version, OPEN),
        Route("GET", "/api/live", health.numbers, STATISTICS, is_scrape=True),
        Route("GET", "/metrics", health.metrics, STATISTICS, gives="text/plain", is_scrape=True),
    )
