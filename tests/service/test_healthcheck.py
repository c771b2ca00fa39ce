"""`attendant healthcheck`: what it says and how it ends."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from typer.testing import CliRunner, Result

from service.cli import app
from service.cli_health import own_address
from tests.service.certificates import Authority
from tests.service.serving import Served, serving, within_patience, write_models

pytestmark = pytest.mark.asyncio(loop_scope="module")
PLAIN = {"COLUMNS": "40", "NO_COLOR": "1", "TERM": "dumb"}  # narrow: one line all the same
MOST_TIMES = 5  # what it takes over the import of its libraries, in processor time; 3.5 to 4 it is


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    repository = tmp_path_factory.mktemp("model_repository")
    write_models(repository)
    async with serving(repository) as running:
        yield running


async def run(*flags: str, **env: str) -> Result:
    invoke = CliRunner().invoke
    command = ["healthcheck", *flags]
    return await within_patience(asyncio.to_thread(invoke, app, command, env=PLAIN | env))


@pytest.mark.parametrize("service", ["", "readiness", "liveness", "spam"])
async def test_a_healthy_service_exits_0_with_one_line(served: Served, service: str) -> None:
    result = await run("--service", service, "--address", served.address)
    assert result.exit_code == 0
    assert result.stdout.split() == [served.address, *service.split(), "SERVING"]
    assert result.stdout.count("\n") == 1


async def test_the_servers_own_environment_is_enough(served: Served) -> None:
    port = str(served.app.grpc_port)
    result = await run(ATTENDANT_HOST="0.0.0.0", ATTENDANT_GRPC_PORT=port)  # noqa: S104
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (("--service", "nobody"), "NOT_FOUND"),
        (("--address", "127.0.0.1:1", "--timeout-s", "5"), "UNAVAILABLE"),
    ],
)
async def test_whatever_is_not_serving_exits_1_with_one_line(
    served: Served, flags: tuple[str, ...], word: str
) -> None:
    result = await run("--address", served.address, *flags)
    assert result.exit_code == 1
    assert word in result.stdout
    assert result.stdout.count("\n") == 1


async def test_a_draining_server_is_unready_and_alive(tmp_path: Path) -> None:
    write_models(tmp_path)
    async with serving(tmp_path) as running:
        running.app._health.refuse()
        ready = await run("--address", running.address)
        alive = await run("--address", running.address, "--service", "liveness")
    assert (ready.exit_code, alive.exit_code) == (1, 0)
    assert "NOT_SERVING" in ready.stdout


async def test_a_server_with_tls_is_asked_by_the_certificate_it_shows(tmp_path: Path) -> None:
    """As in a container: the server's own flags are in the environment, its port on loopback."""
    signed = Authority(tmp_path, "authority").sign("server")
    folder = tmp_path / "models"
    folder.mkdir()
    write_models(folder)
    tls = {"tls_cert": str(signed.cert), "tls_key": str(signed.key)}
    async with serving(folder, None, **tls) as running:
        plain = await run("--address", running.address)
        known = await run("--address", running.address, ATTENDANT_TLS_CERT=str(signed.cert))
        tls = {"ATTENDANT_TLS_CERT": str(signed.cert), "ATTENDANT_CLIENT_TLS_NAME": "elsewhere"}
        misnamed = await run("--address", running.address, **tls)
    assert (plain.exit_code, known.exit_code, misnamed.exit_code) == (1, 0, 1), known.output


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("0.0.0.0", "127.0.0.1:8001"),  # noqa: S104
        ("::", "[::1]:8001"),
        ("10.1.2.3", "10.1.2.3:8001"),
    ],
)
async def test_an_address_to_listen_on_becomes_one_to_call(
    monkeypatch: pytest.MonkeyPatch, host: str, address: str
) -> None:
    monkeypatch.setenv("ATTENDANT_HOST", host)
    assert own_address() == address


async def test_it_starts_quickly_and_without_the_server() -> None:
    """It is run every few seconds beside the server, whose processors it takes."""
    watch = "import sys; from service.cli import app; print(*sys.modules)"
    command = [sys.executable, "-c", watch]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
    heavy = {"onnxruntime", "numpy", "tokenizers", "torch", "service.app", "prometheus_client"}
    assert not heavy & set(done.stdout.split())
    attendant = Path(sys.executable).with_name("attendant")
    libraries = [sys.executable, "-c", "import grpc, typer"]
    check = [str(attendant), "healthcheck", "--address", "127.0.0.1:1", "--timeout-s", "5"]
    taken_s: dict[int, list[float]] = {0: [], 1: []}  # by exit status, in turns: machines vary
    for command in (libraries, check) * 3:
        before_s = _children_s()
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
        taken_s[done.returncode].append(_children_s() - before_s)
    assert min(taken_s[1]) < MOST_TIMES * min(taken_s[0])


def _children_s() -> float:
    times = os.times()
    return times.children_user + times.children_system
