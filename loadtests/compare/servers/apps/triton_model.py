"""Triton's Python backend."""
# mypy: disable-error-code="import-not-found"

from collections.abc import Sequence
from typing import Any

import numpy as np
import triton_python_backend_utils as backend
from bert import Bert


class TritonPythonModel:
    """A batch comes as the requests that the scheduler put together."""

    def initialize(self, args: dict[str, str]) -> None:  # noqa: ARG002 - the backend's signature
        self._bert = Bert()

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        texts = [
            backend.get_input_tensor_by_name(request, "text").as_numpy().ravel()
            for request in requests
        ]
        logits = self._bert([text.decode() for text in np.concatenate(texts)])
        parts = np.split(logits, np.cumsum([len(part) for part in texts])[:-1])
        return [backend.InferenceResponse([backend.Tensor("logits", part)]) for part in parts]
