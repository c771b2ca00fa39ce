"""Where a Transformer looks, read off its own pass: the reference of what shows it."""

from typing import Any

import torch
from torch import Tensor, nn

from models.networks.attention import attention_reference
from models.networks.transformer import DecoderLayer, Transformer


def cross_weights(network: Transformer, ids: Tensor, mask: Tensor, target: Tensor) -> Tensor:
    """[B, L, H, T, S]: row t is where it looked before it wrote token t of the target."""
    found: list[Tensor] = []

    def keep(_: nn.Module, arguments: tuple[Any, ...], __: Tensor) -> None:
        query, key, value, padding_mask, _is_causal = arguments
        found.append(attention_reference(query, key, value, padding_mask[:, None, None, :])[1])

    layers = [layer for layer in network.decoder if isinstance(layer, DecoderLayer)]
    hooks = [layer.cross_attention.core.register_forward_hook(keep) for layer in layers]
    start = torch.full_like(target[:, :1], network.config.start_token_id)
    with torch.inference_mode():
        network(ids, mask, torch.cat([start, target[:, :-1]], dim=1))
    for hook in hooks:
        hook.remove()
    return torch.stack(found, dim=1)
