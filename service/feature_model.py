"""A text model whose graph gives all hidden states: each request says what it makes of them.

Over the Open Inference Protocol the request parameters `layers`, `pooling` and `weights` say it,
and a text has one vector: a tensor has rows of one length.
"""

from collections.abc import Sequence

import numpy as np

from service.errors import InvalidArgument
from service.features import (
    DEFAULT_LAYERS,
    DEFAULT_POOLING,
    Features,
    parse_weights,
    stacked,
)
from service.models import InferReply, InferRequest, TextModel, TextReply
from service.tokenizer import EncodedText, Text

# Of one request, 512 MiB: all layers of all its tokens, however few of them it requests.
MAX_STATES = 2**27


class FeatureModel(TextModel):
    """Answers with features of texts."""

    inline_rows = 8  # each has thousands of values, of 50 ns in a message

    async def _encode(self, texts: Sequence[Text], can_truncate: bool) -> list[EncodedText]:
        rows = await super()._encode(texts, can_truncate)
        per_token = (self.manifest.num_layers + 1) * self.manifest.embedding_size
        num_tokens = sum(row.num_tokens for row in rows)
        if num_tokens * per_token > MAX_STATES:
            raise InvalidArgument(
                f"the texts have {num_tokens} tokens in all, the server takes at most "
                f"{MAX_STATES // per_token}: a token has {per_token} values of all layers"
            )
        return rows

    async def _compute_reply(self, request: InferRequest) -> InferReply:
        with self.counted_failures(request.caller.received_s):
            self._features_of(request)  # before any work
        return await super()._compute_reply(request)

    def _outputs_of(self, reply: TextReply, request: InferRequest) -> dict[str, np.ndarray]:
        features = self._features_of(request)
        return {"features": stacked([features.of(states) for states in reply.per_text()])}

    def _features_of(self, request: InferRequest) -> Features:
        parameters = request.parameters
        features = Features(
            str(parameters.get("layers", DEFAULT_LAYERS)),
            str(parameters.get("pooling", DEFAULT_POOLING)),
            parse_weights(str(parameters.get("weights", ""))),
        )
        features.check(self.manifest.num_layers)
        if features.pooling == "none":
            raise InvalidArgument(
                "pooling is 'none', expected mean or cls: a tensor has no rows of different "
                "lengths, ExtractFeatures has"
            )
        return features
