"""Positions by rotating queries and keys (Su et al. 2021), for decoders and encoders.

Knows nothing about attention or files: `models/checkpoints/ropes.py` makes a `Rope` of a file's
fields.
"""

# ruff: noqa: N803 - suffixes are array layouts: B rows, S tokens, H heads, Dh head size, R pairs

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

NO_ROPE = -1  # of a layer whose queries and keys are not rotated


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotation of queries and keys: by position times these, in radians.

    Pairs of values that are half of the rotated part apart are turned together. `factor` multiplies
    sine and cosine, as some ways of stretching a context do.
    """

    inverse_frequencies: tuple[float, ...]
    factor: float = 1.0

    @classmethod
    def default(cls, size: int, theta: float = 10_000.0) -> Self:
        """theta^(-2i/R) for R = `size` rotated values of a head (Su et al. 2021)."""
        exponents = torch.arange(0, size, 2, dtype=torch.float32, device="cpu") / size
        return cls(tuple((1.0 / theta**exponents).tolist()))

    def tables(
        self, num_positions: int, device: torch.device | None = None
    ) -> tuple[Tensor, Tensor]:
        """Cosine and sine [num_positions, R / 2] of positions from 0."""
        positions = torch.arange(num_positions, dtype=torch.float32, device=device)
        frequencies = torch.tensor(self.inverse_frequencies, dtype=torch.float32, device=device)
        angles = positions[:, None] * frequencies
        return angles.cos() * self.factor, angles.sin() * self.factor


def rotated(states_BHSDh: Tensor, cos_SR: Tensor, sin_SR: Tensor) -> Tensor:
    """The first 2R values of each head are turned, value i together with value i + R."""
    num_pairs = cos_SR.shape[-1]
    first, second = states_BHSDh[..., :num_pairs], states_BHSDh[..., num_pairs : 2 * num_pairs]
    rest = states_BHSDh[..., 2 * num_pairs :]
    turned = (first * cos_SR - second * sin_SR, second * cos_SR + first * sin_SR, rest)
    return torch.cat(turned, dim=-1)
