"""Does the server's memory grow? Many short generations, and its resident memory meanwhile.

    python -m loadtests.soak --model gpt --count 10000

Prompts are 4 to 32 random tokens, outputs 1 to 16; every tenth client leaves after its first chunk.
The first tenth warms up: slots are touched for the first time, pools reach their size. What counts
is the slope after that, by least squares.
"""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import grpc
import numpy as np
import typer
from attendant.v1 import generation_pb2 as pb
from attendant.v1 import generation_pb2_grpc
from rich.console import Console
from rich.progress import Progress

from loadtests.server import serving

NUM_SAMPLES = 100  # of memory, evenly spread
MAX_TOKEN_ID = 2_000


def main(
    model: Annotated[str, typer.Option(help="A generative model.")] = "gpt",
    repository: Annotated[Path, typer.Option(help="Where it is.")] = Path("model_repository"),
    count: Annotated[int, typer.Option(min=200, help="Generations.")] = 10_000,
    concurrency: Annotated[int, typer.Option(min=1, help="In flight.")] = 32,
) -> None:
    """Run, and print resident memory as JSON."""
    with serving(repository) as server:
        memory = asyncio.run(_run(server.port, server.process_id, model, count, concurrency))
    settled = np.array(memory[len(memory) // 10 :])
    numbers, mebibytes = settled[:, 0], settled[:, 1]
    slope, _ = np.polyfit(numbers, mebibytes, 1)
    found = {
        "generations": count,
        "mib_before": round(memory[0][1], 1),
        "mib_after_a_tenth": round(float(mebibytes[0]), 1),
        "mib_at_the_end": round(float(mebibytes[-1]), 1),
        "most_mib": round(float(mebibytes.max()), 1),
        "bytes_per_generation": round(float(slope) * 2**20, 1),
    }
    Console().print_json(json.dumps(found))


async def _run(
    port: int, process_id: int, model: str, count: int, concurrency: int
) -> list[tuple[int, float]]:
    """Resident memory in MiB by number of generations done."""
    memory = [(0, _resident_mib(process_id))]
    waiting = _requests(model, count)
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("generations", total=count)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub: Any = generation_pb2_grpc.GenerationServiceStub(channel)

            async def client() -> None:
                for number, request in waiting:
                    await _generate(stub, request, leaves=number % 10 == 0)
                    progress.advance(task)
                    if number % (count // NUM_SAMPLES) == 0:
                        memory.append((number, _resident_mib(process_id)))

            await asyncio.gather(*(client() for _ in range(concurrency)))
    return sorted(memory)


async def _generate(stub: Any, request: pb.GenerateRequest, *, leaves: bool) -> None:  # noqa: ANN401
    call = stub.Generate(request, timeout=60)
    async for _ in call:
        if leaves:
            call.cancel()
            return


def _requests(model: str, count: int) -> Iterator[tuple[int, pb.GenerateRequest]]:
    generator = np.random.default_rng(0)
    for number in range(1, count + 1):
        ids = generator.integers(1, MAX_TOKEN_ID, generator.integers(4, 33)).tolist()
        params = pb.SamplingParams(max_tokens=int(generator.integers(1, 17)), seed=number)
        prompt = pb.TokenIds(ids=ids)
        yield number, pb.GenerateRequest(model=model, token_ids=prompt, sampling_params=params)


def _resident_mib(process_id: int) -> float:
    pages = int(Path(f"/proc/{process_id}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    typer.run(main)
