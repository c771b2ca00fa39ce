"""The metrics port under clients that are slow, silent or many."""

import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from service.observe.page import MAX_CONNECTIONS, MAX_THREADS, MetricsServer
from tests.fakes.sessions import PATIENCE_S

PAGE = b"up 1\n"


def application(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    start("200 OK", [("Content-Length", str(len(PAGE)))])
    return [PAGE]


@contextmanager
def listening() -> Iterator[MetricsServer]:
    server = MetricsServer("127.0.0.1", 0, application)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def page_of(server: MetricsServer) -> bytes:
    url = f"http://127.0.0.1:{server.server_port}/metrics"
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as response:
        found: bytes = response.read()
    return found


def connect(server: MetricsServer, beginning: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.server_port), PATIENCE_S)
    connection.sendall(beginning)
    return connection


def test_silent_clients_keep_no_other_out() -> None:
    """16 of them take 16 threads; each one more is answered, and the oldest is cut off for it."""
    num_before = threading.active_count()
    with listening() as server:
        silent = [connect(server, b"GET /metr") for _ in range(MAX_CONNECTIONS)]
        for oldest in range(20):
            assert page_of(server) == PAGE
            assert silent[oldest].recv(1) == b""
            silent.append(connect(server, b"GET /metr"))
        assert threading.active_count() <= num_before + MAX_THREADS + 1
        for connection in silent:
            connection.close()


def test_a_client_that_sends_a_byte_now_and_then_is_cut_off() -> None:
    """Each byte comes in time, all of them do not: bound to 0.2 s here."""
    with listening() as server, connect(server, b"GET /metrics HTTP/1.1\r\n") as slow:
        server.max_connection_s = 0.2
        slow.settimeout(0.05)
        end_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < end_s:
            try:
                slow.sendall(b"x")
                if slow.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        else:
            pytest.fail("never cut off")
        assert page_of(server) == PAGE
