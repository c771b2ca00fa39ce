"""One layer's attention, as a network of transformers asks for it and as a graph has it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from export.graphs.traced.masks import Mask

NAME = "attendant"  # of our functions in transformers' registers
SDPA = "sdpa"  # of networks that call PyTorch's function themselves
PRODUCTS = "products"  # of networks that multiply queries, keys and values themselves
CHANNELS = 8  # a head in the cache has a multiple of these: what ONNX Runtime's operator takes

Eager = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # query, key, value, mask: [B, S, H, Dv]


@dataclass(frozen=True, slots=True)
class Call:
    """One layer's attention: queries, keys and values [B, H, S, Dh], and how they meet."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Any
    scale: float
    eager: Eager  # the same as transformers computes it
    softcap: float = 0.0
    sinks: Tensor | None = None  # [H]


@dataclass(frozen=True, slots=True)
class Layer:
    """The mask, scale and sizes of one layer's attention."""

    mask: Mask
    scale: float
    eager: Eager
    num_heads: int
    num_kv_heads: int
    key_size: int
    value_size: int
    softcap: float = 0.0
    has_sinks: bool = False
    way: str = NAME  # of calling: NAME, SDPA or PRODUCTS
    slopes: Tensor | None = None  # [H]: what a score grows by with each place of its key

    @property
    def head_size(self) -> int:
        """The size of a head in the cache, where keys and values are of one size."""
        size = max(self.key_size + (self.slopes is not None), self.value_size)
        return size + -size % CHANNELS


Answer = Callable[[Call], Tensor]  # the output [B, S, H, Dv]
