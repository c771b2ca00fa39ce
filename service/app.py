"""The composition root: builds every part once, by hand, and owns the lifecycle.

start    listen (NOT_SERVING), load models one by one, then SERVING
stop     NOT_SERVING at once; refuse new calls; answer what was admitted, within
         a bound; close the port; end the engines
"""

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable

from service.errors import LoadError
from service.loading import Openers
from service.metrics import Metrics
from service.repository import ModelRepository
from service.rpc.admission import Admission
from service.rpc.health import OVERALL
from service.rpc.server import RpcServer
from service.runtime import load_onnxruntime
from service.settings import Settings

logger = logging.getLogger(__name__)
# How long a thread may keep the interpreter while another wants it. The default, 5 ms, is
# longer than a small model runs: an engine would wait for a busy event loop that long.
SWITCH_INTERVAL_S = 0.0005
DEFAULT_OPENERS = Openers()
MIN_CLOSE_S = 1.0  # for running batches to end, where draining took all its time


class App:
    """One server process. `start` returns once every model is loaded or has failed."""

    def __init__(self, settings: Settings, openers: Openers = DEFAULT_OPENERS) -> None:
        self._settings = settings
        self._metrics = Metrics()
        self.repository = ModelRepository(settings, self._metrics, openers)
        self._admission = Admission()
        self._rpc = RpcServer(settings, self.repository, self._admission)
        self.grpc_port = self._rpc.port
        try:
            self._metrics_server = self._metrics.serve(settings.host, settings.metrics_port)
        except OSError as error:
            raise LoadError(
                f"cannot listen on {settings.host}:{settings.metrics_port} for metrics: {error}"
            ) from error
        self.metrics_port = self._metrics_server.server_port

    async def start(self) -> None:
        await self._rpc.start()
        await self.repository.load_all(self._tell_health)
        self._rpc.set_health(OVERALL, is_serving=self.repository.is_ready)

    def _tell_health(self, name: str, *, is_serving: bool) -> None:
        """Of one model; a model that fails while serving changes the server's too."""
        self._rpc.set_health(name, is_serving=is_serving)
        if not self.repository.is_loading:
            self._rpc.set_health(OVERALL, is_serving=self.repository.is_ready)

    async def stop(self) -> None:
        deadline_s = time.monotonic() + self._settings.drain_timeout_s
        self._rpc.refuse_health()
        num_left = await self._admission.drain(self._settings.drain_timeout_s)
        if num_left:
            logger.warning("%d calls were not answered in time and are cancelled", num_left)
        await self._rpc.stop()
        left_s = max(MIN_CLOSE_S, deadline_s - time.monotonic())
        await asyncio.to_thread(self.repository.close, left_s)
        await asyncio.to_thread(self._metrics_server.shutdown)  # takes its polling interval
        self._metrics_server.server_close()


async def serve(settings: Settings, on_ready: Callable[[App], Awaitable[None]]) -> None:
    """Serve until SIGTERM or SIGINT, then drain. `on_ready` is called once models are loaded."""
    started_s = time.monotonic()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the processors are ORT's
    load_onnxruntime()
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    app = App(settings)
    starting = asyncio.create_task(app.start())
    stopped = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()  # raises what went wrong
            logger.info("ready in %.2f s", time.monotonic() - started_s)
            trying = asyncio.ensure_future(on_ready(app))
            await asyncio.wait({trying, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if trying.done():
                trying.result()
            await stopped
            trying.cancel()
        logger.info("stopping")
    finally:
        starting.cancel()
        await app.stop()
