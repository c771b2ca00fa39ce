"""The HTTP port of a whole process: its start, clients in closed loops under SIGTERM, its end."""

import asyncio
import json
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.graphs import add_sub, write_graph
from tests.e2e.server import ServerProcess
from tests.fakes.http import answers
from tests.fakes.serving import eventually

NUM_CLIENTS = 12
BODY = json.dumps(
    {
        "inputs": [
            {"name": name, "datatype": "INT32", "shape": [1, 16], "data": [1] * 16}
            for name in ("INPUT0", "INPUT1")
        ]
    }
).encode()
ASKED = (
    b"POST /v2/models/add-sub/infer HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n%s"
    % (len(BODY), BODY)
)


@pytest.fixture(scope="module")
def small_repository() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        write_graph(add_sub(), Path(folder), "add-sub")
        yield Path(folder)


async def _client(host: str, port: int, counts: Counter[str]) -> None:
    """Asks over one connection until it ends, then over the next, until the port is closed."""
    while True:
        try:
            reader, writer = await asyncio.open_connection(host, port)
        except ConnectionRefusedError:
            counts["refused"] += 1
            return
        try:
            await _ask_until_it_ends(reader, writer, counts)
        except (ConnectionError, asyncio.IncompleteReadError) as error:
            counts[f"lost: {error!r}"] += 1
        writer.close()


async def _ask_until_it_ends(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, counts: Counter[str]
) -> None:
    is_last = False
    while not is_last:
        writer.write(ASKED)
        head = await reader.readuntil(b"\r\n\r\n")
        _, _, rest = head.partition(b"content-length: ")
        size = int(rest.partition(b"\r\n")[0])
        (answer,) = answers(head + await reader.readexactly(size))
        counts[str(answer.status)] += 1
        is_last = answer.headers.get("connection") == "close"


@pytest.mark.parametrize("drain_delay_s", ["0", "0.3"])
def test_no_client_of_a_closed_loop_loses_a_request_to_sigterm(
    small_repository: Path, drain_delay_s: str
) -> None:
    """12 clients: each request is answered with 200, the last of each with its connection's end."""
    flags = "--http-port", "0", "--drain-delay-s", drain_delay_s
    counts: Counter[str] = Counter()
    with ServerProcess(small_repository, *flags) as server:
        host, _, port = server.http_address.rpartition(":")

        async def run() -> None:
            clients = [
                asyncio.create_task(_client(host, int(port), counts)) for _ in range(NUM_CLIENTS)
            ]
            await eventually(lambda: counts["200"] > NUM_CLIENTS)
            server.send(signal.SIGTERM)
            await asyncio.wait_for(asyncio.gather(*clients), 30)

        asyncio.run(run())
        assert server.exit_code() == 0
        assert "Traceback" not in server.log()
    assert counts.pop("refused") == NUM_CLIENTS
    assert counts.pop("200") > NUM_CLIENTS
    assert not counts
