"""Texts for an engine that takes tensors: tokenized, sorted by length, in batches, and pooled."""

import time
from collections.abc import Callable, Collection

import numpy as np
from tokenizers import Tokenizer

from loadtests.compare.servers.apps.pooling import pooled
from loadtests.compare.worker import Answer, Run, Setup, Work, padded

BATCH_ROWS = 16
Feed = dict[str, np.ndarray]


def reading(setup: Setup, inputs: Collection[str], run_graph: Callable[[Feed], np.ndarray]) -> Run:
    """An encoder over its graph: hidden states [rows, tokens, size], or logits [rows, 1]."""
    tokenizer = Tokenizer.from_file(f"{setup.model}/tokenizer.json")
    tokenizer.no_padding()
    tokenizer.enable_truncation(setup.options["max_tokens"])
    pooling = setup.options["pooling"]

    def outputs(encodings: list[object]) -> np.ndarray:
        rows = [(each.ids, each.type_ids) for each in encodings]  # type: ignore[attr-defined]
        ids, mask = (np.array(values, np.int64) for values in padded([ids for ids, _ in rows]))
        types = np.array(padded([types for _, types in rows])[0], np.int64)
        known = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        values = run_graph({name: array for name, array in known.items() if name in inputs})
        if not pooling:
            return np.asarray(0.5 * (np.tanh(values / 2) + 1))
        return pooled(values, mask, pooling)

    def run(work: Work) -> Answer:
        started_s = time.perf_counter()
        texts = work.pairs if work.query else work.texts
        encodings = tokenizer.encode_batch(texts)
        order = sorted(range(len(texts)), key=lambda index: -len(encodings[index].ids))
        found: dict[int, list[float]] = {}
        for start in range(0, len(order), BATCH_ROWS):
            chosen = order[start : start + BATCH_ROWS]
            values = outputs([encodings[index] for index in chosen])
            found.update(zip(chosen, values.astype(float).tolist(), strict=True))
        seconds = time.perf_counter() - started_s
        return Answer(seconds, [found[index] for index in range(len(texts))])

    return run
