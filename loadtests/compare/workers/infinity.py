"""Infinity's engine in process, on PyTorch, with what does not run here switched off."""

import asyncio
import time

import torch
from infinity_emb import AsyncEmbeddingEngine, EngineArgs

from loadtests.compare.worker import Answer, Run, Setup, Work, serve


def open_engine(setup: Setup) -> Run:
    torch.set_num_threads(setup.threads)
    engine = AsyncEmbeddingEngine.from_args(
        EngineArgs(
            model_name_or_path=setup.model,
            engine="torch",
            device="cpu",
            dtype="float32",
            bettertransformer=False,
            compile=False,
            model_warmup=False,  # takes minutes on a CPU
            lengths_via_tokenize=True,
        )
    )
    loop = asyncio.new_event_loop()
    loop.run_until_complete(engine.astart())

    async def outputs(work: Work) -> list[list[float]]:
        if not work.query:
            vectors, _ = await engine.embed(work.texts)
            return [vector.tolist() for vector in vectors]
        ranked, _ = await engine.rerank(query=work.query, docs=work.texts)
        scores = {each.index: each.relevance_score for each in ranked}
        return [[float(scores[index])] for index in range(len(work.texts))]

    def run(work: Work) -> Answer:
        started_s = time.perf_counter()
        values = loop.run_until_complete(outputs(work))
        return Answer(time.perf_counter() - started_s, values)

    return run


if __name__ == "__main__":
    serve(open_engine)
