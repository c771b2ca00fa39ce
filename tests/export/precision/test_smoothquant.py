"""Factors between a channel's weights: int8 rounds well, and the network computes the same bits."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from export.exporter import export_any
from export.precision.smoothquant import evened
from export.settings import ExportSettings, HeldOut
from models.networks.llama import Llama, LlamaLayer
from tests.fakes.tiny_gpt import liked_text, random_prompts
from tests.fakes.tiny_llama import tiny_llama, tiny_llama_generator

ROWS = random_prompts((40, 40, 40, 40))
SPIKES = [3, 50]


def with_spikes(**changes: Any) -> Llama:
    """The same network, with channels in front of `contract` that are 1,024 times as large."""
    network = tiny_llama(**changes)
    with torch.no_grad():
        for layer in (network.layers[0], network.layers[-1]):
            assert isinstance(layer, LlamaLayer)
            layer.feed_forward.expand.weight[SPIKES] *= 1_024
            if layer.feed_forward.expand.bias is not None:
                layer.feed_forward.expand.bias[SPIKES] *= 1_024
            layer.feed_forward.contract.weight[:, SPIKES] /= 1_024
    return network


def logits(network: Llama) -> Tensor:
    with torch.inference_mode():
        of_all_tokens: Tensor = network(torch.tensor(ROWS))
    return of_all_tokens


def largest_by_layer(network: Llama) -> list[float]:
    """Of each layer, the largest channel in front of `contract` over the median one."""
    ratios: list[float] = []

    def see(_: object, given: tuple[Tensor]) -> None:
        channels = given[0].flatten(0, -2).abs().amax(dim=0)
        ratios.append(float(channels.max() / channels.median()))

    for layer in network.layers:
        assert isinstance(layer, LlamaLayer)
        layer.feed_forward.contract.register_forward_pre_hook(see)
    logits(network)
    return ratios


@pytest.mark.parametrize("has_biases", [False, True])
def test_channels_that_are_far_larger_are_brought_down(has_biases: bool) -> None:
    """From a thousand times the median to tens, in the layers that have them."""
    network = with_spikes(feed_forward_bias=has_biases)
    before = largest_by_layer(copy.deepcopy(network))
    after = largest_by_layer(copy.deepcopy(evened(network, ROWS)))
    assert before[0] > 500
    assert before[-1] > 500
    assert max(after) < 50


def test_the_network_computes_the_same_bits() -> None:
    """Factors are powers of two; the network that was given stays as it was."""
    network = with_spikes()
    before = copy.deepcopy(network.state_dict())
    changed = evened(network, ROWS)
    assert changed is not network
    assert torch.equal(logits(changed), logits(network))
    assert all(torch.equal(before[name], each) for name, each in network.state_dict().items())


def test_a_network_without_such_channels_stays() -> None:
    network = tiny_llama()
    assert evened(network, ROWS) is network


def test_each_layer_is_told_of() -> None:
    steps: list[int] = []
    evened(tiny_llama(), ROWS, steps.append)
    assert steps == [1, 2, 3]


def test_int8_of_a_network_with_such_channels_keeps_its_perplexity(tmp_path: Path) -> None:
    """Within 2 % on text that it likes; float32 is exported with the same factors."""
    network = with_spikes()
    settings = ExportSettings("tale", tmp_path, "auto")
    text = HeldOut(text=liked_text(network, 4))
    _, manifest = export_any(tiny_llama_generator(network), settings, text)
    assert manifest.left_out == {}
    (int8,) = manifest.variants
    assert abs(int8.perplexity["rise"]) < 0.02
    assert manifest.perplexity["rise"] == pytest.approx(0, abs=1e-4)
