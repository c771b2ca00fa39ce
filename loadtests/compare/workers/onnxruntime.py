"""Bare ONNX Runtime over the graphs of Hugging Face's exporter, the way its users write it."""

from typing import Any

import numpy as np
import onnxruntime

from loadtests.compare.worker import Run, Setup, generating_in_groups, padded, serve
from loadtests.compare.workers.encoding import encoding
from loadtests.compare.workers.texts import reading

HEADS, HEAD_SIZE, LAYERS = 12, 64, 12  # of GPT-2


def open_engine(setup: Setup) -> Run:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = setup.threads
    session = onnxruntime.InferenceSession(
        f"{setup.model}/model.onnx", options, providers=["CPUExecutionProvider"]
    )
    is_generator = setup.options["task"] == "generate"
    return _generator(session) if is_generator else _encoder(session, setup)


def _encoder(session: Any, setup: Setup) -> Run:
    inputs = [each.name for each in session.get_inputs()]
    output = session.get_outputs()[0].name  # logits, or the last hidden states
    if setup.options["task"] == "classify":
        return encoding(inputs, lambda feed: session.run([output], feed)[0])
    return reading(setup, inputs, lambda feed: session.run([output], feed)[0])


def _generator(session: Any) -> Run:
    """Static batches, padded on the left; this export copies its cache at every step."""
    inputs = {each.name for each in session.get_inputs()}
    kinds = [f"{layer}.{kind}" for layer in range(LAYERS) for kind in ("key", "value")]
    outputs = ["logits", *(f"present.{kind}" for kind in kinds)]

    def generate(prompts: list[list[int]], num_tokens: int) -> list[list[int]]:
        reversed_ids, reversed_mask = padded([prompt[::-1] for prompt in prompts])
        ids = np.array(reversed_ids, np.int64)[:, ::-1]
        mask = np.array(reversed_mask, np.int64)[:, ::-1]
        positions = np.maximum(mask.cumsum(1) - 1, 0)
        cache = [np.zeros((len(prompts), HEADS, 0, HEAD_SIZE), np.float32)] * len(kinds)
        tokens = []
        for _ in range(num_tokens):
            known = {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
            feed = {name: array for name, array in known.items() if name in inputs}
            feed |= {f"past_key_values.{kind}": x for kind, x in zip(kinds, cache, strict=True)}
            logits, *cache = session.run(outputs, feed)
            ids = logits[:, -1:].argmax(-1).astype(np.int64)
            mask = np.concatenate((mask, np.ones_like(ids)), 1)
            positions = positions[:, -1:] + 1
            tokens.append(ids)
        rows: list[list[int]] = np.concatenate(tokens, 1).tolist()
        return rows

    return generating_in_groups(generate)


if __name__ == "__main__":
    serve(open_engine)
