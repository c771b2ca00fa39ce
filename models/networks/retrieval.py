"""Embedders with more than one vector for a text: weights of its words, and vectors of its tokens.

BGE-M3 (Chen et al. 2024) has three answers in one network: a vector for a text, a weight for each
of its tokens, and a vector for each token but the first. SPLADE (Formal et al. 2021) weighs every
word of its vocabulary by a head that fills masks, so that a text has weights of words
that it lacks.
Knows nothing about files or texts.
"""
# ruff: noqa: N806 - suffixes are array layouts: B rows, S tokens, D hidden size, V words

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.choices import POOLINGS, TERM_POOLINGS, TERM_WEIGHTS
from models.errors import check_choice, check_range
from models.networks.encoder import Encoder, initialise
from models.networks.heads import EncoderNetwork
from models.networks.masked import PredictionHead
from models.networks.pooling import pool

WEIGHTS_BY_NAME: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda logits: torch.log1p(torch.relu(logits)),
    "log1p_relu": lambda logits: torch.log1p(torch.log1p(torch.relu(logits))),
}


class ThreeWayEmbedder(EncoderNetwork):
    """An encoder with a vector per text, a weight per token and a vector per token, as BGE-M3.

    `vector_mask` says which tokens' vectors are computed: a server reads none of most texts.
    """

    output_name = "embedding"

    def __init__(
        self,
        encoder: Encoder,
        pooling: str = "cls",
        token_vector_size: int | None = None,  # None: that of the encoder
        unweighted_token_ids: Sequence[int] = (),
        *,
        normalize: bool = True,
    ) -> None:
        super().__init__(encoder)
        check_choice("pooling", pooling, POOLINGS)
        for token in unweighted_token_ids:
            check_range("unweighted_token_ids", token, 0, encoder.config.vocab_size - 1)
        size = encoder.config.hidden_size
        self.pooling, self.normalize = pooling, normalize
        self.unweighted_token_ids = tuple(unweighted_token_ids)
        self.token_weights = nn.Linear(size, 1)
        self.token_vectors = nn.Linear(size, token_vector_size or size)
        for head in (self.token_weights, self.token_vectors):
            head.apply(initialise)

    @property
    def input_names(self) -> tuple[str, ...]:
        """Every token is of type 0."""
        return "input_ids", "attention_mask", "vector_mask"

    @property
    def output_names(self) -> tuple[str, ...]:
        return self.output_name, "token_weights", "token_vectors"

    @property
    def has_token_types(self) -> bool:
        return False

    @property
    def embedding_size(self) -> int:
        return self.config.hidden_size

    @property
    def embedder_fields(self) -> dict[str, Any]:
        return {
            "sparse_size": self.vocab_size,
            "sparse_rows": "token",
            "unweighted_token_ids": self.unweighted_token_ids,
            "token_vector_size": self.token_vectors.out_features,
        }

    @property
    def pooling_description(self) -> str:
        return f"{self.pooling} of last layer" + (", normalised" if self.normalize else "")

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, vector_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """[B, D] of texts, [N, 1] of all real tokens, and [M, D'] of those that are asked for.

        Without a mask these are all of them.
        """
        vector_mask = attention_mask if vector_mask is None else vector_mask
        hidden_BSD = self.encoder(input_ids, attention_mask)[-1]
        embedding_BD = pool(hidden_BSD, attention_mask, self.pooling).float()
        if self.normalize:
            embedding_BD = F.normalize(embedding_BD, dim=-1)
        weights_N1 = torch.relu(self.token_weights(hidden_BSD[attention_mask != 0]))
        vectors_MD = self.token_vectors(hidden_BSD[vector_mask != 0]).float()
        return embedding_BD, weights_N1, F.normalize(vectors_MD, dim=-1)


class TermEmbedder(EncoderNetwork):
    """An encoder that weighs every word of its vocabulary for a text, as SPLADE."""

    output_name = "term_weights"

    def __init__(
        self,
        encoder: Encoder,
        activation: str = "gelu",
        pooling: str = "max",
        weights: str = "relu",
    ) -> None:
        super().__init__(encoder)
        check_choice("pooling", pooling, TERM_POOLINGS)
        check_choice("weights", weights, TERM_WEIGHTS)
        self.pooling, self.weights = pooling, weights
        self.head = PredictionHead(encoder.config, activation)

    @property
    def embedder_fields(self) -> dict[str, Any]:
        return {"sparse_size": self.vocab_size, "sparse_rows": "text"}

    @property
    def pooling_description(self) -> str:
        return f"{self.pooling} of word weights"

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """[B, V], none below 0.

        Of the largest only one is taken through the logarithm, which keeps their order; padding
        has the first token's values then, which change nothing, and no logits need a mask.
        """
        hidden_BSD = self.encoder(input_ids, attention_mask, token_type_ids)[-1]
        words_VD, weigh = self.encoder.embeddings.words.weight, WEIGHTS_BY_NAME[self.weights]
        is_token_BS1 = attention_mask.unsqueeze(-1) != 0
        if self.pooling == "max":
            real_BSD = torch.where(is_token_BS1, hidden_BSD, hidden_BSD[:, :1])
            return weigh(self.head(real_BSD, words_VD).amax(dim=1))
        weights_BSV = weigh(self.head(hidden_BSD, words_VD))
        return (weights_BSV * is_token_BS1.to(weights_BSV.dtype)).sum(dim=1)
