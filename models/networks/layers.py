"""Parts of layers: sizes, positions, linear maps with an activation, and the pre-norm layer.

A position is one vector added to a token's embedding. Rows are right-padded, so the first token of
every row stands at 0 and one table [S, D] serves the whole batch.

The pre-norm layer of GPT and of the Vision Transformer normalises first, then attends or expands.
The residual stream passes it untouched but for what is added, which lets deep networks train
without a warm-up (Radford et al. 2019, section 2.3; Dosovitskiy et al. 2020, section 3.1).

Knows nothing about where in a network it stands: encoders and decoders use the same.
"""

# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, S tokens, D hidden size,
# I intermediate size

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any, ClassVar, Protocol, Self, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.errors import SettingError, check_choice, check_range
from models.networks.attention import MultiHeadAttention

Attend: TypeAlias = Callable[[Tensor], Tensor]  # [B, S, D] -> [B, S, D]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}


class FeedForward(nn.Module):
    """Expand, activate, contract (Vaswani et al. 2017, section 3.3)."""

    def __init__(
        self, hidden_size: int, intermediate_size: int, activation: str, *, bias: bool = True
    ) -> None:
        super().__init__()
        self.expand = nn.Linear(hidden_size, intermediate_size, bias=bias)
        self.contract = nn.Linear(intermediate_size, hidden_size, bias=bias)
        self.activation = ACTIVATIONS[activation]

    def forward(self, hidden_BSD: Tensor) -> Tensor:
        output_BSD: Tensor = self.contract(self.activation(self.expand(hidden_BSD)))
        return output_BSD


class GatedFeedForward(nn.Module):
    """Expand twice, activate one, multiply, contract (Shazeer 2020)."""

    def __init__(
        self, hidden_size: int, intermediate_size: int, activation: str, *, bias: bool = True
    ) -> None:
        super().__init__()
        self.gate = nn.Linear(hidden_size, intermediate_size, bias=bias)
        self.expand = nn.Linear(hidden_size, intermediate_size, bias=bias)
        self.contract = nn.Linear(intermediate_size, hidden_size, bias=bias)
        self.activation = ACTIVATIONS[activation]

    def forward(self, hidden_BSD: Tensor) -> Tensor:
        gated_BSI = self.activation(self.gate(hidden_BSD)) * self.expand(hidden_BSD)
        output_BSD: Tensor = self.contract(gated_BSI)
        return output_BSD


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
        return self.at(torch.arange(num_tokens, device=self.table.weight.device))

    def at(self, position_ids: Tensor) -> Tensor:
        """[..., D] for any positions, counted from 0."""
        vectors: Tensor = self.table(position_ids + self.offset)
        return vectors


def last_of(hidden_BSD: Tensor, attention_mask_BS: Tensor) -> Tensor:
    """[B, D] of each row's last token that is no padding; rows are right-padded."""
    lengths_B = attention_mask_BS.sum(dim=1)
    # Not `clamp`, which becomes a Clip without a maximum: OpenVINO makes that 0 for int64.
    last_B = torch.maximum(lengths_B, torch.ones_like(lengths_B)) - 1
    index_B1D = last_B[:, None, None].expand(-1, 1, hidden_BSD.shape[-1])
    return hidden_BSD.gather(1, index_B1D).squeeze(1)


POSITIVE = ("vocab_size", "hidden_size", "num_layers", "intermediate_size", "max_positions")
# A file may say anything, and a network is built before its weights are looked for.
MAX_LAYERS, MAX_SIZE = 1_024, 100_000_000


@dataclass(frozen=True, slots=True)
class Config:
    """The sizes of a network, a section of config.json; a subclass adds fields and checks them."""

    section: ClassVar[str]
    unnamed: ClassVar[Mapping[str, Any]] = {}  # fields that older checkpoints do not name

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Raises SettingError unless the section has the known fields and no other."""
        values = {**cls.unnamed, **values}
        for name in values.keys() ^ {field.name for field in fields(cls)}:
            limit = "absent: there is no such field" if name in values else "given"
            raise SettingError(f"{cls.section}.{name}", values.get(name), limit)
        return cls(**{name: _from_json(value) for name, value in values.items()})

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def _from_json(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


class Sizes(Protocol):
    """A network of L layers with H heads; its other sizes are those that must be positive."""

    @property
    def hidden_size(self) -> int: ...

    @property
    def num_heads(self) -> int: ...

    @property
    def dropout(self) -> float: ...

    @property
    def activation(self) -> str: ...


class LayerSizes(Sizes, Protocol):
    """The sizes of a network that its layers need."""

    @property
    def intermediate_size(self) -> int: ...

    @property
    def layer_norm_eps(self) -> float: ...


def check_size(field: str, value: float, low: int = 1) -> None:
    """Raise SettingError for a size that no network has."""
    check_range(field, value, low, float("inf"))
    most = MAX_LAYERS if field.endswith("layers") else MAX_SIZE
    if value > most:
        raise SettingError(field, value, f"at most {most}")


def check_sizes(
    sizes: Sizes,
    activations: Iterable[str],
    positive: Iterable[str] = POSITIVE,
    *,
    has_own_head_size: bool = False,
) -> None:
    """Raise SettingError naming the first field that is outside its limits."""
    for name in positive:
        check_size(name, getattr(sizes, name))
    check_range("dropout", sizes.dropout, 0.0, 0.9)
    check_choice("activation", sizes.activation, activations)
    if has_own_head_size:
        check_range("num_heads", sizes.num_heads, 1, float("inf"))
    elif sizes.num_heads < 1 or sizes.hidden_size % sizes.num_heads:
        limit = f"a divisor of hidden_size {sizes.hidden_size}"
        raise SettingError("num_heads", sizes.num_heads, limit)


class PreNormLayer(nn.Module):
    """Attention, then feed-forward: each on a normalised copy, added to the residual stream."""

    is_causal: ClassVar[bool] = False

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(sizes.hidden_size, eps=sizes.layer_norm_eps)
        self.attention = MultiHeadAttention(sizes.hidden_size, sizes.num_heads, sizes.dropout)
        self.feed_forward_norm = nn.LayerNorm(sizes.hidden_size, eps=sizes.layer_norm_eps)
        self.feed_forward = FeedForward(
            sizes.hidden_size, sizes.intermediate_size, sizes.activation
        )
        self.dropout = nn.Dropout(sizes.dropout)

    def forward(self, hidden_BSD: Tensor, padding_mask_BS: Tensor | None = None) -> Tensor:
        def attend(normed_BSD: Tensor) -> Tensor:
            attended_BSD: Tensor = self.attention(normed_BSD, padding_mask_BS, self.is_causal)
            return attended_BSD

        return self.around(attend, hidden_BSD)

    def attention_input(self, hidden_BSD: Tensor) -> Tensor:
        """Keys and values are made of this."""
        normed_BSD: Tensor = self.attention_norm(hidden_BSD)
        return normed_BSD

    def around(self, attend: Attend, hidden_BSD: Tensor) -> Tensor:
        """The layer around another attention than its own, which is given normalised states."""
        hidden_BSD = hidden_BSD + self.dropout(attend(self.attention_norm(hidden_BSD)))
        expanded_BSD = self.feed_forward(self.feed_forward_norm(hidden_BSD))
        output_BSD: Tensor = hidden_BSD + self.dropout(expanded_BSD)
        return output_BSD
