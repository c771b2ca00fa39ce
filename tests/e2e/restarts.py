"""Servers that are ended under load, and the outcomes of all questions.

Each round starts a server, lets clients send requests, unary and on streams, and ends it by
SIGTERM and SIGKILL in turn. A question is a number and its answer follows from it, so that a wrong
answer, or that of another question, is noticed. Every question must end, with its answer or with
a status.
"""

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from loadtests.load.server import Server, serving

MODEL = "sums"
TIMEOUT_S = 20.0  # of one question: beyond that it counts as lost
END_LIMIT_S = 30.0  # of a server after SIGTERM
STREAM_LENGTH = 50  # questions


@dataclass(slots=True)
class Outcome:
    """Counts of questions by how they ended."""

    asked: int = 0
    answered: int = 0
    refused: Counter[str] = field(default_factory=Counter)  # by status
    wrong: int = 0
    twice: int = 0
    lost: int = 0  # neither answer nor status in time

    @property
    def is_whole(self) -> bool:
        ended = self.answered + sum(self.refused.values())
        return not (self.wrong or self.twice or self.lost) and ended == self.asked


def run_round(
    repository: Path, outcome: Outcome, number: int, clients: int = 8, seconds: float = 1.0
) -> None:
    """One server's life: even rounds end by SIGTERM, odd ones by SIGKILL."""
    with serving(repository) as server:
        asyncio.run(_round(server, outcome, number, clients, seconds))


async def _round(
    server: Server, outcome: Outcome, number: int, clients: int, seconds: float
) -> None:
    is_over = asyncio.Event()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub: Any = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        tasks = [
            asyncio.create_task(work(stub, outcome, client, is_over))
            for client in range(clients)
            for work in (_ask_singly, _ask_on_streams)
        ]
        await asyncio.sleep(seconds)
        server.send(signal.SIGKILL if number % 2 else signal.SIGTERM)
        is_over.set()
        await asyncio.gather(*tasks)
    ended_s = time.monotonic() + END_LIMIT_S
    while server.is_running:
        assert time.monotonic() < ended_s, f"the server did not end in {END_LIMIT_S} s"
        await asyncio.sleep(0.01)


async def _ask_singly(stub: Any, outcome: Outcome, client: int, is_over: asyncio.Event) -> None:
    generator = random.Random(client)  # noqa: S311 - a load that is repeated
    while not is_over.is_set():
        question = generator.randrange(2**30)
        outcome.asked += 1
        try:
            response = await stub.ModelInfer(_request(question), timeout=TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            _count_refusal(outcome, error)
        else:
            _count_answer(outcome, question, response)


async def _ask_on_streams(stub: Any, outcome: Outcome, client: int, is_over: asyncio.Event) -> None:
    generator = random.Random(-client - 1)  # noqa: S311 - a load that is repeated
    while not is_over.is_set():
        questions = {str(index): generator.randrange(2**30) for index in range(STREAM_LENGTH)}
        open_ids = set(questions)
        outcome.asked += len(questions)
        try:
            async for answer in stub.ModelStreamInfer(_requests(questions), timeout=TIMEOUT_S):
                request_id = answer.infer_response.id
                if request_id not in open_ids:
                    outcome.twice += 1
                    continue
                open_ids.remove(request_id)
                if answer.error_message:
                    outcome.refused["error_message"] += 1
                else:
                    _count_answer(outcome, questions[request_id], answer.infer_response)
        except grpc.aio.AioRpcError as error:
            for _ in open_ids:
                _count_refusal(outcome, error)
        else:
            outcome.lost += len(open_ids)


async def _requests(questions: dict[str, int]) -> AsyncIterator[pb.ModelInferRequest]:
    for request_id, question in questions.items():
        yield _request(question, request_id)


def _request(question: int, request_id: str = "") -> pb.ModelInferRequest:
    request = pb.ModelInferRequest(model_name=MODEL, id=request_id)
    request.inputs.add(name="x", datatype="INT64", shape=[1, 2])
    request.raw_input_contents.append(np.array([question, 1], "<i8").tobytes())
    return request


def _count_answer(outcome: Outcome, question: int, response: pb.ModelInferResponse) -> None:
    outcome.answered += 1
    (answer,) = np.frombuffer(response.raw_output_contents[0], "<i8").tolist()
    outcome.wrong += answer != question + 1


def _count_refusal(outcome: Outcome, error: grpc.aio.AioRpcError) -> None:
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        outcome.lost += 1
    else:
        outcome.refused[error.code().name] += 1
