"""MLServer: the runtime that model-settings.json names."""
# mypy: disable-error-code="import-not-found, misc"

import asyncio

from embedder import Embedder
from mlserver import MLModel
from mlserver.codecs import NumpyCodec, StringCodec
from mlserver.types import InferenceRequest, InferenceResponse


class EmbedderRuntime(MLModel):
    """Requests are merged before `predict`, and its answer is split after it."""

    async def load(self) -> bool:
        self._embed = Embedder()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        texts = StringCodec.decode_input(payload.inputs[0])
        vectors = await asyncio.get_running_loop().run_in_executor(None, self._embed, texts)
        outputs = [NumpyCodec.encode_output("embedding", vectors)]
        return InferenceResponse(id=payload.id, model_name=self.name, outputs=outputs)
