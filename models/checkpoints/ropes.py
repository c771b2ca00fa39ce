"""The ways in which checkpoints stretch rotary positions, all as frequencies and one factor.

Knows nothing about files or weights. The formulas are those of `modeling_rope_utils.py` in
transformers, computed in float32 as there: linear (Chen et al. 2023), YaRN (Peng et al. 2023),
LongRoPE (Ding et al. 2024), and Llama 3.1's.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from models.checkpoints.decoder_fields import check_rope
from models.errors import SettingError, check_choice
from models.json_files import check_number
from models.networks.ropes import Rope

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RopeRequest:
    """Inputs of a formula: fields of config.json, the rotated values of a head, and lengths."""

    values: Values  # of `rope_parameters`, or of `rope_scaling` with `rope_theta`
    size: int  # values of a head that are rotated
    max_positions: int  # that config.json states
    context: int  # tokens that the checkpoint will be used for

    @property
    def theta(self) -> float:
        return float(self.values["rope_theta"])

    @property
    def original(self) -> int:
        """The longest text of pretraining, before the context was stretched."""
        return int(self.values.get("original_max_position_embeddings") or self.max_positions)

    @property
    def stretch(self) -> float:
        return float(self.values.get("factor") or self.max_positions / self.original)

    def plain(self) -> Tensor:
        """[size / 2] of the positions that are not stretched."""
        exponents = torch.arange(0, self.size, 2, dtype=torch.float32) / self.size
        return 1.0 / self.theta**exponents

    def number(self, name: str) -> float:
        if self.values.get(name) is None:
            raise SettingError(f"rope_parameters.{name}", None, "a number")
        return float(self.values[name])


def rope_of(request: RopeRequest) -> Rope:
    """Raises `SettingError` for a kind that is not known, or lacks a number."""
    kind = str(request.values.get("rope_type", "default"))
    check_choice("rope_type", kind, KINDS)
    check_rope(request.values)
    try:
        frequencies, factor = KINDS[kind](request)
    except (ArithmeticError, ValueError) as error:
        raise _not_finite(request) from error
    if not (math.isfinite(factor) and bool(torch.isfinite(frequencies).all())):
        raise _not_finite(request)
    return Rope(tuple(frequencies.float().tolist()), factor)


def _not_finite(request: RopeRequest) -> SettingError:
    return SettingError("rope_parameters", dict(request.values), "numbers that give frequencies")


def _default(request: RopeRequest) -> tuple[Tensor, float]:
    return request.plain(), 1.0


def _linear(request: RopeRequest) -> tuple[Tensor, float]:
    return request.plain() / request.number("factor"), 1.0


def _dynamic(request: RopeRequest) -> tuple[Tensor, float]:
    """Plain positions up to the stated length; beyond it, keys would depend on a text's length."""
    if request.context > request.max_positions:
        limit = f"at most {request.max_positions} with dynamic positions"
        raise SettingError("context", request.context, limit)
    return request.plain(), 1.0


def _llama3(request: RopeRequest) -> tuple[Tensor, float]:
    plain, stretch = request.plain(), request.number("factor")
    low, high = request.number("low_freq_factor"), request.number("high_freq_factor")
    lengths = 2 * math.pi / plain
    share = (request.original / lengths - low) / (high - low)
    between = (1 - share) * plain / stretch + share * plain
    is_between = (lengths >= request.original / high) & (lengths <= request.original / low)
    stretched = torch.where(lengths > request.original / low, plain / stretch, plain)
    return torch.where(is_between, between, stretched), 1.0


def _yarn(request: RopeRequest) -> tuple[Tensor, float]:
    plain, stretch, size = request.plain(), request.stretch, request.size
    values = request.values

    def place(rotations: float) -> float:
        """Place of the value that turns so often in a text of pretraining."""
        turned = math.log(request.original / (rotations * 2 * math.pi))
        return size * turned / (2 * math.log(request.theta))

    first = place(float(values.get("beta_fast") or 32))
    last = place(float(values.get("beta_slow") or 1))
    if values.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, size - 1)
    steps = torch.arange(size // 2, dtype=torch.float32)
    ramp = torch.clamp((steps - first) / (last - first if last != first else 0.001), 0, 1)
    frequencies = plain / stretch * ramp + plain * (1 - ramp)
    return frequencies, _yarn_factor(values, stretch)


def _yarn_factor(values: Values, stretch: float) -> float:
    stated = values.get("attention_factor")
    if stated is not None:
        return float(stated)

    def growth(scale: float) -> float:
        return 1.0 if stretch <= 1 else 0.1 * scale * math.log(stretch) + 1.0

    over, under = values.get("mscale"), values.get("mscale_all_dim")
    return growth(float(over)) / growth(float(under)) if over and under else growth(1.0)


def _longrope(request: RopeRequest) -> tuple[Tensor, float]:
    """One table for all texts, by the longest that there will be: keys in a cache stay right."""
    name = "short_factor" if request.context <= request.original else "long_factor"
    factors = request.values.get(name)
    if not isinstance(factors, list | tuple) or len(factors) != request.size // 2:
        raise SettingError(f"rope_parameters.{name}", factors, f"{request.size // 2} numbers")
    for place, each in enumerate(factors):
        check_number(f"rope_parameters.{name}[{place}]", each, 1e-6, 1e6)
    frequencies = request.plain() / torch.tensor(factors, dtype=torch.float32)
    stated, stretch = request.values.get("attention_factor"), request.stretch
    if stated is not None:
        return frequencies, float(stated)
    grown = math.sqrt(1 + math.log(stretch) / math.log(request.original)) if stretch > 1 else 1.0
    return frequencies, grown


KINDS: Mapping[str, Callable[[RopeRequest], tuple[Tensor, float]]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}
