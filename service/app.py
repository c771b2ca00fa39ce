"""The composition root: builds every part once, by hand, and owns the lifecycle.

start    open the metrics port, load models one by one, then open the others and be SERVING;
         under `--open-ports start` those are open, and NOT_SERVING, while models are loaded
stop     NOT_SERVING at once, and serve on for `drain_delay_s`; close the ports and tell
         clients to connect elsewhere (GOAWAY); answer what was accepted, within a bound;
         end the engines. A second signal skips the waiting

docs/how-to/cuda.md says what was verified on CUDA.
"""

import asyncio
import functools
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service import __version__
from service.api.admission import Admission
from service.api.calls import CallObserver, Calls
from service.api.operations import Operations, server_operations
from service.descriptors import settings_within_files
from service.errors import SettingError
from service.observe.building import builds_in
from service.observe.heartbeat import Heartbeat
from service.observe.live import live_numbers
from service.observe.logs import RequestLog
from service.observe.metrics import Metrics
from service.observe.observers import Observers
from service.observe.trace_files import Tracing
from service.observe.watchdog import Watchdog
from service.open_ports import Opened, Ports, log_open_ports
from service.repository.loading import Openers
from service.repository.repository import ModelRepository
from service.rpc.health import LIVENESS, READINESS
from service.rpc.ports import check_port
from service.rpc.server import RpcServer
from service.runtime.background import in_thread
from service.runtime.session import cuda_obstacle, load_onnxruntime, onnxruntime_version
from service.settings import Settings, join_address

if TYPE_CHECKING:
    from service.http.server import HttpServer
    from service.observe.telemetry import Telemetry
    from service.team.siblings import Siblings

logger = logging.getLogger(__name__)
# How long a thread may keep the interpreter while another wants it. The default, 5 ms, is
# longer than a small model runs: an engine would wait for a busy event loop that long.
SWITCH_INTERVAL_S = 0.0005
# Objects made before the garbage collector looks among them; the default, 700, are those of a dozen
# requests, and looking took a twentieth of the event loop's time.
COLLECT_EVERY = 10_000
DEFAULT_OPENERS = Openers()
MIN_CLOSE_S = 1.0  # for running batches to end, where draining took all its time
EXIT_LIMIT_S = 2.0  # from the end of `serve` to that of the process


