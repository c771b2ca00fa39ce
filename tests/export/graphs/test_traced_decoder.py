"""Decoders traced from transformers' own code; the table of all families is `tests.traced`."""

from typing import Any

import onnx
import pytest

from export.checks.traced_decoding import check_traced
from export.errors import ExportError
from export.graphs.traced.attention import attention
from export.graphs.traced.decoder import layers_of, trace_traced
from models.networks.traced import TracedDecoder
from tests.traced.networks import WINDOW, tiny_decoder

# Families of different kinds: partial and interleaved rotation, capped scores with windows in
# some layers, sinks with biased experts, a stray window that the mask does not have.
KINDS = ("glm4", "gemma2", "gpt_oss", "olmoe")


@pytest.mark.parametrize("model_type", KINDS)
def test_a_traced_graph_computes_what_transformers_does(model_type: str) -> None:
    """Within 1e-5 of the largest logit: alone, in company, in chunks and in used slots."""
    changes = {"sliding_window": WINDOW} if model_type == "olmoe" else {}
    decoder = tiny_decoder(model_type, **changes)
    parity = check_traced(decoder, trace_traced(decoder))
    assert parity.changed_tokens == 0


def test_layers_may_have_other_numbers_and_sizes_of_heads() -> None:
    """Gemma 4's full layers have fewer and larger heads of keys than those with windows."""
    decoder = tiny_decoder(
        "gemma4_text", num_global_key_value_heads=1, attention_k_eq_v=True, global_head_dim=32
    )
    heads = {(layer.num_kv_heads, layer.key_size) for layer in layers_of(decoder)}
    assert heads == {(2, 16), (1, 32)}
    check_traced(decoder, trace_traced(decoder))


def test_masks_are_read_and_not_taken_from_an_argument() -> None:
    """Olmoe passes a window to its attention that its mask does not have."""
    masks = [layer.mask for layer in layers_of(tiny_decoder("olmoe", sliding_window=WINDOW))]
    assert [mask.window for mask in masks] == [0, 0]
    windows = [layer.mask.window for layer in layers_of(tiny_decoder("gemma2"))]
    assert sorted(windows) == [0, WINDOW]


def test_a_network_without_places_of_tokens_is_refused() -> None:
    with pytest.raises(ExportError, match="BloomForCausalLM takes no position_ids"):
        layers_of(tiny_decoder("bloom"))


def test_an_argument_of_unknown_meaning_is_refused() -> None:
    module, tensor = onnx.ModelProto(), None
    with pytest.raises(ExportError, match="is given tilt, whose meaning is not known"):
        attention(module, tensor, tensor, tensor, tilt=1)  # type: ignore[arg-type]


def test_long_ropes_are_those_of_the_context() -> None:
    """Up to the first context the short factors, beyond it the long ones, for every text."""
    factors = {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    rope = {"rope_type": "longrope", "rope_theta": 100.0, **factors}
    changes: dict[str, Any] = {
        "rope_parameters": {**rope, "original_max_position_embeddings": 32},
        "original_max_position_embeddings": 32,
    }

    def first_frequency(max_positions: int) -> float:
        decoder: TracedDecoder = tiny_decoder("phi3", max_positions=max_positions, **changes)
        return float(decoder.network.model.rotary_emb.inv_freq[0])

    assert first_frequency(32) == pytest.approx(1.0)
    assert first_frequency(160) == pytest.approx(0.5)
