"""How well a language model predicts a held-out stream of tokens.

Knows nothing about files or training. Always in float32, because that is how the model will be
judged in the precision of its reader, not of its training.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from models.gpt import GPT
from models.windows import validation_windows


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A stream of tokens to measure on, and how many bytes of text it stands for."""

    stream: Tensor  # [T]
    num_bytes: int

    def bits_per_byte(self, loss: float) -> float:
        """From nats per token, a stream's tokens having its usual number of bytes."""
        return loss / math.log(2.0) * len(self.stream) / self.num_bytes


def mean_loss(model: GPT, held_out: HeldOut, max_windows: int) -> float:
    """Mean cross entropy of a token in nats; the model comes back in the mode that it was in."""
    was_training = model.training
    model.eval()
    total, count = 0.0, 0
    with torch.inference_mode():
        context = model.config.max_positions
        for window in validation_windows(held_out.stream, context, max_windows):
            loss = next_token_loss(model, window)
            total += loss.item() * (window.shape[1] - 1)
            count += window.shape[1] - 1
    model.train(was_training)
    return total / count


def next_token_loss(model: GPT, windows: Tensor) -> Tensor:
    """Mean cross entropy over windows [B, S + 1], in which every token but the first is a target.

    The logits may be bfloat16; their softmax is float32.
    """
    logits = model(windows[:, :-1])
    return F.cross_entropy(logits.float().flatten(0, 1), windows[:, 1:].flatten())
