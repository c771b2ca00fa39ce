"""A graph that another test has traced is the one that would be traced anew, or is not taken."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from export.graphs.cached_decoder import trace_decoder
from export.graphs.graph import trace
from export.graphs.traced.decoder import trace_traced
from tests.fakes.tiny import tiny_classifier
from tests.fakes.tiny_gpt import tiny_gpt
from tests.traced.networks import tiny_decoder
from tests.traces import Traces, UnknownPartError, digest_of, identities


class Scaled(nn.Module):
    """A network whose graph depends on a setting, a weight and its code."""

    def __init__(self, factor: float = 2.0, bias: float = 0.5) -> None:
        super().__init__()
        self.factor = factor
        self.bias = nn.Parameter(torch.tensor([bias]))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return given * self.factor + self.bias


GRAPHS = {
    "a classifier": lambda: trace(
        tiny_classifier(num_layers=1).encoder_model, "MultiHeadAttention"
    ),
    "a decoder without weights": lambda: trace_decoder(tiny_gpt(num_layers=1), precision="fp32"),
    "a network of transformers": lambda: trace_traced(tiny_decoder("gemma2")),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_a_kept_graph_has_the_bytes_of_one_that_is_traced_anew(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = sys.modules["torch.onnx"].traces_of_tests
    monkeypatch.setattr(kept, "folder", tmp_path)
    graphs = []
    for is_asked in (True, True, False):
        monkeypatch.setattr(kept, "is_asked", is_asked)
        graphs.append(GRAPHS[name]().SerializeToString(deterministic=True))
    assert len([*tmp_path.iterdir()]) == 1, "the second is the first"
    assert graphs[0] == graphs[1] == graphs[2]


def test_the_digest_is_of_settings_weights_and_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(self: Scaled, given: torch.Tensor) -> torch.Tensor:
        return given * self.factor - self.bias

    example = (torch.ones(2),)
    digests = [
        digest_of((Scaled(), example)),
        digest_of((Scaled(factor=3.0), example)),
        digest_of((Scaled(bias=0.25), example)),
        digest_of((Scaled(), (torch.ones(3),))),
        digest_of((nn.Sequential(Scaled()), example)),
    ]
    assert digest_of((Scaled(), example)) == digests[0]
    hooked = Scaled()
    hooked.register_forward_hook(lambda _, __, result: result + 1)
    digests.append(digest_of((hooked, example)))
    monkeypatch.setattr(Scaled, "forward", other)
    digests.append(digest_of((Scaled(), example)))
    assert len(set(digests)) == len(digests)


def test_weights_that_two_layers_share_are_not_two_that_are_equal() -> None:
    layer = nn.Linear(2, 2)
    apart = nn.Linear(2, 2)
    apart.load_state_dict(layer.state_dict())
    together, equal = nn.Sequential(layer, layer), nn.Sequential(layer, apart)
    assert digest_of(together) != digest_of(equal)


def test_what_is_not_known_has_no_digest() -> None:
    digest_of(pytest.raises)  # a function is known by its code
    with pytest.raises(UnknownPartError, match="ApproxScalar"):
        digest_of(pytest.approx(1.0))
    with pytest.raises(UnknownPartError, match="too large"):
        digest_of(nn.Linear(2**12, 2**11))


def test_a_function_of_ours_that_a_test_has_exchanged_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    traces = Traces()
    traces.install()
    assert not traces._is_exchanged()
    for name in ("export.graphs.graph.trace_texts", "models.networks.encoder.Encoder.forward"):
        with monkeypatch.context() as patch:
            patch.setattr(name, lambda *_: None)
            assert traces._is_exchanged()
        assert not traces._is_exchanged()
    assert "Traces.install" in identities(sys.modules["tests.traces"])