class App:
    """One server process. `start` returns once every model is loaded or has failed."""

    def __init__(
        self,
        settings: Settings,
        openers: Openers = DEFAULT_OPENERS,
        siblings: "Siblings | None" = None,
    ) -> None:
        self._settings = settings
        self._siblings = siblings
        self._tracing = Tracing(Path(settings.trace_folder) if settings.trace_folder else None)
        self._telemetry = _telemetry(settings)
        self._metrics = Metrics()
        others = (self._telemetry,) if self._telemetry is not None else ()
        observers = Observers(self._metrics, self._tracing, others)
        self.repository = ModelRepository(settings, observers, openers)
        self._admission = Admission(settings)
        calls = Calls(*_observers(settings, self._telemetry))
        answered = server_operations(
            settings, self.repository, self._admission, self._tracing, calls
        )
        is_shared = siblings is not None
        if siblings is not None:
            answered = siblings.as_one(answered, self._admission)
        self._rpc = RpcServer(settings, answered, self._admission, calls, is_shared=is_shared)
        self._http = self._http_server(answered, calls) if settings.http_port >= 0 else None
        self.http_port = None if self._http is None else self._http.port
        self._health = self._rpc.health
        self.grpc_port = self._rpc.port
        self.admin_port = self._rpc.admin_port
        host, port = settings.metrics_host, settings.metrics_port
        check_port(host, port, "metrics", ("--metrics-host", "--metrics-port"))
        self._heartbeat = Heartbeat(time.monotonic())
        self._is_open = False
        self._metrics_server = self._metrics.serve(host, port, self)
        self.metrics_port = self._metrics_server.server_port
        self._health.reason_of = self._reason_of
        self._watchdog = Watchdog(self.repository.engaged, self._tell_live, settings.max_run_s)
        self.repository.on_device_lost = self._watchdog.device_lost
        self._count_for_metrics()
        self._watching: list[asyncio.Task[None]] = []
        self._hurrying = asyncio.Event()

    def _http_server(self, operations: Operations, calls: Calls) -> "HttpServer":
        from service.http.server import HttpServer  # its libraries take their time to be imported

        return HttpServer(
            self._settings,
            operations,
            self._admission,
            calls,
            self,
            self.repository,
            is_shared=self._siblings is not None,
        )

    @property
    def is_ready(self) -> bool:
        """Whether the server says that it is ready."""
        is_leaving = self._admission.is_leaving
        return self._is_open and self.repository.readiness.is_ready and not is_leaving

    @property
    def unready_reason(self) -> str:
        """Why the server is not ready, for callers without a token."""
        if not self.repository.readiness.is_loading and not self._is_open:
            return "the ports are being opened"
        return self._reason_of(READINESS)

    @property
    def opened(self) -> Opened:
        """The ports and the models that are served now."""
        ports = Ports(self.grpc_port, self.metrics_port, self.http_port, self.admin_port)
        facts = [model.facts() for model in self.repository.models()]
        return Opened(ports, tuple((each.name, each.task, each.mask_token) for each in facts))

    def metrics_page(self) -> bytes:
        """All metrics, as Prometheus reads them."""
        page = self._metrics.page()
        return page if self._siblings is None else self._siblings.page(page)

    @property
    def page_in_words(self) -> str:
        """Address at which a browser finds the models, as the end of a line of the log."""
        settings = self._settings
        if self.http_port is None or not settings.playground:
            return ""
        address = join_address(settings.http_host or settings.host, self.http_port)
        return f"; the page is http{'s' if settings.tls_cert else ''}://{address}/"

    def live_numbers(self) -> dict[str, Any]:
        """The numbers that change from second to second, and what is built beside the server."""
        numbers = live_numbers(self._metrics)
        if self._siblings is not None:
            numbers = self._siblings.numbers(numbers)
        return numbers | {"builds": builds_in(self._settings.model_repository, time.time())}

    @property
    def is_live(self) -> bool:
        """Whether the server says that it lives: its runs end, and its event loop goes on."""
        return self._admission.is_live and not self._stands_still

    @property
    def lifeless_reason(self) -> str:
        """Why the server does not live."""
        if self._stands_still:
            limit_s = self._settings.max_loop_gap_s
            return f"the event loop stands still for more than {limit_s:g} s (--max-loop-gap-s)"
        return self._reason_of(LIVENESS)

    @property
    def _stands_still(self) -> bool:
        limit_s = self._settings.max_loop_gap_s
        return limit_s > 0 and self._heartbeat.gap_s(time.monotonic()) > limit_s

    async def start(self) -> None:
        """Return once every model is loaded or has failed, and the ports are open."""
        settings = self._settings
        self._watching = [
            asyncio.create_task(self._heartbeat.keep()),
            asyncio.create_task(self._watchdog.watch()),
        ]
        if self._siblings is not None:
            numbers = functools.partial(live_numbers, self._metrics)
            await self._siblings.start(self.metrics_port, self._metrics.page, numbers)
        metrics = join_address(settings.metrics_host, self.metrics_port)
        logger.info("metrics are open on %s", metrics)
        if settings.open_ports == "start":
            await self._open()
        if self._settings.device == "auto":
            obstacle = await in_thread(cuda_obstacle)
            device = f"cpu, as CUDA cannot be used: {obstacle}" if obstacle else "cuda"
            logger.info("--device auto: models run on %s", device)
        await self.repository.load_all(self._tell_health)
        self._health.set_overall(is_serving=self.repository.readiness.is_ready)
        if not self._is_open:
            await self._open()

    async def _open(self) -> None:
        """Open the ports for requests, and say who may call them."""
        ports = Ports(self.grpc_port, self.metrics_port, self.http_port, self.admin_port)
        log_open_ports(self._settings, ports)
        await self._rpc.start()
        if self._http is not None:
            await self._http.start()
        self._is_open = True

    def _count_for_metrics(self) -> None:
        numbers, admission, repository = self._metrics.server, self._admission, self.repository
        numbers.is_ready = lambda: self.is_ready
        numbers.is_live = lambda: self.is_live
        numbers.loop_gap_s = lambda: self._heartbeat.longest_gap_s(time.monotonic())
        numbers.num_calls = lambda: {
            "grpc": self._rpc.num_calls,
            **({} if self._http is None else {"http": self._http.front.num_calls}),
        }
        numbers.num_begun = lambda: {
            "grpc": self._rpc.num_begun,
            **({} if self._http is None else {"http": self._http.front.num_begun}),
        }
        if self._http is not None:
            numbers.http_statuses = self._http.front.statuses
            if (batches := self._http.batches) is not None:
                numbers.batch_lines = batches.num_lines
                numbers.num_batches = lambda: batches.num_unfinished
        numbers.num_bytes = lambda: admission.num_bytes
        numbers.num_unserved = lambda: repository.readiness.num_unserved
        numbers.certificate_ends_s = lambda: self._rpc.certificate_ends_s
        numbers.refusals = admission.refusals
        numbers.loads = repository.loads
        numbers.build = {"version": __version__, "onnxruntime": onnxruntime_version()}

    def _tell_health(self, name: str, *, is_serving: bool) -> None:
        """Report a model's health; a model that fails while serving changes the server's too."""
        self._health.set_model(name, is_serving=is_serving)
        if not self.repository.readiness.is_loading:
            self._health.set_overall(is_serving=self.repository.readiness.is_ready)

    def _reason_of(self, service: str) -> str:
        """Why health says NOT_SERVING; names of models are not for callers without a token."""
        if service == LIVENESS:
            return "a run takes longer than --max-run-s, or a device is lost: the log says which"
        if self._admission.is_leaving:
            return "the server is stopping"
        if self._settings.token_file:
            return "the server's log says why"
        if self._health.is_of_server(service):
            return self.repository.readiness.obstacle
        return self.repository.readiness.obstacle_of(service)

    def _tell_live(self, is_live: bool) -> None:
        self._admission.is_live = is_live
        self._health.set_live(is_live=is_live)

    async def stop(self) -> None:
        """Drain and close. `hurry` cuts every wait short."""
        settings, admission = self._settings, self._admission
        self._health.refuse()
        admission.is_leaving = True
        self.repository.stop_changing()
        await self._unless_hurried(asyncio.sleep(settings.drain_delay_s))
        deadline_s = time.monotonic() + settings.drain_timeout_s
        await self._unless_hurried(self._rpc.until_answered())
        if self._http is not None:
            await self._http.leave()
        await self._rpc.leave()
        await self._unless_hurried(admission.drain(max(0.0, deadline_s - time.monotonic())))
        if admission.num_inside:
            logger.warning(
                "%d calls were not answered in time and are cancelled", admission.num_inside
            )
            self.repository.stop()  # first: what waits is not run in place of what is cancelled
        admission.close()
        if self._http is not None:
            await self._http.stop()
        await self._rpc.stop()
        left_s = 0.0 if self._hurrying.is_set() else deadline_s - time.monotonic()
        await asyncio.to_thread(self.repository.close, max(MIN_CLOSE_S, left_s))
        await asyncio.to_thread(self._tracing.close, MIN_CLOSE_S)
        if self._telemetry is not None:
            await asyncio.to_thread(self._telemetry.close, MIN_CLOSE_S)
        await asyncio.to_thread(self._metrics_server.stop)
        if self._siblings is not None:
            await self._siblings.stop()
        for task in self._watching:
            task.cancel()

    def hurry(self) -> None:
        """Wait for nothing more, now and later."""
        self._hurrying.set()

    async def _unless_hurried(self, waiting: Coroutine[Any, Any, object]) -> None:
        tasks = asyncio.create_task(waiting), asyncio.create_task(self._hurrying.wait())
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()


