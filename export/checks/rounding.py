"""Error of a network's results in float32, by its results in float64.

Steep networks multiply each rounding, so a right graph, which adds in another order, may be as far
from such a network as the network is from what is exact.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map


class InFloat64(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While entered, operators compute in float64 what they would in float32.

    A weight is converted where it is used, so that there is one in float64 at a time.
    """

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        return func(*tree_map(_widened, args), **tree_map(_widened, kwargs or {}))


def _widened(value: object) -> object:
    if isinstance(value, Tensor) and value.dtype == torch.float32:
        return value.double()
    return torch.float64 if value is torch.float32 else value


@torch.inference_mode()
def rounding_of(compute: Callable[[], Tensor]) -> float:
    """The largest error of what is computed."""
    plain = compute()
    with InFloat64():  # type: ignore[no-untyped-call]
        exact = compute()
    return float((plain - exact).abs().max())
