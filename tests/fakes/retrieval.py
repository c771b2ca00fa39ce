"""A model with three kinds of answer, and one that weighs every word.

The weight of a token is its id modulo 5, more at later places, so that some tokens have none.
"""

import numpy as np

from service.contract.manifest import Manifest
from service.contract.tensors import Arrays, Signature
from tests.fakes.sessions import (
    FIRST_ID,
    LAST_ID,
    FakeSession,
    embedder_manifest,
    spec,
    text_values,
)

NUM_TERMS = 20


def weight(token: int, place: int) -> float:
    return (token % 5) * (1 + place / 8)


def three_session() -> FakeSession:
    names = ("input_ids", "attention_mask", "vector_mask")

    def compute(arrays: Arrays) -> dict[str, np.ndarray]:
        ids, mask = arrays["input_ids"], arrays["attention_mask"] == 1
        rows = [row[real].tolist() for row, real in zip(ids, mask, strict=True)]
        weights = [[weight(token, place)] for row in rows for place, token in enumerate(row)]
        read = ids[arrays["vector_mask"] == 1]
        return {
            "embedding": np.stack([text_values(row, 4) for row in rows]),
            "token_weights": np.array(weights, np.float32),
            "token_vectors": np.stack([read, -read], axis=1).astype(np.float32),
        }

    outputs = (
        spec("embedding", "FP32", -1, 4),
        spec("token_weights", "FP32", -1, 1),
        spec("token_vectors", "FP32", -1, 2),
    )
    return FakeSession(
        Signature(tuple(spec(name, "INT64", -1, -1) for name in names), outputs), compute
    )


def three_manifest() -> Manifest:
    return embedder_manifest(
        sparse_size=NUM_TERMS,
        sparse_rows="token",
        token_vector_size=2,
        unweighted_token_ids=(FIRST_ID, LAST_ID),
    )


def terms_manifest() -> Manifest:
    return embedder_manifest(embedding_size=0, sparse_size=NUM_TERMS, sparse_rows="text")
