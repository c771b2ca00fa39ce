"""Calls over HTTP: TLS, tokens, deadlines, connections, and servers that answer something else."""

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from tritonclient.grpc import service_pb2 as pb
from typer.testing import CliRunner, Result

from commands.ask.client.client import Client
from commands.ask.client.refusal import CallError
from commands.main import app
from service.calls.generation import Generate
from service.calls.models import Models
from service.calls.sampling import Sampling
from service.errors import SettingError
from tests.fakes.certificates import Authority
from tests.fakes.command_line import PLAIN, run
from tests.fakes.http import port_of
from tests.fakes.serving import Served, eventually, serving, within_patience, write_models

pytestmark = pytest.mark.asyncio(loop_scope="module")
NUM_LINES = 1_500
JSON_MODELS = b'{"models": [{"name": "one", "version": "1", "task": "embedding"}]}'
WHOLE = "HTTP/1.1 {status} It\r\ncontent-length: {length}\r\n{headers}\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    folder = tmp_path_factory.mktemp("model_repository")
    write_models(folder)
    async with serving(folder, http_port=0, max_queue_requests=1) as running:
        yield running


def address_of(served: Served) -> str:
    return f"http://127.0.0.1:{port_of(served)}"


async def run_at(address: str, *words: str, stdin: str = "", **env: str) -> Result:
    """What a command of a server at an address did."""
    command = [*words, "--server", address]
    invoke = CliRunner().invoke
    return await within_patience(
        asyncio.to_thread(invoke, app, command, env=PLAIN | env, input=stdin)
    )


def whole(content: bytes, status: int = 200, headers: str = "") -> bytes:
    return WHOLE.format(status=status, length=len(content), headers=headers).encode() + content


class FakeHttp:
    """Answers requests with bytes, one after the other, and counts its connections."""

    def __init__(self, *answers: bytes, closes: bool = False) -> None:
        self._answers = list(answers)
        self._closes = closes
        self.num_connections = 0
        self.address = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator["FakeHttp"]:
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        async with server:
            self.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            yield self

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        while self._answers and (head := await reader.readuntil(b"\r\n\r\n")):
            lines = head.decode().lower().split("\r\n")
            (length,) = (int(line[16:]) for line in lines if line.startswith("content-length: "))
            await reader.readexactly(length)
            writer.write(self._answers.pop(0))
            if self._closes:
                break
        writer.close()


async def test_the_address_is_also_named_server_and_read_from_a_variable(served: Served) -> None:
    named = await run_at(address_of(served), "classify", "spam", "win")
    result = await within_patience(
        asyncio.to_thread(
            CliRunner().invoke,
            app,
            ["classify", "spam", "win"],
            env=PLAIN | {"ATTENDANT_ADDRESS": address_of(served)},
        )
    )
    checked = await run_at(address_of(served), "healthcheck")
    assert (named.exit_code, result.exit_code, checked.exit_code) == (0, 0, 0)


async def test_any_number_of_lines_is_answered_in_order(served: Served) -> None:
    """Several requests are in flight, and a full queue is asked again."""
    lines = "".join(f"win {number % 7}\n" for number in range(NUM_LINES))
    result = await run(
        served, "classify", "spam", "-", "--ndjson", stdin=lines, address=address_of(served)
    )
    assert result.exit_code == 0
    found = [json.loads(line)["line"] for line in result.stdout.splitlines()]
    assert found == [*range(1, NUM_LINES + 1)]


@pytest.mark.parametrize(
    "address",
    [
        "http://",
        "http://:8000",
        "http://host:x",
        "http://host:70000",
        "https://h/v1",
        "http://[::1",
    ],
)
async def test_an_address_without_host_or_with_a_path_is_refused(address: str) -> None:
    with pytest.raises(SettingError, match=r"--address is '.*', expected https?://HOST:PORT"):
        CliRunner().invoke(app, ["models", "--server", address], catch_exceptions=False)


