"""The ASGI application: routes, rules of access, bodies, and errors; every handler runs in here.

    route, host and origin -> token and key -> place among the calls in flight -> body -> handler

uvicorn runs each request in a task of its own, which `connection.py` cancels when its client
leaves, streaming or not: what the handler awaits ends, and no task is left behind. Lives on the
event loop.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from service.api.access import Access
from service.api.admission import SHUTTING_DOWN, Admission, Stay, current_stay, message_bytes
from service.api.calls import INTERNAL_ERROR, Calls
from service.api.operations import Operations
from service.errors import AttendantError, InvalidArgument, Unavailable, forget_frames
from service.http.body import read_body
from service.http.browser import BrowserRules
from service.http.request import Reply, Request, own_scope
from service.http.routes import PAGE_PATH, Route, Router
from service.http.status import HttpError, invalid
from service.settings import Settings

_BOUNDS = {
    "token": (401, "authentication_error", "invalid_api_key"),
    "key": (403, "permission_error", None),
}
logger = logging.getLogger(__name__)


class Front:
    """Answers the requests of one port."""

    def __init__(
        self,
        settings: Settings,
        operations: Operations,
        admission: Admission,
        calls: Calls,
        elsewhere: Collection[str] = (),  # operations that another port answers
    ) -> None:
        self.settings = settings
        self.operations = operations
        self.admission = admission
        self.calls = calls
        self.num_calls = 0  # in flight
        self.num_begun = 0  # since the start, without probes and scrapes
        self.statuses: Counter[int] = Counter()  # of answers
        self._elsewhere = elsewhere
        self._access = Access(settings, admission.refusals)
        self._rules = BrowserRules.of(settings)
        self._router = Router(())

    def use(self, routes: Sequence[Route]) -> None:
        """Answer these; called once, before the port opens."""
        self._router = Router(routes)

    def answered(self, status: int) -> None:
        """Count an answer."""
        self.statuses[status] += 1

    async def __call__(
        self,
        scope: dict[str, Any],
        receive: Callable[[], Awaitable[dict[str, Any]]],
        send: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> None:
        request = Request(self, scope, receive, send)
        if request.is_over:
            return
        stay = Stay()
        current_stay.set(stay)
        message_bytes.set(0)  # a body counts in its stay as it comes
        request.connection.running = asyncio.current_task()
        try:
            await self._answer(request)
        except asyncio.CancelledError:
            if not request.is_over:  # the server ends
                await self._fail(request, Unavailable(SHUTTING_DOWN))
        finally:
            request.connection.running = None
            request.let_go()
            self.admission.let_go(stay)

    async def answer_own(self, path: str, body: bytes) -> tuple[Reply, str]:
        """The reply to a request of the server's own, in the background, and the request's id.

        It has passed the rules of access with what it is a part of, and takes no place among the
        calls in flight.
        """
        request = Request(self, own_scope(path), _nothing, _nothing)
        request.is_background, request.body = True, body
        stay = Stay()
        current_stay.set(stay)
        message_bytes.set(0)
        try:
            self.admission.take(len(body))
            await request.work(lambda: _check_whole(body))
            route, request.parameters = self._router.find(request.method, path)
            reply = await route.handler(request)
            assert reply is not None, "no stream is asked for"
        except (HttpError, AttendantError) as error:
            forget_frames(error)
            reply = _refusal(request, error)
        except Exception as error:
            reply = _refusal(request, _failure(request, error))
        finally:
            request.let_go()
            self.admission.let_go(stay)
        return reply, request.request_id

    async def _answer(self, request: Request) -> None:
        has_place = False
        try:
            route = self._admitted(request)
            if route is None:
                await request.reply(Reply(status=204))
                return
            if not route.is_probe:
                self._take_place()
                has_place = True
                self.num_begun += not route.is_scrape
            request.body = await read_body(
                request, self.settings, self.admission, is_json=route.is_json
            )
            reply = await route.handler(request)
            if reply is not None:
                await request.reply(reply)
        except (HttpError, AttendantError) as error:
            forget_frames(error)  # an engine may keep it, and they the request
            await self._fail(request, error)
        except Exception as error:
            await self._fail(request, _failure(request, error))
        finally:
            self.num_calls -= has_place

    def _admitted(self, request: Request) -> Route | None:
        """The route of a request that may be made; None for a browser that asks whether it may."""
        if request.http_version not in ("1.1", "1.0"):
            raise HttpError(505, f"HTTP {request.http_version} is not spoken here, but HTTP/1.1")
        if request.num_hosts != 1 and (request.http_version == "1.1" or request.num_hosts):
            raise HttpError(400, f"the request has {request.num_hosts} host headers, expected one")
        is_preflight = (
            request.method == "OPTIONS" and b"access-control-request-method" in request.headers
        )
        if is_preflight:
            request.reply_headers += self._rules.preflight(request.headers)
            return None
        is_page = request.path == PAGE_PATH and request.method in ("GET", "HEAD")
        request.reply_headers += self._rules.check(request.headers, is_page=is_page)
        route, request.parameters = self._router.find(request.method, request.path)
        operation = route.operation_path(request.parameters)
        if operation in self._elsewhere:
            text = "This protocol is restricted to the port for administration"
            raise HttpError(403, text, kind="permission_error")
        if self._access.has_rules:
            self._check_access(operation, request)
        return route

    def _check_access(self, operation: str, request: Request) -> None:
        denial = self._access.denial(operation, request.header)
        if denial is None:
            return
        status, kind, code = _BOUNDS[denial.bound]
        headers = ((b"www-authenticate", b"Bearer"),) if status == 401 else ()
        raise HttpError(status, denial.text, kind=kind, code=code, headers=headers)

    def _take_place(self) -> None:
        most = self.settings.max_concurrent_rpcs
        if self.num_calls >= most:
            self.admission.refusals["calls"] += 1
            raise HttpError(
                429,
                f"Exceeds maximum of {most} calls in flight",
                kind="rate_limit_error",
                code="overloaded",
                headers=((b"retry-after", b"1"),),
            )
        self.num_calls += 1

    async def _fail(self, request: Request, error: HttpError | AttendantError) -> None:
        """Answer with an error: as a status, or as the last event of a stream that has begun."""
        error = _as_http(request, error)
        if request.has_left:
            return
        try:
            if request.stream is not None:
                await request.stream.fail(error)
                return
            if request.has_begun:  # a part of an answer that cannot be ended properly
                request.abort()
                return
            if not request.is_received:  # what is left of the body would be read as a request
                request.connection.refuse(error, request.writer)
                return
            await request.reply(_refusal(request, error))
        except (AttendantError, RuntimeError):  # the client reads too slowly, or a part is written
            request.abort()


def _as_http(request: Request, error: HttpError | AttendantError) -> HttpError:
    """An error in the words of a request's dialect."""
    if isinstance(error, InvalidArgument):
        error = request.named(error)
    return request.writer.of_domain(error) if isinstance(error, AttendantError) else error


def _refusal(request: Request, error: HttpError | AttendantError) -> Reply:
    status, body, headers = request.writer.error(_as_http(request, error))
    return Reply(body, status, headers=headers)


def _failure(request: Request, error: Exception) -> HttpError:
    """The answer to what is no error of the domain, which is logged."""
    logger.exception("%s %s failed", request.method, request.path)
    forget_frames(error)
    return HttpError(500, INTERNAL_ERROR, kind="server_error", code="internal_error")


class _Whole(msgspec.Struct):
    stream: object = None


def _check_whole(body: bytes) -> None:
    """Raise `HttpError` for a body that asks for a stream; its other faults are its handler's."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        if msgspec.json.decode(body, type=_Whole).stream:
            raise invalid("stream is true, expected false here: answers are whole", "stream")


async def _nothing(*_: object) -> Any:  # noqa: ANN401 - ASGI's
    """Takes what would go to a client, of whom a request of the server's own has none."""
