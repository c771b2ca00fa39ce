"""Texts to logits on ONNX Runtime, as a careful user of any Python server writes it.

Runs in every server's environment: needs numpy, onnxruntime and tokenizers. What it is to open
comes from the environment: BERT_FOLDER has model.onnx and tokenizer.json, BERT_ROWS are batched.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

MAX_TOKENS = 512
MAX_ROWS = int(os.environ.get("BERT_ROWS", "8"))  # of a batch; 1 is no batching
WAIT_S = 0.01  # for more rows, after the first of a batch has come


class Bert:
    """Batches are padded to their longest row."""

    def __init__(self) -> None:
        folder = Path(os.environ["BERT_FOLDER"])
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._tokenizer.enable_padding()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(os.environ["BERT_THREADS"])
        self._session = onnxruntime.InferenceSession(
            folder / "model.onnx", options, providers=["CPUExecutionProvider"]
        )
        self._names = {spec.name for spec in self._session.get_inputs()}

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Float32 [texts, labels]."""
        rows = self._tokenizer.encode_batch(list(texts))
        arrays = {
            "input_ids": np.array([row.ids for row in rows], np.int64),
            "attention_mask": np.array([row.attention_mask for row in rows], np.int64),
            "token_type_ids": np.array([row.type_ids for row in rows], np.int64),
        }
        feed = {name: array for name, array in arrays.items() if name in self._names}
        (logits,) = self._session.run(["logits"], feed)
        return np.asarray(logits, np.float32)