async def test_tls_and_tokens_are_those_of_grpc(tmp_path: Path) -> None:
    """Both ends have certificates; without one, or without the token, there is no answer."""
    authority = Authority(tmp_path, "authority")
    own, client = authority.sign("server"), authority.sign("client")
    folder, tokens = tmp_path / "models", tmp_path / "tokens"
    folder.mkdir()
    write_models(folder)
    tokens.write_text("open-sesame-open-sesame\n")
    tls = {"tls_cert": str(own.cert), "tls_key": str(own.key)}
    rules = {"tls_client_ca": str(authority.cert), "token_file": str(tokens)}
    async with serving(folder, None, http_port=0, **tls, **rules) as running:
        address = f"https://127.0.0.1:{port_of(running)}"
        words = "classify", "spam", "win", "--timeout-s", "5"
        trust = "--tls-ca", str(authority.cert)
        pair = "--tls-cert", str(client.cert), "--tls-key", str(client.key)
        token = "--token-file", str(tokens)
        known = await run_at(address, *words, *trust, *pair, *token)
        named = await run_at(address, *words, *trust, *pair, *token, "--tls-name", "localhost")
        nameless = await run_at(address, *words, *trust, *pair)
        stranger = await run_at(address, *words, *trust, *token)
        misnamed = await run_at(address, *words, *trust, *pair, *token, "--tls-name", "elsewhere")
        untrusted = await run_at(address, *words, *token)
        plain = await run_at(address.replace("https", "http"), *words, *token)
    assert (known.exit_code, named.exit_code) == (0, 0), known.output
    refused = (nameless, stranger, misnamed, untrusted, plain)
    assert [each.exit_code for each in refused] == [1] * 5
    assert nameless.stderr.startswith("attendant: error: UNAUTHENTICATED: ")
    assert all("error: UNAVAILABLE: " in each.stderr for each in refused[1:])
    assert "see --tls-ca and --tls-name" in untrusted.stderr
    assert "'elsewhere' doesn't match" in misnamed.stderr
    assert "with TLS begins with https://" in plain.stderr


async def test_a_deadline_is_that_of_the_whole_answer(served: Served) -> None:
    """Before the first byte, and while a stream of chunks still comes."""
    held = await served.hold("spam")
    words = "classify", "spam", "win", "--timeout-s", "0.3"
    late = await run_at(address_of(served), *words)
    served.release("spam")
    await held
    expected = f"{address_of(served)} gave no answer within 0.3 s, which --timeout-s allows"
    assert late.stderr == f"attendant: error: DEADLINE_EXCEEDED: {expected}\n"

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(CHUNKED)
        while not writer.is_closing():
            writer.write(b'd\r\n{"text": "a"}\r\n1\r\n\n\r\n')
            await asyncio.sleep(0.02)

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    async with server:
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        began_s = time.monotonic()
        result = await run_at(address, "generate", "tale", "once", "--timeout-s", "0.5")
        assert time.monotonic() - began_s < 5
    assert result.stdout.startswith("aaa")
    assert "DEADLINE_EXCEEDED: " in result.stderr


async def test_a_stream_that_is_left_ends_at_the_server(served: Served) -> None:
    (decoder,) = served.decoders
    decoder.hold(after=5)
    call = Generate(model="tale", prompt="once", sampling_params=Sampling(max_tokens=40))

    def first_text() -> str:
        with Client(address_of(served), 30.0) as client:
            return next(client.stream(call)).text

    assert await within_patience(asyncio.to_thread(first_text))
    decoder.release()
    await eventually(lambda: served.num_running("tale") == 0)
    served.forget()


@pytest.mark.parametrize("transport", ["gRPC", "HTTP"])
async def test_ctrl_c_ends_a_generation_at_the_server(served: Served, transport: str) -> None:
    """The command exits as a shell expects, and the server has no sequence left of it."""
    (decoder,) = served.decoders
    decoder.hold(after=5)
    address = served.address if transport == "gRPC" else address_of(served)
    command = "-m", "commands", "generate", "tale", "once", "--max-tokens", "40"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *command, "--address", address),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert await within_patience(process.stdout.read(1))
    process.send_signal(signal.SIGINT)
    _, said = await within_patience(process.communicate())
    decoder.release()
    await eventually(lambda: served.num_running("tale") == 0)
    assert len(decoder.calls) < 30, "whole, the text takes 40 runs"
    served.forget()
    assert (process.returncode, said) == (130, b"")


