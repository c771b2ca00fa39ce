"""LitServe: `python lit.py PORT`."""
# mypy: disable-error-code="import-not-found, misc, no-any-return"

import sys

import litserve
import numpy as np
from embedder import MAX_ROWS, WAIT_S, Embedder


class EmbedderApi(litserve.LitAPI):
    """Requests wait for each other for `batch_timeout` at most."""

    def setup(self, device: str) -> None:  # noqa: ARG002 - the library's signature
        self._embed = Embedder()

    def decode_request(self, request: dict[str, str]) -> str:
        return request["text"]

    def predict(self, texts: list[str] | str) -> np.ndarray:
        """Without batching it is one text, and not a list."""
        return self._embed([texts])[0] if isinstance(texts, str) else self._embed(texts)

    def encode_response(self, vector: np.ndarray) -> dict[str, list[float]]:
        return {"embedding": vector.tolist()}


if __name__ == "__main__":
    api = EmbedderApi(max_batch_size=MAX_ROWS, batch_timeout=WAIT_S)
    server = litserve.LitServer(api, accelerator="cpu", timeout=600)
    server.run(
        host="127.0.0.1", port=int(sys.argv[1]), generate_client_file=False, log_level="warning"
    )
