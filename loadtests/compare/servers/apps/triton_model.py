"""Triton's Python backend."""
# mypy: disable-error-code="import-not-found"

from collections.abc import Sequence
from typing import Any

import numpy as np
import triton_python_backend_utils as backend
from embedder import Embedder


class TritonPythonModel:
    """A batch comes as the requests that the scheduler put together."""

    def initialize(self, args: dict[str, str]) -> None:  # noqa: ARG002 - the backend's signature
        self._embed = Embedder()

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        texts = [
            backend.get_input_tensor_by_name(request, "text").as_numpy().ravel()
            for request in requests
        ]
        vectors = self._embed([text.decode() for text in np.concatenate(texts)])
        parts = np.split(vectors, np.cumsum([len(part) for part in texts])[:-1])
        return [backend.InferenceResponse([backend.Tensor("embedding", part)]) for part in parts]
