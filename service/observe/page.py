"""The HTTP port of `/metrics`, with bounds on threads and time for every client.

Knows nothing of metrics: it serves one WSGI application. A connection takes a thread; beyond
`MAX_CONNECTIONS` the oldest is cut off, and each after `MAX_CONNECTION_S` in any state, so that
clients which send slowly, or nothing, or do not read, keep no other out: a probe least of all.
"""

import socket
import threading
import time
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

MAX_CONNECTIONS = 16
MAX_THREADS = 2 * MAX_CONNECTIONS  # while those of connections that were cut off end
MAX_CONNECTION_S = 10.0
POLL_INTERVAL_S = 0.1  # between looks for connections that are too old


class _QuietHandler(WSGIRequestHandler):
    timeout = MAX_CONNECTION_S  # of one read or write

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """A scrape every few seconds is no news."""


class MetricsServer(ThreadingMixIn, WSGIServer):
    """Answers on threads of its own from `start` to `stop`."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = MAX_CONNECTIONS
    max_connection_s = MAX_CONNECTION_S

    def __init__(self, host: str, port: int, application: Any) -> None:
        bare = host.removeprefix("[").removesuffix("]")
        self.address_family = socket.AF_INET6 if ":" in bare else socket.AF_INET
        self._started_s: dict[socket.socket, float] = {}  # connections that have a thread
        self._cut: set[socket.socket] = set()  # of those, the ones that are ended for want of room
        super().__init__((bare, port), _QuietHandler)
        self.set_app(application)

    def start(self) -> None:
        threading.Thread(
            target=self.serve_forever, args=(POLL_INTERVAL_S,), name="metrics", daemon=True
        ).start()

    def stop(self) -> None:
        """Close the port; blocks for up to the polling interval."""
        self.shutdown()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        if len(self._started_s) >= MAX_THREADS:
            self.shutdown_request(request)
            return
        kept = [each for each in list(self._started_s) if each not in self._cut]
        if len(kept) >= MAX_CONNECTIONS:
            self._cut.add(kept[0])
            _cut(kept[0])
        self._started_s[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._started_s.pop(request, None)
        self._cut.discard(request)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Between polls: cut off connections that are too old, which ends their threads."""
        now_s = time.monotonic()
        for connection, started_s in list(self._started_s.items()):
            if now_s - started_s > self.max_connection_s:
                _cut(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves early is no error of ours."""


def _cut(connection: socket.socket) -> None:
    """End a connection, and with it the thread that reads from it or writes to it."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
