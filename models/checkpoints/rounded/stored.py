"""A rounded weight as whole numbers with their scales, and as the floating point numbers of these.

`Stored` has what every form of `forms.py` and of GGUF's blocks comes to, so that a weight is read
once whether it becomes floating point numbers again or is kept as it is (`kept.py`). Tensors may be
on the meta device, where only shapes are known.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from models.checkpoints.rounded.packing import spread


@dataclass(frozen=True, slots=True)
class Stored:
    """One weight [outputs, inputs]: (number - zero) * scale + bias, or value * scale."""

    codes: Tensor  # whole numbers [outputs, inputs], or places in `values`
    bits: int  # of a number
    scales: Tensor  # of the matrix, its rows or groups [outputs, G]
    zeros: Tensor | None = None  # whole or not, as `scales` are
    biases: Tensor | None = None
    groups: Tensor | None = None  # [inputs]: group of each input, where it is not by its place
    block: tuple[int, int] | None = None  # rows and columns of a group, where they do not divide
    values: Tensor | None = None  # that codes are places of
    # Activations are rounded by rows too, as those were that the scales were found with.
    rounds_rows: bool = False
    halved: int = 1  # what the numbers are divided by: 2 for steps of a half
    factor: float = 1.0  # that a network multiplies the weight by

    def floats(self) -> Tensor:
        """The weight as its own program computes it, float32."""
        codes = self.codes.float() if self.values is None else self.values[self.codes.long()]
        if self.halved > 1:
            codes = codes / self.halved
        if self.zeros is not None:
            codes = codes - self._spread(self.zeros)
        weight = codes * self._spread(self.scales)
        weight = weight if self.biases is None else weight + self._spread(self.biases)
        return weight if self.factor == 1.0 else weight * self.factor

    def rows(self, order: Tensor) -> "Stored":
        """The weight with its rows in another order."""

        def moved(tensor: Tensor | None) -> Tensor | None:
            has_rows = tensor is not None and tensor.ndim == 2 and len(tensor) == len(order)
            return tensor[order] if has_rows and tensor is not None else tensor

        scales = moved(self.scales)
        assert scales is not None
        return replace(
            self,
            codes=self.codes[order],
            scales=scales,
            zeros=moved(self.zeros),
            biases=moved(self.biases),
        )

    def _spread(self, scales: Tensor) -> Tensor:
        if self.groups is not None:
            return scales[:, self.groups]
        return spread(scales, (self.codes.shape[0], self.codes.shape[1]), self.block)

    def by_groups(self, scales: Tensor | None) -> Tensor | None:
        """Scales [outputs, G], or zeros or biases, of groups along the inputs."""
        if scales is None:
            return None
        if scales.numel() == 1:
            return scales.reshape(1, 1).expand(self.codes.shape[0], 1)
        scales = scales[:, None] if scales.ndim == 1 else scales
        rows = self.codes.shape[0]
        if len(scales) == rows:
            return scales
        each = self.block[0] if self.block else -(-rows // len(scales))
        return torch.repeat_interleave(scales, each, 0)[:rows]
