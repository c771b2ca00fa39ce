"""The channels of keys that a traced network's rotation turns into each other, found by trial.

Of one token alone attention is its value, so nothing but the rotation tells one place from another:
two channels are a pair where the sum of their squares is the same at all places.
"""

# ruff: noqa: N803, N806 - suffixes are array layouts: P places, H heads, Dh head size

import numpy as np
import torch
from torch import Tensor

from export.graphs.traced.attention import answered, repeated
from export.graphs.traced.calls import Call
from export.graphs.traced.decoder import layers_of
from models.networks.traced import TracedDecoder

NUM_PLACES = 48
TOLERANCE = 1e-4  # of a pair's squared length, in float32
TOKEN = 1


@torch.inference_mode()
def turned_channels(decoder: TracedDecoder, size: int) -> list[np.ndarray]:
    """Channels that each of `size` is turned into, layer by layer; one that is not has itself.

    Positions that are learned turn nothing.
    """
    most = decoder.config.max_positions
    places = torch.linspace(0, most - 1, min(NUM_PLACES, most)).long()
    ids = torch.full((1, 1), TOKEN)
    way = layers_of(decoder)[0].way
    by_place: list[list[np.ndarray]] = []
    for place in places:
        keys: list[np.ndarray] = []

        def attention(call: Call, keys: list[np.ndarray] = keys) -> Tensor:
            keys.append(call.key[0, :, 0].double().numpy())
            return repeated(call.value, call.query.shape[1]).transpose(1, 2)

        with answered(decoder.network, attention, way):
            decoder.step(ids, place.view(1, 1))
        by_place.append(keys)
    return [_partners(np.stack(layer), size) for layer in zip(*by_place, strict=True)]


def _partners(keys_PHDh: np.ndarray, size: int) -> np.ndarray:
    squares_PHDh = keys_PHDh**2
    partners = np.arange(size)
    for channel in range(keys_PHDh.shape[-1]):
        if partners[channel] != channel or _is_still(keys_PHDh[..., channel]):
            continue
        lengths_PHDh = squares_PHDh + squares_PHDh[..., channel, None]
        lengths_PHDh[..., channel] = squares_PHDh[..., channel]
        changes_Dh = np.ptp(lengths_PHDh, axis=0).max(axis=0) / lengths_PHDh.max(axis=(0, 1))
        partner = int(changes_Dh.argmin())
        if changes_Dh[partner] <= TOLERANCE:
            partners[channel], partners[partner] = partner, channel
    return partners


def _is_still(values_PH: np.ndarray) -> bool:
    return bool(np.ptp(values_PH, axis=0).max() <= TOLERANCE * np.abs(values_PH).max())
