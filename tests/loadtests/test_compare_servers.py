"""What servers are asked, how, and what is counted; none of them is installed here."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from tritonclient.grpc import service_pb2

from loadtests.compare.comparison import Result
from loadtests.compare.installs import ON_ONNXRUNTIME
from loadtests.compare.peers import DRIVER, others, ours
from loadtests.compare.report import figures, keep, kept, remarks, show
from loadtests.compare.server_traffic import SERVER_TRAFFIC
from loadtests.compare.servers.clients import Client, HttpClient, vector_of
from loadtests.compare.servers.driver import ready_client
from loadtests.compare.servers.launching import LAUNCHES, Place, environ_of
from loadtests.compare.servers.loops import closed_loop, open_loop
from loadtests.compare.traffic import EMBED
from loadtests.compare.worker import Answer, Work
from loadtests.load.lengths import mixed_sizes
from tests.fakes.virtual import run_virtually


def batching(rows: int, run_s: float) -> Callable[[str], Awaitable[list[float]]]:
    """A server that runs up to this number of requests at once, one batch after another."""
    waiting: list[asyncio.Future[None]] = []
    running: list[asyncio.Task[None]] = []

    async def run() -> None:
        while waiting:
            batch = [waiting.pop(0) for _ in range(min(rows, len(waiting)))]
            await asyncio.sleep(run_s)
            for each in batch:
                each.set_result(None)
            await asyncio.sleep(0)  # an answered client sends its next request
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        running.clear()

    async def ask(text: str) -> list[float]:
        waiting.append(answered := asyncio.get_running_loop().create_future())
        if not running:
            running.append(asyncio.create_task(run()))
        await answered
        return [float(text)]

    return ask


@pytest.mark.parametrize(("concurrency", "rows"), [(1, 1), (4, 4), (8, 4), (32, 8)])
def test_a_closed_loop_measures_what_the_server_sustains(concurrency: int, rows: int) -> None:
    """Neither the first batch, which is not full, nor what waits at the end counts."""
    texts = [str(number) for number in range(2 * concurrency)]
    answer = run_virtually(closed_loop(batching(rows, 0.5), texts, concurrency, least_s=10.0))
    assert len(texts) / answer.seconds == pytest.approx(rows / 0.5, rel=0.07)
    assert [value for (value,) in answer.outputs] == [float(text) for text in texts]
    assert np.median(answer.latencies_s) == pytest.approx(0.5 * concurrency / rows)


def test_latency_of_an_open_loop_is_from_when_a_request_was_due() -> None:
    """One at a time takes 0.5 s, ten a second are due: the last waits for all before it."""
    answer = run_virtually(open_loop(batching(1, 0.5), ["1"] * 20, rate=10.0))
    assert answer.latencies_s[0] == pytest.approx(0.5)
    assert answer.latencies_s[-1] > 6.0
    assert answer.latencies_s == sorted(answer.latencies_s)


def test_an_answer_that_fails_ends_the_loop() -> None:
    async def ask(text: str) -> list[float]:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        run_virtually(closed_loop(ask, ["1"], 2))


PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: x\r\nContent-Length: 7\r\n\r\n[1.5,2]"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\n[1.\r\n4;a=b\r\n5,2]\r\n0\r\n\r\n"
)
REFUSED = b"HTTP/1.1 503 Overloaded\r\nContent-Length: 4\r\n\r\nbusy"


@asynccontextmanager
async def http_server(*responses: bytes) -> AsyncIterator[tuple[int, list[object]]]:
    """Answers one connection with these; gives its port, and the bodies that came."""
    bodies: list[object] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for response in responses:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            (length,) = (line[16:] for line in head.splitlines() if line[:15] == "Content-Length:")
            bodies.append(json.loads(await reader.readexactly(int(length))))
            writer.write(response)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], bodies


async def test_http_answers_have_a_length_or_chunks_on_one_connection() -> None:
    async with http_server(PLAIN, CHUNKED) as (port, bodies):
        client = HttpClient(port, "/p", lambda text: {"text": text}, lambda found: found)
        assert [await client.ask(text) for text in ("t5", "t6")] == [[1.5, 2.0]] * 2
        assert bodies == [{"text": "t5"}, {"text": "t6"}]
        client.rest()


async def test_a_client_that_rested_connects_anew() -> None:
    """Servers close connections that were idle while others had their turn."""
    async with http_server(PLAIN) as (port, bodies):
        client = HttpClient(port, "/p", lambda text: text, lambda found: found)
        for _ in range(2):
            assert await client.ask("t5") == [1.5, 2.0]
            client.rest()
    assert len(bodies) == 2


async def test_an_http_refusal_is_an_error_that_says_why() -> None:
    async with http_server(REFUSED) as (port, _):
        client = HttpClient(port, "/p", lambda text: text, lambda found: found)
        with pytest.raises(RuntimeError, match=r"HTTP 503.*busy"):
            await client.ask("t5")


def test_oip_vectors_are_raw_or_typed() -> None:
    raw = service_pb2.ModelInferResponse(
        raw_output_contents=[np.array([1.5, 2], np.float32).tobytes()]
    )
    output = {"name": "embedding", "contents": {"fp32_contents": [1.5, 2]}}
    typed = service_pb2.ModelInferResponse(outputs=[output])
    assert vector_of(raw) == vector_of(typed) == [1.5, 2.0]


class FakeClient(Client):
    """Fails until it was asked so often."""

    def __init__(self, faults: list[str]) -> None:
        self._faults = faults

    async def ask(self, text: str) -> list[float]:
        if self._faults:
            raise OSError(self._faults.pop())
        return [0.0]

    def rest(self) -> None: ...


def test_a_server_is_ready_when_it_has_answered() -> None:
    faults = ["refused", "loading"]
    client = FakeClient(faults)
    assert run_virtually(ready_client(lambda: client, lambda: True)) is client
    assert not faults


@pytest.mark.parametrize(
    ("is_running", "said"), [(True, "not ready within 180 s: loading"), (False, "ended before")]
)
def test_a_server_that_does_not_get_ready_says_why(is_running: bool, said: str) -> None:
    with pytest.raises(RuntimeError, match=said):
        run_virtually(ready_client(lambda: FakeClient(["loading"] * 2_000), lambda: is_running))


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    version = tmp_path / "exported" / "model" / "1"
    version.mkdir(parents=True)
    for name in ("model.onnx", "tokenizer.json", "manifest.json"):
        (version / name).write_text(name)
    (tmp_path / "exported" / "model" / "config.pbtxt").touch()
    return tmp_path / "exported"


@pytest.mark.parametrize("server", ["triton", "mlserver", "litserve", "bentoml", "ray"])
@pytest.mark.parametrize("below", ["", "model/1"])
def test_a_server_is_told_where_its_app_and_its_graph_are(
    server: str, below: str, exported: Path, tmp_path: Path
) -> None:
    """The graph is in a repository that we exported, or in the folder of another exporter."""
    model = exported if below else exported / "model" / "1"
    packages = tmp_path / "venv" / "lib" / "python3.11" / "site-packages"
    (packages / "pytriton" / "tritonserver" / "backends" / "python").mkdir(parents=True)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    place = Place(
        model,
        tmp_path / "venv" / "bin" / "python",
        scratch,
        (1, 2, 3),
        threads=2,
        rows=8,
        pooling="cls",
        max_tokens=64,
    )
    launch = LAUNCHES[server](place)
    environ = environ_of(place, launch)
    assert Path(environ["EMBEDDER_FOLDER"], "model.onnx").is_file()
    assert (environ["EMBEDDER_POOLING"], environ["EMBEDDER_MAX_TOKENS"]) == ("cls", "64")
    assert environ["PYTHONPATH"].endswith(("servers/apps", "site-packages"))
    assert environ["PATH"].startswith(str(tmp_path / "venv" / "bin"))


OTHERS = [peer for peer in others("minilm", is_served=True) if peer.worker == DRIVER]


def test_every_server_can_be_started_and_has_one_row_as_people_have_it() -> None:
    own = {peer.options["server"] for peer in ours("minilm", (), {}, is_served=True)}
    assert {peer.options["server"] for peer in OTHERS} | own == set(LAUNCHES)
    names = {peer.name.split(" float32")[0].split(" int8")[0] for peer in OTHERS}
    assert {f"{name} float32" for name in names - {"LitServe its own"}} <= {
        peer.name for peer in OTHERS
    }


def test_others_are_given_the_very_int8_graph_that_ours_serves() -> None:
    (graph,) = {peer.folder for peer in ours("minilm", (), {}, is_served=True)}
    same = {peer.name.removesuffix(" unbatched") for peer in OTHERS if peer.folder == graph}
    assert same == {f"{name} int8" for name in ON_ONNXRUNTIME}
    (bare,) = (peer for peer in others("minilm", is_served=True) if peer.worker != DRIVER)
    assert bare.folder == graph


def test_a_setting_is_one_more_server_of_ours_beside_those_with_its_defaults() -> None:
    """So a setting, the defaults and the peers take turns in one run."""
    settings = {"spin_us": 50, "can_spin": True, "playground": False}
    own = ours("minilm", ["int8"], settings, is_served=True)
    assert {peer.name: peer.options["flags"] for peer in own} == {
        "attendant int8, gRPC": [],
        "attendant int8, HTTP": [],
        "attendant int8, spin_us=50": ["--spin-us=50"],
        "attendant int8, can_spin=True": ["--can-spin"],
        "attendant int8, playground=False": ["--no-playground"],
    }


@pytest.mark.parametrize("model", SERVER_TRAFFIC)
def test_texts_of_real_lengths_are_not_sorted_for_anybody(model: str) -> None:
    works: list[Work] = [kind.full(mixed_sizes) for kind in SERVER_TRAFFIC[model]]
    assert {work.concurrency for work in works} == {1, 8, 32}
    for work in works:
        sizes = [len(text.split()) for text in work.texts]
        assert len(work.texts) >= 2 * work.concurrency
        assert set(sizes) == {126} or sizes != sorted(sizes)


def test_the_table_has_every_server_beside_each_of_ours(tmp_path: Path) -> None:
    kinds = [kind.name for kind in SERVER_TRAFFIC["minilm"][:2]]
    for kind in kinds:
        result = Result(kind, "what", EMBED, "theirs", "int8", amount=10)
        result.theirs_s = [2.0, 2.0]
        result.ours_s = {"ours": [1.0, 0.5], "ours, HTTP": [2.0, 2.0]}
        keep(result, tmp_path)
    keep(Result(kinds[0], "what", EMBED, "absent", "int8", fault="pip says no"), tmp_path)
    found = {
        (each.table.split(":")[0], each.row, each.column): str(each)
        for each in figures(kept(tmp_path))
    }
    for kind in kinds:
        assert found[kind, "ours", "texts/s"] == "15 (10 to 20)"
        assert found[kind, "theirs", "ours over it"] == "3.00 (2.00 to 4.00)"
        assert found[kind, "theirs", "ours, HTTP over it"] == "1.00"
    assert f"{kinds[0]}, absent: pip says no" in remarks(kept(tmp_path))


def test_latencies_of_ours_and_of_theirs_stand_in_the_table() -> None:
    answers = {
        "ours": [Answer(1.0, [], [0.1, 0.1, 0.1]), Answer(1.0, [], [0.1])],
        "theirs": [Answer(2.0, [], [0.25]), Answer(2.0, [], [0.35])],
    }
    result = Result("minilm-serve-real-32", "what", EMBED, "theirs", "float32", amount=10)
    result.add(answers)
    console = Console(record=True, width=200, file=io.StringIO())
    show([result], console)
    shown = console.export_text()
    for cell in ("p50, ms", "p99, ms", "100", "300", "349", "2.00"):
        assert cell in shown
