"""Pooling of the hidden states of a text's tokens to one vector, as sentence-transformers has it.

Several poolings, with + between their names, give their vectors one after the other. Rows are
right-padded. Knows nothing about files.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, S tokens, D hidden size

from collections.abc import Callable

import torch
from torch import Tensor

from models.choices import POOLINGS, TOGETHER
from models.errors import SettingError
from models.networks.layers import last_of


def pool(hidden_BSD: Tensor, attention_mask_BS: Tensor, pooling: str) -> Tensor:
    """[B, D], or [B, n D] of n poolings.

    A row of padding alone has a mean of zeros, not a division by zero; its last and its largest
    are its first.
    """
    vectors = [_POOLS[each](hidden_BSD, attention_mask_BS) for each in parts_of(pooling)]
    return vectors[0] if len(vectors) == 1 else torch.cat(vectors, dim=-1)


def parts_of(pooling: str) -> tuple[str, ...]:
    """The single poolings, in the order of their vectors."""
    return tuple(pooling.split(TOGETHER))


def check_pooling(pooling: str) -> None:
    """Raise `SettingError` unless it is one of POOLINGS, or several, each once."""
    parts = parts_of(pooling)
    if not set(parts) <= set(POOLINGS) or len(set(parts)) < len(parts):
        limit = f"one of {', '.join(POOLINGS)}, or several with {TOGETHER} between them, each once"
        raise SettingError("pooling", pooling, limit)


def _mask(hidden_BSD: Tensor, attention_mask_BS: Tensor) -> Tensor:
    return attention_mask_BS.unsqueeze(-1).to(hidden_BSD.dtype)


def _first(hidden_BSD: Tensor, _: Tensor) -> Tensor:
    return hidden_BSD[:, 0]


def _mean(hidden_BSD: Tensor, attention_mask_BS: Tensor) -> Tensor:
    mask_BS1 = _mask(hidden_BSD, attention_mask_BS)
    return (hidden_BSD * mask_BS1).sum(dim=1) / mask_BS1.sum(dim=1).clamp(min=1.0)


def _sum_by_root(hidden_BSD: Tensor, attention_mask_BS: Tensor) -> Tensor:
    """The sum, divided by the square root of the number of tokens."""
    mask_BS1 = _mask(hidden_BSD, attention_mask_BS)
    return (hidden_BSD * mask_BS1).sum(dim=1) / mask_BS1.sum(dim=1).clamp(min=1.0).sqrt()


def _largest(hidden_BSD: Tensor, attention_mask_BS: Tensor) -> Tensor:
    is_token_BS1 = attention_mask_BS.unsqueeze(-1) != 0
    return torch.where(is_token_BS1, hidden_BSD, hidden_BSD[:, :1]).amax(dim=1)


def _weighted_mean(hidden_BSD: Tensor, attention_mask_BS: Tensor) -> Tensor:
    """The mean where the token at place n counts n times (Muennighoff 2022, SGPT).

    The weights are divided by their sum in float32, which that sum would overflow in float16.
    """
    places_S = torch.arange(1, hidden_BSD.shape[1] + 1, device=hidden_BSD.device)
    counts_BS = (places_S * (attention_mask_BS != 0)).float()
    weights_BS = counts_BS / counts_BS.sum(dim=1, keepdim=True).clamp(min=1.0)
    return (hidden_BSD * weights_BS.unsqueeze(-1).to(hidden_BSD.dtype)).sum(dim=1)


_POOLS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": _mean,
    "cls": _first,
    "last": last_of,
    "max": _largest,
    "mean_sqrt_len_tokens": _sum_by_root,
    "weightedmean": _weighted_mean,
}
assert tuple(_POOLS) == POOLINGS, "what the command line says there is"
