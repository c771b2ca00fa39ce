"""`attendant healthcheck`: what it says and how it ends."""

import asyncio
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from commands.ask.client.access import own_address
from commands.main import app
from tests.fakes.certificates import Authority
from tests.fakes.serving import Served, eventually, serving, within_patience, write_models
from tests.fakes.sessions import write_model

pytestmark = pytest.mark.asyncio(loop_scope="module")
PLAIN = {"COLUMNS": "40", "NO_COLOR": "1", "TERM": "dumb"}  # narrow: one line all the same
MOST_TIMES = 2  # what it takes over the import of its libraries, in processor time; 1.3 it is
ROOT = Path(__file__).parents[4]
ASK = ("-m", "commands", "healthcheck", "--address", "127.0.0.1:1", "--timeout-s", "5")
LIBRARIES = ("-c", "import grpc, grpc_health.v1.health_pb2_grpc")
OTHERS = {"service", "commands", *packages_distributions()}


async def run(*flags: str, **env: str) -> Result:
    return await run_words(["healthcheck", *flags], env)


async def run_words(words: list[str], env: dict[str, str]) -> Result:
    invoke = CliRunner().invoke
    return await within_patience(asyncio.to_thread(invoke, app, words, env=PLAIN | env))


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
async def test_a_service_that_is_not_serving_exits_1_with_one_line(
    served: Served, flags: tuple[str, ...], word: str
) -> None:
    result = await run("--address", served.address, *flags)
    assert result.exit_code == 1
    assert word in result.stdout
    assert result.stdout.count("\n") == 1


@pytest.mark.parametrize("service", ["", "readiness", "liveness", "spam"])
async def test_it_asks_over_http_where_the_address_says_so(tmp_path: Path, service: str) -> None:
    write_models(tmp_path)
    async with serving(tmp_path, http_port=0) as running:
        address = f"http://127.0.0.1:{running.app.http_port}"
        result = await run("--service", service, "--address", address)
        assert (result.exit_code, result.stdout.split()[-1]) == (0, "SERVING")


async def test_the_http_port_in_place_of_grpcs_is_named(tmp_path: Path) -> None:
    write_models(tmp_path)
    async with serving(tmp_path, http_port=0) as running:
        address = f"127.0.0.1:{running.app.http_port}"
        result = await run("--address", address)
    assert result.exit_code == 1
    expected = f"{address} speaks HTTP/1.1: an address of HTTP is http://{address}, and gRPC's "
    assert expected in result.stdout


async def test_a_server_that_stops_is_not_ready_over_http_either(tmp_path: Path) -> None:
    write_models(tmp_path)
    async with serving(tmp_path, http_port=0, drain_delay_s=1_000.0) as running:
        stopping = asyncio.create_task(running.app.stop())
        await eventually(lambda: running.app._admission.is_leaving)
        result = await run("--address", f"http://127.0.0.1:{running.app.http_port}")
        running.app.hurry()
        await within_patience(stopping)
    assert (result.exit_code, result.stdout.split()[1]) == (1, "503")


@pytest.mark.parametrize(
    ("address", "service", "word"),
    [
        ("http://127.0.0.1:1", "", "UNAVAILABLE"),
        ("http://127.0.0.1:{port}", "nobody", "503 Service Unavailable"),
        ("https://127.0.0.1:{port}", "", "UNAVAILABLE"),  # the port speaks no TLS
        ("http://127.0.0.1:{port}/x", "", "expected http://HOST:PORT"),
        ("http://127.0.0.1:x", "", "expected http://HOST:PORT"),
    ],
)
async def test_a_check_over_http_that_fails_says_why(
    tmp_path: Path, address: str, service: str, word: str
) -> None:
    write_models(tmp_path)
    async with serving(tmp_path, http_port=0) as running:
        place = address.format(port=running.app.http_port)
        result = await run("--address", place, "--service", service)
    assert result.exit_code != 0
    assert word in result.output
    assert result.output.count("\n") == 1


async def test_a_check_over_https_trusts_the_certificate_and_shows_its_own(tmp_path: Path) -> None:
    """As `helm test` asks: by the Service's name, which the certificate need not have."""
    authority = Authority(tmp_path, "authority")
    signed, own = authority.sign("server"), authority.sign("client")
    folder = tmp_path / "models"
    folder.mkdir()
    write_models(folder)
    tls = {"tls_cert": str(signed.cert), "tls_key": str(signed.key)}
    tls["tls_client_ca"] = str(authority.cert)
    async with serving(folder, None, http_port=0, **tls) as running:
        address = f"https://127.0.0.1:{running.app.http_port}"
        known = {
            "ATTENDANT_CLIENT_TLS_CA": str(authority.cert),
            "ATTENDANT_CLIENT_TLS_NAME": "localhost",
            "ATTENDANT_CLIENT_TLS_CERT": str(own.cert),
            "ATTENDANT_CLIENT_TLS_KEY": str(own.key),
        }
        good = await run("--address", address, **known)
        misnamed = await run("--address", address, **known | {"ATTENDANT_CLIENT_TLS_NAME": "else"})
        without = {name: known[name] for name in list(known)[:2]}
        unknown = await run("--address", address, **without)
    assert (good.exit_code, misnamed.exit_code, unknown.exit_code) == (0, 1, 1), good.output


@pytest.mark.parametrize(
    ("service", "reason"),
    [
        ("", "'broken' is not served, and the log says why: mend or remove it, and start"),
        ("readiness", "under --no-strict-readiness the server is ready without it"),
        ("inference.GRPCInferenceService", "'broken' is not served, "),
        ("broken", "the model failed, and the log says why: mend or remove it, "),
    ],
)
async def test_a_server_that_is_not_ready_says_why(
    tmp_path: Path, service: str, reason: str
) -> None:
    write_models(tmp_path)
    write_model(tmp_path, "broken")
    async with serving(tmp_path) as running:
        result = await run("--address", running.address, "--service", service)
    assert (result.exit_code, result.stdout.count("\n")) == (1, 1)
    assert " NOT_SERVING " in result.stdout
    assert reason in result.stdout


