"""BentoML: `bentoml serve bento:Classifier`."""
# mypy: disable-error-code="import-not-found, untyped-decorator, misc, no-any-return"

import bentoml
import numpy as np
from bert import MAX_ROWS, Bert

MOST_LATENCY_MS = 60_000  # beyond it requests are refused


@bentoml.service(workers=1, traffic={"timeout": 600, "max_concurrency": 256})
class Classifier:
    """Its batcher learns by itself how long to wait."""

    def __init__(self) -> None:
        self._bert = Bert()

    @bentoml.api(batchable=MAX_ROWS > 1, max_batch_size=MAX_ROWS, max_latency_ms=MOST_LATENCY_MS)
    def predict(self, texts: list[str]) -> np.ndarray:
        return self._bert(texts)
