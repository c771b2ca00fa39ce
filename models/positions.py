"""Tell a token where it stands: one vector per position, added to its embedding.

Knows nothing about tokens or rows: rows are right-padded, so the first token of every row stands
at 0 and one table [S, D] serves the whole batch.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def sinusoidal_table(num_positions: int, hidden_size: int) -> Tensor:
    """[num_positions, hidden_size] of Vaswani et al. 2017, section 3.5.

    PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(pos / 10000^(2i/D)). Computed in
    float64: in float32 the angle of position 5000 would already be off by 3e-4. Always on the CPU:
    no checkpoint brings it to a module that is built on the meta device.
    """
    position = torch.arange(num_positions, dtype=torch.float64, device="cpu")[:, None]
    even = torch.arange(0, hidden_size, 2, dtype=torch.float64, device="cpu")
    angle = position * torch.exp(even * (-math.log(10_000.0) / hidden_size))
    interleaved = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)
    return interleaved[:, :hidden_size].float()


class SinusoidalPositions(nn.Module):
    """A fixed table: nothing to learn, nothing in the checkpoint."""

    table: Tensor

    def __init__(self, max_positions: int, hidden_size: int) -> None:
        super().__init__()
        self.register_buffer("table", sinusoidal_table(max_positions, hidden_size), False)

    def forward(self, num_tokens: int) -> Tensor:
        """[num_tokens, D] for positions 0 .. num_tokens - 1."""
        return self.table[:num_tokens]

    def at(self, position_ids: Tensor) -> Tensor:
        """[..., D] for any positions: a lookup, which exports, where a slice would bind S."""
        return F.embedding(position_ids, self.table)


class LearnedPositions(nn.Module):
    """A trained table whose row `offset` belongs to the first token.

    RoBERTa counts from 2. It derives positions from the mask, so that its padding gets position 1;
    for right-padded rows every real token gets the same position as here, and what padding gets is
    masked out of all that is used.
    """

    def __init__(self, max_positions: int, hidden_size: int, offset: int = 0) -> None:
        super().__init__()
        self.offset = offset
        self.table = nn.Embedding(offset + max_positions, hidden_size)

    def forward(self, num_tokens: int) -> Tensor:
        """[num_tokens, D] for positions 0 .. num_tokens - 1."""
        # A lookup rather than a slice: a slice of the table would bind S when exporting.
        positions = torch.arange(num_tokens, device=self.table.weight.device) + self.offset
        vectors: Tensor = self.table(positions)
        return vectors
