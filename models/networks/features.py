"""All hidden states of an encoder, as features of tokens (Devlin et al. 2018, section 5.3).

A request decides which layers to take, and how to pool them.
"""
# ruff: noqa: N806 - suffixes are array layouts: B rows, S tokens, L layers, D hidden size

import torch
from torch import Tensor

from models.networks.heads import EncoderNetwork


class TokenFeatures(EncoderNetwork):
    """An encoder that gives away every layer."""

    output_name = "hidden_states"

    @property
    def embedding_size(self) -> int:
        """Values of a token in each layer."""
        return self.config.hidden_size

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """[N, L + 1, D]: of all real tokens, the embeddings first."""
        states = self.encoder(input_ids, attention_mask, token_type_ids)
        states_BSLD = torch.stack(states, dim=2)
        return states_BSLD[attention_mask != 0]
