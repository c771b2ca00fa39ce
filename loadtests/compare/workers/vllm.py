"""vLLM on CPU: its engine's steps in this process, paged cache and continuous batching."""

import itertools
import os
import time
from typing import Any

from loadtests.compare.worker import Answer, Run, Setup, Work, classifying, serve

CACHE_GIB = 2
MOST_SEQUENCES, MOST_TOKENS = 32, 512


def open_engine(setup: Setup) -> Run:
    os.environ |= {
        "VLLM_CPU_KVCACHE_SPACE": str(CACHE_GIB),
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{setup.threads - 1}",
        "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
    }
    import vllm

    is_encoder = setup.options["task"] == "classify"
    model = vllm.LLM(
        setup.model,
        dtype=setup.options["dtype"],
        max_num_seqs=MOST_SEQUENCES,
        max_model_len=MOST_TOKENS,
        disable_log_stats=True,
        seed=0,
        **({"runner": "pooling"} if is_encoder else {"enable_prefix_caching": False}),
    )
    return _encoder(model) if is_encoder else _generator(model)


def _encoder(model: Any) -> Run:
    from vllm import PoolingParams

    def logits(rows: list[list[int]]) -> list[list[float]]:
        prompts = [{"prompt_token_ids": row} for row in rows]
        params = PoolingParams(use_activation=False)  # logits, not probabilities
        found = model.classify(prompts, pooling_params=params, use_tqdm=False)
        return [each.outputs.probs for each in found]

    return classifying(logits)


def _generator(model: Any) -> Run:
    from vllm import SamplingParams

    engine, numbers = model.llm_engine, itertools.count()

    def run(work: Work) -> Answer:
        tokens: dict[int, list[int]] = {}
        live: dict[str, int] = {}
        waiting = iter(enumerate(zip(work.rows, work.num_tokens, strict=True)))
        started_s = time.perf_counter()
        while True:
            free = work.concurrency - len(live)
            for index, (prompt, count) in itertools.islice(waiting, free):
                params = SamplingParams(
                    temperature=0,
                    max_tokens=count,
                    min_tokens=count,
                    ignore_eos=True,
                    detokenize=False,
                )
                name = f"request{next(numbers)}"
                engine.add_request(name, {"prompt_token_ids": prompt}, params)
                live[name] = index
            if not live:
                break
            for output in engine.step():
                if output.finished:
                    name = output.request_id.split("-")[0]
                    tokens[live.pop(name)] = list(output.outputs[0].token_ids)
        seconds = time.perf_counter() - started_s
        return Answer(seconds, [tokens[index] for index in range(len(work.rows))])

    return run


if __name__ == "__main__":
    serve(open_engine)
