"""Texts to vectors on ONNX Runtime, as a careful user of any Python server writes it.

Runs in every server's environment: needs numpy, onnxruntime and tokenizers. What it is to open
comes from the environment: EMBEDDER_FOLDER has model.onnx and tokenizer.json.
"""
# mypy: disable-error-code="import-not-found, no-any-return"

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime
from pooling import pooled
from tokenizers import Tokenizer

MAX_ROWS = int(os.environ["EMBEDDER_ROWS"])  # of a batch; 1 is no batching
WAIT_S = float(os.environ["EMBEDDER_WAIT_S"])  # for more rows, after the first of a batch has come


class Embedder:
    """Batches are padded to their longest row."""

    def __init__(self) -> None:
        folder = Path(os.environ["EMBEDDER_FOLDER"])
        self._pooling = os.environ["EMBEDDER_POOLING"]  # of a graph that ends in hidden states
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(int(os.environ["EMBEDDER_MAX_TOKENS"]))
        self._tokenizer.enable_padding()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(os.environ["EMBEDDER_THREADS"])
        self._session = onnxruntime.InferenceSession(
            folder / "model.onnx", options, providers=["CPUExecutionProvider"]
        )
        self._names = {spec.name for spec in self._session.get_inputs()}
        self._output = self._session.get_outputs()[0].name

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Float32 [texts, values]."""
        rows = self._tokenizer.encode_batch(list(texts))
        mask = np.array([row.attention_mask for row in rows], np.int64)
        arrays = {
            "input_ids": np.array([row.ids for row in rows], np.int64),
            "attention_mask": mask,
            "token_type_ids": np.array([row.type_ids for row in rows], np.int64),
        }
        feed = {name: array for name, array in arrays.items() if name in self._names}
        (values,) = self._session.run([self._output], feed)
        vectors = values if values.ndim == 2 else pooled(values, mask, self._pooling)
        return vectors.astype(np.float32, copy=False)
