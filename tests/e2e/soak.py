"""Long work, and what it does to the memory of the server: every request must be answered."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from attendant.v1 import generation_pb2, generation_pb2_grpc, text_pb2, text_pb2_grpc
from rich.console import Console
from rich.progress import Progress
from tritonclient.grpc import service_pb2, service_pb2_grpc

from loadtests.load.closed_loop import closed_loop
from loadtests.load.server import Server, resident_mib, serving

NUM_SAMPLES = 100  # of memory, evenly spread
MAX_TOKEN_ID = 2_000
TIMEOUT_S = 60.0
KV_CACHE_BYTES = 2**26  # small, so that a cycle of a generative model is quick
REPOSITORY = Path(__file__).parents[2] / "model_repository"
CLASSIFIER, GENERATOR = "spam", "gpt"


@dataclass(slots=True)
class Memory:
    """Resident MiB of a process, by the amount of work done."""

    process_id: int
    samples: list[tuple[int, float]] = field(default_factory=list)

    def sample(self, num_done: int) -> None:
        self.samples.append((num_done, resident_mib(self.process_id)))

    def growth(self) -> float:
        """Bytes per piece of work, by least squares after the first tenth, which warms up.

        Slots are touched for the first time then, and pools reach their size.
        """
        samples = sorted(self.samples)
        settled = np.array(samples[len(samples) // 10 :])
        slope, _ = np.polyfit(settled[:, 0], settled[:, 1], 1)
        return float(slope) * 2**20


def generations(count: int, concurrency: int = 32) -> Memory:
    """Short generations; every tenth client leaves after its first chunk.

    Prefixes are not stored: their store would fill up to its own bound, 52 KB a generation.
    """
    with serving(REPOSITORY, ["--prefix-cache-bytes", "0"]) as server:
        memory = Memory(server.process_id)
        asyncio.run(_generate_all(server, memory, GENERATOR, count, concurrency))
    return memory


def reloads(count: int, cycles: int, concurrency: int = 16) -> Memory:
    """Requests without pause to a model that is reloaded, beside one that comes and goes.

    Each cycle loads the classifier anew, unloads the generator and loads it again, and lets it
    generate once. Fails if a request does, or is answered otherwise than the first time.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name in (CLASSIFIER, GENERATOR):
            shutil.copytree(REPOSITORY / name, Path(folder) / name)
        flags = ["--model-control-mode", "explicit", "--load-models", "*"]
        flags += ["--kv-cache-bytes", str(KV_CACHE_BYTES)]
        with serving(Path(folder), flags) as server:
            memory = Memory(server.process_id)
            soak = _Reloads(server, memory, Path(folder), CLASSIFIER, GENERATOR)
            asyncio.run(soak.run(count, cycles, concurrency))
    return memory


@dataclass(slots=True)
class _Reloads:
    """One run of `reloads`."""

    server: Server
    memory: Memory
    folder: Path
    classifier: str
    generator: str

    async def run(self, count: int, cycles: int, concurrency: int) -> None:
        async with grpc.aio.insecure_channel(self.server.address) as channel:
            texts = [f"{'free ' * (number % 30)}lunch {number}" for number in range(64)]
            expected = [await self._classify(channel, text) for text in texts]
            with Progress(console=Console(stderr=True)) as progress:
                requests = progress.add_task("requests", total=count)
                reloads = progress.add_task("cycles", total=cycles)

                async def ask(number: int) -> None:
                    scores = await self._classify(channel, texts[number % len(texts)])
                    np.testing.assert_allclose(scores, expected[number % len(texts)], atol=1e-4)
                    progress.advance(requests)

                asking = asyncio.create_task(closed_loop(range(count), concurrency, ask))
                for cycle in range(cycles):
                    self.memory.sample(cycle)
                    await self._cycle(channel, cycle)
                    progress.advance(reloads)
                await asking
                self.memory.sample(cycles)

    async def _classify(self, channel: grpc.aio.Channel, text: str) -> list[float]:
        stub: Any = text_pb2_grpc.TextServiceStub(channel)
        request = text_pb2.ClassifyRequest(model=self.classifier, texts=[text], all_scores=True)
        response = await stub.Classify(request, timeout=TIMEOUT_S)
        ordered = sorted((label.label, label.score) for label in response.results[0].labels)
        return [score for _, score in ordered]

    async def _cycle(self, channel: grpc.aio.Channel, number: int) -> None:
        control: Any = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        graph = self.folder / self.classifier / "1" / "model.onnx"
        os.utime(graph, (number, number))  # changed, as far as the server can see
        load, unload = (
            service_pb2.RepositoryModelLoadRequest,
            service_pb2.RepositoryModelUnloadRequest,
        )
        await control.RepositoryModelLoad(load(model_name=self.classifier), timeout=TIMEOUT_S)
        await control.RepositoryModelUnload(unload(model_name=self.generator), timeout=TIMEOUT_S)
        await control.RepositoryModelLoad(load(model_name=self.generator), timeout=TIMEOUT_S)
        stub: Any = generation_pb2_grpc.GenerationServiceStub(channel)
        await stub.GenerateUnary(
            generation_pb2.GenerateRequest(
                model=self.generator,
                token_ids=generation_pb2.TokenIds(ids=[1, 2, 3]),
                sampling_params=generation_pb2.SamplingParams(max_tokens=4, temperature=0.0),
            ),
            timeout=TIMEOUT_S,
        )


async def _generate_all(
    server: Server, memory: Memory, model: str, count: int, concurrency: int
) -> None:
    memory.sample(0)
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("generations", total=count)
        async with grpc.aio.insecure_channel(server.address) as channel:
            stub: Any = generation_pb2_grpc.GenerationServiceStub(channel)

            async def generate(numbered: tuple[int, generation_pb2.GenerateRequest]) -> None:
                number, request = numbered
                call = stub.Generate(request, timeout=TIMEOUT_S)
                async for _ in call:
                    if number % 10 == 0:
                        call.cancel()
                        break
                progress.advance(task)
                if number % (count // NUM_SAMPLES) == 0:
                    memory.sample(number)

            await closed_loop(_generations(model, count), concurrency, generate)


def _generations(model: str, count: int) -> Iterator[tuple[int, generation_pb2.GenerateRequest]]:
    """Prompts of 4 to 32 random tokens, outputs of 1 to 16."""
    generator = np.random.default_rng(0)
    for number in range(1, count + 1):
        ids = generator.integers(1, MAX_TOKEN_ID, generator.integers(4, 33)).tolist()
        yield (
            number,
            generation_pb2.GenerateRequest(
                model=model,
                token_ids=generation_pb2.TokenIds(ids=ids),
                sampling_params=generation_pb2.SamplingParams(
                    max_tokens=int(generator.integers(1, 17)), seed=number
                ),
            ),
        )