def _telemetry(settings: Settings) -> "Telemetry | None":
    if not settings.otlp_endpoint:
        return None
    try:
        from service.observe.telemetry import Telemetry  # an extra
    except ImportError as error:
        raise SettingError(
            "--otlp-endpoint is set, and OpenTelemetry is not installed: "
            "pip install 'attendant[telemetry]'"
        ) from error
    return Telemetry(settings)


def _observers(settings: Settings, telemetry: "Telemetry | None") -> Iterator[CallObserver]:
    """The observers of requests; JSON lines name the request that they are about."""
    if telemetry is not None:  # first: the others read the trace's id
        yield telemetry
    if settings.log_requests or settings.log_format == "json":
        yield RequestLog(is_on=settings.log_requests)


async def serve(
    settings: Settings,
    on_ready: Callable[[App], Awaitable[None]],
    openers: Openers = DEFAULT_OPENERS,
    siblings: "Siblings | None" = None,
) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP, then drain. `on_ready` is called once it is ready."""
    started_s = time.monotonic()
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    numbers = stopping_signals()
    for number in numbers:  # first of all: loading takes its time
        loop.add_signal_handler(number, stopping.set)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    settings = settings_within_files(settings)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the processors are ORT's
    load_onnxruntime()
    gc.freeze()  # what was imported stays
    gc.set_threshold(COLLECT_EVERY)
    app = App(settings, openers, siblings)
    starting = asyncio.create_task(app.start())
    stopped = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()  # raises what went wrong
            if app.repository.readiness.is_ready:
                seconds = time.monotonic() - started_s
                logger.info("ready in %.2f s%s", seconds, app.page_in_words)
            trying = asyncio.ensure_future(on_ready(app))
            await asyncio.wait({trying, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if trying.done():
                trying.result()
            await stopped
            trying.cancel()
        logger.info("stopping")
    finally:
        for number in numbers:
            loop.add_signal_handler(number, app.hurry)
        starting.cancel()
        await app.stop()
        _end_soon()


def stopping_signals() -> list[signal.Signals]:
    """The signals that drain: SIGHUP too, unless the process was started to outlive its terminal.

    A closed terminal and some supervisors send it. Nothing is left to be read again: certificates
    and tokens are when they change, and models under `--model-control-mode poll`.
    """
    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as `nohup` has it
        numbers.append(signal.SIGHUP)
    return numbers


def _end_soon() -> None:
    """The interpreter waits for its threads, and a load or a run on one of them may never end."""
    timer = threading.Timer(EXIT_LIMIT_S, os._exit, [0])
    timer.daemon = True
    timer.start()