async def test_names_of_models_are_not_told_to_probes_where_tokens_are_asked_for(
    tmp_path: Path,
) -> None:
    """GRPC health needs no token, and so it says no more than that something is wrong."""
    tokens, folder = tmp_path / "tokens", tmp_path / "models"
    tokens.write_text("a-token-of-a-client\n")
    write_model(folder, "broken")
    async with serving(folder, token_file=str(tokens)) as running:
        result = await run("--address", running.address)
    assert result.stdout.split(maxsplit=2)[1:] == ["NOT_SERVING", "the server's log says why\n"]


async def test_a_check_that_finds_no_server_says_where_it_looked() -> None:
    result = await run("--address", "127.0.0.1:1", "--timeout-s", "5")
    assert "UNAVAILABLE no server answers at 127.0.0.1:1: start one by " in result.stdout


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--timeout-s", "inf"), "is inf, expected 0.001 to 1,000,000,000 seconds"),
        (("--timeout-s", "nan"), "is nan, expected 0.001 to"),
        (("--address", "18001"), "--address is '18001', expected HOST:PORT"),
    ],
)
async def test_what_is_no_time_and_no_address_is_refused(
    flags: tuple[str, ...], reason: str
) -> None:
    result = await run(*flags)
    assert result.exit_code != 0
    assert reason in result.stderr


async def test_a_draining_server_is_unready_and_alive(tmp_path: Path) -> None:
    write_models(tmp_path)
    async with serving(tmp_path) as running:
        running.app._health.refuse()
        ready = await run("--address", running.address)
        alive = await run("--address", running.address, "--service", "liveness")
    assert (ready.exit_code, alive.exit_code) == (1, 0)
    assert "NOT_SERVING" in ready.stdout


async def test_a_server_that_stops_says_so(tmp_path: Path) -> None:
    write_models(tmp_path)
    async with serving(tmp_path, drain_delay_s=1_000.0) as running:
        stopping = asyncio.create_task(running.app.stop())
        await eventually(lambda: running.app._admission.is_leaving)
        result = await run("--address", running.address)
        running.app.hurry()
        await within_patience(stopping)
    assert "NOT_SERVING the server is stopping" in result.stdout


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


@pytest.mark.parametrize("command", ["healthcheck", "models", "classify spam win"])
async def test_every_command_finds_the_server_of_its_environment(
    served: Served, command: str
) -> None:
    """The same rule for all: the flag, its variable, and else what the server itself reads."""
    port = served.address.rpartition(":")[2]
    own = {"ATTENDANT_HOST": "0.0.0.0", "ATTENDANT_GRPC_PORT": port}  # noqa: S104
    words = command.split()
    assert (await run_words(words, own)).exit_code == 0
    elsewhere = own | {"ATTENDANT_ADDRESS": "127.0.0.1:1"}
    result = await run_words(words, elsewhere)
    assert (result.exit_code, "127.0.0.1:1" in result.output) == (1, True)
    assert (await run_words([*words, "--address", served.address], elsewhere)).exit_code == 0


@pytest.mark.parametrize("command", ["healthcheck", "models"])
async def test_every_command_trusts_the_certificate_of_its_environment(
    command: str, tmp_path: Path
) -> None:
    signed = Authority(tmp_path, "authority").sign("server")
    folder = tmp_path / "models"
    folder.mkdir()
    write_models(folder)
    tls = {"tls_cert": str(signed.cert), "tls_key": str(signed.key)}
    async with serving(folder, None, **tls) as running:
        words = [command, "--address", running.address, "--timeout-s", "5"]
        known = await run_words(words, {"ATTENDANT_TLS_CERT": str(signed.cert)})
        plain = await run_words(words, {})
    assert (known.exit_code, plain.exit_code) == (0, 1), known.output


async def test_it_imports_no_more_than_grpc_and_its_stubs_and_the_standard_library() -> None:
    """It is run every few seconds beside the server, whose processors it takes."""
    checking, libraries = await _imports(ASK, 1), await _imports(LIBRARIES, 0)
    more = {name for name in checking - libraries if not name.startswith("grpc.")}
    assert {name for name in more if name.split(".")[0] in OTHERS} == {
        "service", "service.errors",
        "commands", "commands.ask",
        "commands.ask.client", "commands.ask.client.access", "commands.ask.client.health",
    }  # fmt: skip
    assert "importlib.metadata" not in checking - libraries, "reads a version"


async def test_it_takes_little_more_than_its_libraries() -> None:
    taken_s: dict[int, list[float]] = {0: [], 1: []}  # by exit status, in turns: machines vary
    for words in (LIBRARIES, ASK) * 5:
        before_s = _children_s()
        done = await _python(*words)
        taken_s[done.returncode].append(_children_s() - before_s)
    assert min(taken_s[1]) < MOST_TIMES * min(taken_s[0])


async def test_the_console_script_is_the_one_that_asks_so() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"attendant": "commands.__main__:main"}


async def _python(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, *words]
    return await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)


async def _imports(words: tuple[str, ...], status: int) -> set[str]:
    done = await _python("-X", "importtime", *words)
    assert done.returncode == status, done.stderr
    return set(re.findall(r"\| +([\w.]+)$", done.stderr, re.MULTILINE))


def _children_s() -> float:
    times = os.times()
    return times.children_user + times.children_system