async def test_an_error_after_the_first_chunk_has_its_status() -> None:
    lines = b'{"text": "once"}\n{"error": "the model is broken", "status": "INTERNAL"}\n'
    async with FakeHttp(whole(lines)).running() as fake:
        result = await run_at(fake.address, "generate", "tale", "a")
    assert result.stdout == "once\n"
    assert result.stderr == "attendant: error: INTERNAL: the model is broken\n"
    assert result.exit_code == 1


async def test_a_server_that_names_a_delay_is_asked_again() -> None:
    """Only with status 429: with others gRPC names none."""
    full = whole(b'{"error": "full"}', 429, "retry-after-ms: 1\r\n")
    label = b'{"results": [{"labels": [{"label": "ham", "score": 1.0}]}]}'
    async with FakeHttp(full, full, whole(label)).running() as fake:
        result = await run_at(fake.address, "classify", "spam", "win")
        assert (result.exit_code, fake.num_connections) == (0, 1)
    gone = whole(b'{"error": "gone"}', 503, "retry-after-ms: 1\r\n")
    async with FakeHttp(gone).running() as fake:
        result = await run_at(fake.address, "classify", "spam", "win")
    assert result.stderr == "attendant: error: UNAVAILABLE: gone\n"


@pytest.mark.parametrize(("closes", "num_connections"), [(False, 1), (True, 3)])
async def test_a_connection_is_kept_until_the_server_ends_it(
    closes: bool, num_connections: int
) -> None:
    async with FakeHttp(*[whole(JSON_MODELS)] * 3, closes=closes).running() as fake:

        def ask() -> list[Models]:
            with Client(fake.address, 30.0) as client:
                return [client.models() for _ in range(3)]

        found = await within_patience(asyncio.to_thread(ask))
        assert [each.models[0].name for each in found] == ["one"] * 3
        assert fake.num_connections == num_connections


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (whole(b"<html>"), "UNIMPLEMENTED: {address} gave an answer that is none of Attendant's: "),
        (whole(b"[]"), "UNIMPLEMENTED: {address} gave an answer that is none of Attendant's: "),
        (whole(b"<html>", 404), "NOT_FOUND: {address} answered 404 Not Found"),
        (whole(b'{"error": 7}', 418), "UNKNOWN: 7"),
        (whole(b"", 302, "location: /\r\n"), "UNKNOWN: {address} answered 302 Found"),
        (whole(JSON_MODELS)[:-1], "UNAVAILABLE: the connection to {address} ended before the "),
        (CHUNKED + b"5\r\n{", "UNAVAILABLE: the connection to {address} ended before the "),
        (b"", "UNAVAILABLE: {address} gives no answer in HTTP/1.1: "),
        (b"\0\0\x12\4\0", "UNAVAILABLE: {address} gives no answer in HTTP/1.1: "),
    ],
)
async def test_an_answer_of_something_else_is_named(answer: bytes, expected: str) -> None:
    async with FakeHttp(answer, closes=True).running() as fake:
        result = await run_at(fake.address, "models", "--timeout-s", "5")
        assert result.stderr.startswith(
            f"attendant: error: {expected.format(address=fake.address)}"
        )
    assert result.exit_code == 1


@pytest.mark.parametrize("command", ["models", "infer simple --input INPUT0=[[1]]"])
async def test_a_server_that_is_not_there_and_a_port_of_grpc_are_named(
    served: Served, command: str
) -> None:
    absent = await run_at("http://127.0.0.1:1", *command.split())
    assert "UNAVAILABLE: no server answers at http://127.0.0.1:1: start one by" in absent.stderr
    grpc = await run_at(f"http://{served.address}", *command.split(), "--timeout-s", "5")
    assert "an address of gRPC is HOST:PORT" in grpc.stderr


async def test_tensors_of_another_form_are_an_error() -> None:
    """Outputs in JSON, though bytes were requested, and no object."""
    output = b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": [1]}]}'
    for content in (output, b"[]"):
        async with FakeHttp(whole(content)).running() as fake:
            with pytest.raises(CallError, match="none of the Open Inference Protocol"):
                await within_patience(asyncio.to_thread(_infer, fake.address))


def _infer(address: str) -> None:
    with Client(address, 5.0) as client:
        path = "/inference.GRPCInferenceService/ModelInfer"
        client.call(path, pb.ModelInferResponse, pb.ModelInferRequest(model_name="m"))
