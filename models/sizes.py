"""What the sizes of encoders and decoders have in common: their limits, and being read from JSON.

Knows nothing about PyTorch.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Protocol

from models.errors import SettingError, check_choice, check_range

POSITIVE = ("vocab_size", "hidden_size", "num_layers", "intermediate_size", "max_positions")


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
    """What a layer needs to know of its network."""

    @property
    def intermediate_size(self) -> int: ...

    @property
    def layer_norm_eps(self) -> float: ...


def check_sizes(
    sizes: Sizes, activations: Iterable[str], positive: Iterable[str] = POSITIVE
) -> None:
    """Raise SettingError naming the first field that is outside its limits."""
    for name in positive:
        check_range(name, getattr(sizes, name), 1, float("inf"))
    check_range("dropout", sizes.dropout, 0.0, 0.9)
    check_choice("activation", sizes.activation, activations)
    if sizes.num_heads < 1 or sizes.hidden_size % sizes.num_heads:
        limit = f"a divisor of hidden_size {sizes.hidden_size}"
        raise SettingError("num_heads", sizes.num_heads, limit)


def check_names(section: str, values: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise SettingError unless a section of config.json has the known fields and no other."""
    for name in values.keys() ^ set(known):
        wanted = "absent: there is no such field" if name in values else "given"
        raise SettingError(f"{section}.{name}", values.get(name), wanted)
