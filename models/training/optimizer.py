"""The optimizer, its learning rate at every step, and the number format of the passes.

Knows nothing about data or files. The learning rate is a function of the step alone, so there is no
scheduler whose state would have to be saved. Steps count from 0, and none has a rate of zero: a
step that learns nothing is wasted.
"""

import math
from typing import Protocol

import torch
from torch import nn

from models.training.pretrain_settings import PretrainSettings


class Rates(Protocol):
    """The settings of a run that decide the size of each step."""

    @property
    def learning_rate(self) -> float: ...

    @property
    def warmup_fraction(self) -> float: ...

    @property
    def weight_decay(self) -> float: ...


def build_optimizer(
    model: nn.Module,
    settings: Rates,
    betas: tuple[float, float] = (0.9, 0.999),
    epsilon: float = 1e-8,
) -> torch.optim.AdamW:
    """AdamW over the weights that train; vectors (biases, norms) do not decay.

    Decay pulls towards zero, which is no natural place for a norm's scale.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": settings.weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        groups, lr=settings.learning_rate, betas=betas, eps=epsilon, fused=True
    )


def learning_rate_at(step: int, total_steps: int, settings: Rates) -> float:
    """Rise linearly over the warm-up, then fall linearly to zero after the last step."""
    warmup_steps = math.ceil(settings.warmup_fraction * total_steps)
    if step < warmup_steps:
        return settings.learning_rate * (step + 1) / warmup_steps
    return settings.learning_rate * (total_steps - step) / max(1, total_steps - warmup_steps)


def cosine_rate_at(step: int, total_steps: int, settings: PretrainSettings) -> float:
    """Rise linearly over the warm-up, then fall as a cosine does to the floor at the last step."""
    warmup_steps = math.ceil(settings.warmup_fraction * total_steps)
    if step < warmup_steps:
        return settings.learning_rate * (step + 1) / warmup_steps
    fallen = (step - warmup_steps) / max(1, total_steps - 1 - warmup_steps)
    height = (1.0 + math.cos(math.pi * fallen)) / 2.0
    floor = settings.floor_fraction
    return settings.learning_rate * (floor + (1.0 - floor) * height)


def uses_bfloat16(precision: str) -> bool:
    """Whether to run the passes in bfloat16 ("auto": if this processor multiplies in it).

    Without AVX512_BF16 or AMX the format is emulated, and slower than float32. Decided by the
    processor's flags and not by a stopwatch: the same seed must give the same result.
    """
    if precision != "auto":
        return precision == "on"
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
