"""Maps of a text's vector behind the pooling: linear maps, and norms of values.

As sentence-transformers has them in its modules Dense and LayerNorm, in any order and number.
Knows nothing about files.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, I values in, O values out

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.choices import MAX_VECTOR_SIZE
from models.errors import SettingError, check_choice, check_range
from models.networks.encoder import initialise
from models.networks.layers import ACTIVATIONS
from models.networks.pooling import check_pooling, parts_of

DENSE_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "identity": lambda values: values,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    **ACTIVATIONS,
}
MAX_MAPS = 16


class DenseMap(nn.Module):
    """A linear map and an activation, to which what went in may be added, mapped where it must."""

    def __init__(
        self,
        input_size: int,
        output_size: int,
        activation: str = "identity",
        *,
        bias: bool = True,
        has_residual: bool = False,
    ) -> None:
        super().__init__()
        check_choice("activation", activation, DENSE_ACTIVATIONS)
        for name, size in (("input_size", input_size), ("output_size", output_size)):
            check_range(name, size, 1, MAX_VECTOR_SIZE)
        self.input_size, self.output_size = input_size, output_size
        self.activation, self.has_residual = activation, has_residual
        self.linear = nn.Linear(input_size, output_size, bias=bias)
        is_mapped = has_residual and input_size != output_size
        self.residual = nn.Linear(input_size, output_size, bias=False) if is_mapped else None
        self.apply(initialise)

    def forward(self, vectors_BI: Tensor) -> Tensor:
        mapped_BO = DENSE_ACTIVATIONS[self.activation](self.linear(vectors_BI))
        if not self.has_residual:
            return mapped_BO
        added_BO = vectors_BI if self.residual is None else self.residual(vectors_BI)
        return mapped_BO + added_BO

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "dense",
            "input_size": self.input_size,
            "output_size": self.output_size,
            "activation": self.activation,
            "bias": self.linear.bias is not None,
            "has_residual": self.has_residual,
        }


class VectorNorm(nn.Module):
    """A layer norm over the values of a vector; without weights as functional.layer_norm."""

    def __init__(self, size: int, *, has_weights: bool = True) -> None:
        super().__init__()
        check_range("size", size, 1, MAX_VECTOR_SIZE)
        self.input_size = self.output_size = size
        self.has_weights = has_weights
        self.norm = nn.LayerNorm(size, elementwise_affine=has_weights)

    def forward(self, vectors_BI: Tensor) -> Tensor:
        normed_BI: Tensor = self.norm(vectors_BI)
        return normed_BI

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "norm", "size": self.input_size, "has_weights": self.has_weights}


VectorMap = DenseMap | VectorNorm
_KINDS: dict[str, Callable[..., VectorMap]] = {"dense": DenseMap, "norm": VectorNorm}


class VectorMaps(nn.Sequential):
    """The maps of a vector, one after the other; each takes what the one before gives."""

    def __init__(self, maps: Iterable[VectorMap] = ()) -> None:
        steps = list(maps)
        check_range("the number of maps", len(steps), 0, MAX_MAPS)
        super().__init__(*steps)
        for before, behind in pairwise(steps):
            _check_size(behind, before.output_size)

    @classmethod
    def from_list(cls, maps: Iterable[Mapping[str, Any]]) -> "VectorMaps":
        """The maps of what `to_list` gave, with fresh weights."""
        built = []
        for each in maps:
            values = dict(each)
            check_choice("kind", kind := str(values.pop("kind")), _KINDS)
            built.append(_KINDS[kind](**values))
        return cls(built)

    def to_list(self) -> list[dict[str, Any]]:
        return [each.to_dict() for each in self.maps]

    def then(self, added: VectorMap) -> "VectorMaps":
        """Maps with one more behind them."""
        return VectorMaps([*self.maps, added])

    @property
    def maps(self) -> list[VectorMap]:
        return [cast(VectorMap, each) for each in self]

    def output_size(self, pooled_size: int) -> int:
        """Values of a vector that had `pooled_size`; raises `SettingError` if it does not fit."""
        if not self.maps:
            return pooled_size
        _check_size(self.maps[0], pooled_size)
        return self.maps[-1].output_size

    @property
    def description(self) -> str:
        """For people, to be put behind that of a pooling; empty where there are none."""
        return "".join(
            f", mapped to {each.output_size}" if isinstance(each, DenseMap) else ", layer norm"
            for each in self.maps
        )


class Pooled:
    """Parts of networks that pool a text's states to one vector."""

    config: Any
    pooling: str
    normalize: bool
    maps: VectorMaps

    def keep_use(self, pooling: str, maps: VectorMaps | None, *, normalize: bool) -> None:
        """Take what is done with states. Raises `SettingError` for maps that do not fit."""
        check_pooling(pooling)
        self.pooling = pooling
        self.normalize = normalize
        self.maps = VectorMaps() if maps is None else maps
        self.maps.output_size(self.pooled_size)

    @property
    def pooled_size(self) -> int:
        """Values of a vector in front of the maps."""
        return int(self.config.hidden_size) * len(parts_of(self.pooling))

    @property
    def embedding_size(self) -> int:
        return self.maps.output_size(self.pooled_size)

    @property
    def pooled_states(self) -> str:
        """The states that are pooled, for people."""
        return "last"

    @property
    def pooling_description(self) -> str:
        mapped = f"{self.pooling} of {self.pooled_states}{self.maps.description}"
        return mapped + (", normalised" if self.normalize else "")


def vector_of(pooled_BI: Tensor, maps: VectorMaps, *, normalize: bool) -> Tensor:
    """[B, O], of length 1 where that is asked for."""
    mapped_BO: Tensor = maps(pooled_BI)
    # In float32: squares overflow in float16, and no provider sums them in bfloat16.
    return F.normalize(mapped_BO.float(), dim=-1) if normalize else mapped_BO


def _check_size(one: VectorMap, size: int) -> None:
    if one.input_size != size:
        limit = f"{size}, the values of what comes before it"
        raise SettingError("input_size of a map of vectors", one.input_size, limit)
