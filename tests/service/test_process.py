"""Signals, in a process of their own: what hangs on a thread keeps no process from ending."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from tritonclient.grpc import service_pb2_grpc

from service import app
from tests.fakes.serving import simple_request
from tests.fakes.sessions import PATIENCE_S, write_model

HANGS_S = 1_000
EXIT_S = 15.0  # about 3 s where the machine is idle
SCRIPT = f"""
import asyncio, sys, time
from pathlib import Path
from service.app import serve
from service.repository.loading import Openers
from service.settings import Settings
from tests.fakes.sessions import simple_session

ready = []

def hang(*_):
    print("hangs", flush=True)
    time.sleep({HANGS_S})

def open_session(path, options):
    if sys.argv[2] == "loading":
        hang()
    session = simple_session()
    compute = session.compute
    session.compute = lambda *inputs: hang() if ready else compute(*inputs)  # load tries it, too
    return session

async def on_ready(app):
    ready.append(True)
    print(app.grpc_port, flush=True)

settings = Settings(
    model_repository=Path(sys.argv[1]), drain_timeout_s={HANGS_S},
    grpc_port=0, http_port=-1, metrics_port=0
)
asyncio.run(serve(settings, on_ready, Openers(open_session)))
"""


@contextmanager
def hanging(repository: Path, what: str) -> Iterator["subprocess.Popen[str]"]:
    """A server that hangs while it loads or while it runs."""
    write_model(repository, "simple", config="max_batch_size: 8")
    command = [sys.executable, "-c", SCRIPT, str(repository), what]
    root = Path(__file__).parents[2]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root)  # noqa: S603
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_while_loading_ends_the_process(repository: Path, number: signal.Signals) -> None:
    with hanging(repository, "loading") as process:
        assert line_of(process) == "hangs"
        process.send_signal(number)
        assert process.wait(EXIT_S) == 0


def test_a_second_signal_ends_a_process_whose_run_hangs(repository: Path) -> None:
    """The first waits up to 1,000 s for the answer; after the second the client is told."""
    with hanging(repository, "running") as process:
        port = line_of(process)
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            call = stub.ModelInfer.future(simple_request(), timeout=HANGS_S)
            assert line_of(process) == "hangs"
            process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            error = call.exception(PATIENCE_S)
            assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
            assert process.wait(EXIT_S) == 0


def test_a_server_that_was_started_to_outlive_its_terminal_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`nohup` ignores SIGHUP before it starts a program."""
    assert signal.SIGHUP in app.stopping_signals()
    monkeypatch.setattr(signal, "getsignal", lambda _: signal.SIG_IGN)
    assert signal.SIGHUP not in app.stopping_signals()
