"""The file of requests and answers: a line for each answer of a path, with all that it answers."""

import asyncio
import base64
import json
import tempfile
from collections.abc import AsyncGenerator, Iterable
from pathlib import Path
from typing import Any

from attendant.v1 import generation_pb2

from tests.corpus.asking import Port, bytes_of, call, corpus_server, text_of
from tests.corpus.bodies import Description
from tests.corpus.messages import messages

FILE = Path(__file__).parent / "answers.jsonl"
OPENAPI = Path(__file__).parents[2] / "docs" / "reference" / "openapi.json"
Exchange = tuple[str, str, dict[str, Any]]  # path, request, answer


def made() -> list[tuple[str, str]]:
    """Every path with a request's text, each once; those of gRPC are in base64."""
    bodies = Description(json.loads(OPENAPI.read_text())).bodies()
    over_http = [(path, text_of(body)) for path, body in bodies]
    over_grpc = [(path, base64.b64encode(raw).decode()) for path, raw in messages()]
    return list(dict.fromkeys([*over_http, *over_grpc]))


def record(_: int) -> list[Exchange]:
    """Every request made anew, with what a server answers; for a process of its own."""

    async def collected() -> list[Exchange]:
        return [each async for each in answered(made())]

    return asyncio.run(collected())


def kept() -> list[Exchange]:
    lines = [json.loads(line) for line in FILE.read_text().splitlines()]
    return [(path, request, answer) for path, answer, requests in lines for request in requests]


def keep(exchanges: Iterable[Exchange]) -> None:
    """Write the file."""
    requests: dict[tuple[str, str], list[str]] = {}
    for path, request, answer in exchanges:
        requests.setdefault((path, json.dumps(answer)), []).append(request)
    lines = [
        json.dumps([path, json.loads(answer), asked], separators=(",", ":"))
        for (path, answer), asked in requests.items()
    ]
    FILE.write_text("\n".join(lines) + "\n")


def is_settled(exchange: Exchange) -> bool:
    """Whether an answer is the same each time: chunks of several tokens are as time has it."""
    path, request, answer = exchange
    if path.endswith("GenerationService/Generate"):
        chunks = [
            generation_pb2.GenerateChunk.FromString(base64.b64decode(each))
            for each in answer["messages"]
        ]
        return max((len(each.token_ids) for each in chunks), default=0) <= 1 >= len(chunks)
    if answer.get("type") == "application/x-ndjson":
        return answer["body"].count("\n") == 1 and '"output_tokens":1' in answer["body"]
    if "event-stream" in answer.get("type", ""):
        return any(f'tokens": {number}' in request for number in ("0", "1"))
    return True


async def answered(requests: Iterable[tuple[str, str]]) -> AsyncGenerator[Exchange, None]:
    """Each request with what a server answers, one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        async with corpus_server(Path(folder)) as served:
            port = Port(served)
            try:
                for path, request in requests:
                    if path.startswith("/attendant."):
                        answer = await call(served, path, base64.b64decode(request))
                    else:
                        answer = await port.ask(path, bytes_of(request))
                    yield path, request, answer
            finally:
                port.close()
