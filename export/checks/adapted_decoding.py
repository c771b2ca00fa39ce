"""A graph with adapters must compute what merged weights do, and the plain graph without one.

Random adapters of the largest rank are put into the first and the last place. Rows with one of
them, with the other and with none share every run.
"""

# ruff: noqa: N806 - suffixes are array layouts: V vocabulary

import copy
from typing import TypeVar

import numpy as np
import onnx
import torch
from torch import nn

from export.checks.decoding import random_rows
from export.errors import ExportError
from export.graphs.cached_decoder import AnyDecoder
from export.graphs.graph import open_session
from service.contract.adapter import Adapter, Factors
from service.generation.decoders.adapter_buffers import AdapterShape
from service.generation.decoders.decoder import OnnxDecoder

Network = TypeVar("Network", bound=nn.Module)
MAX_ERROR = 1e-3  # of logits, as of the plain graph in float32
MAX_NEIGHBOUR_EFFECT = 1e-4  # of logits, as of the plain graph in all precisions
PROMPT_TOKENS = (7, 7, 7)
SIZE = 0.5  # of what an adapter adds to a product, beside the product of weights of the same size


def check_adapted(
    network: AnyDecoder, plain: onnx.ModelProto, adapted: onnx.ModelProto, *, is_exact: bool
) -> None:
    """Raise `ExportError` where a row differs from its own weights.

    A row of a rounded graph that has an adapter is compared with itself alone.
    """
    rows = random_rows(network.config.vocab_size, PROMPT_TOKENS, network.config.max_positions)
    decoder = OnnxDecoder(
        open_session(plain),
        num_slots=len(rows),
        max_tokens=network.config.max_positions,
        max_rows=len(rows),
        adapted=open_session(adapted),
    )
    assert decoder.adapters is not None, "the graph was given"
    shape = decoder.adapters.shape
    places = (1, 0, shape.num_places)
    by_place = {place: random_adapter(network, shape, place) for place in places if place}
    for place, adapter in by_place.items():
        decoder.adapters.write(place, adapter)
    arrays = [np.array(row) for row in rows]
    expected = decoder.run(0, arrays, [0] * len(rows)).whole().copy()
    logits = decoder.run(0, arrays, [0] * len(rows), 1, places).whole().copy()
    for row, place in enumerate(places):
        reference, what, limit = expected[row], "the graph without adapters", MAX_ERROR
        if place and is_exact:
            reference = _last_logits(merged(network, by_place[place]), rows[row])
            what = "merged weights"
        elif place:
            reference = decoder.run(0, [arrays[row]], [0], 1, (place,)).whole()[0].copy()
            what, limit = "the same row alone", MAX_NEIGHBOUR_EFFECT
        error = float(np.abs(logits[row] - reference).max())
        if not error <= limit:
            raise ExportError(
                f"a row with the adapter of place {place} differs by {error:.2e} from {what}, the "
                f"limit is {limit:g}"
            )


def random_adapter(network: nn.Module, shape: AdapterShape, seed: int) -> Adapter:
    """One of the largest rank for every product, as large as their weights."""
    generator = np.random.default_rng(seed)
    factors: dict[str, Factors] = {}
    for module, (num_in, num_out) in shape.modules.items():
        weight = network.get_submodule(module).weight
        assert isinstance(weight, torch.Tensor)
        a = generator.normal(size=(num_in, shape.rank)) * SIZE * float(weight.detach().std())
        b = generator.normal(size=(shape.rank, num_out)) / shape.rank**0.5
        factors[module] = Factors(a.astype(np.float32), b.astype(np.float32))
    return Adapter("", factors)


def merged(network: Network, adapter: Adapter) -> Network:
    """A copy of the network with an adapter in its weights."""
    copied = copy.deepcopy(network)
    for module, factors in adapter.factors.items():
        product = copied.get_submodule(module)
        assert isinstance(product.weight, torch.Tensor)
        # A weight of its own: those that stay in their files are one with the network's.
        changed = product.weight.detach() + torch.from_numpy((factors.a @ factors.b).T)
        product.weight = nn.Parameter(changed, requires_grad=False)
    return copied


def _last_logits(network: AnyDecoder, ids: list[int]) -> np.ndarray:
    with torch.inference_mode():
        logits_V: np.ndarray = network(torch.tensor([ids]))[0, -1].float().numpy()
    return logits_V
