"""BentoML: `bentoml serve bento:EmbedderService`."""
# mypy: disable-error-code="import-not-found, untyped-decorator, misc, no-any-return"

import bentoml
import numpy as np
from embedder import MAX_ROWS, Embedder

MOST_LATENCY_MS = 60_000  # beyond it requests are refused


@bentoml.service(workers=1, traffic={"timeout": 600, "max_concurrency": 256})
class EmbedderService:
    """Its batcher learns by itself how long to wait."""

    def __init__(self) -> None:
        self._embed = Embedder()

    # A size of one is refused, also where there are no batches.
    @bentoml.api(
        batchable=MAX_ROWS > 1,
        max_batch_size=max(MAX_ROWS, 2),
        max_latency_ms=MOST_LATENCY_MS,
    )
    def predict(self, texts: list[str]) -> np.ndarray:
        return self._embed(texts)
