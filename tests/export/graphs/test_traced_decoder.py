"""Decoders traced from transformers' own code; the table of all families is `tests.traced`."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

from export.checks.adapted_decoding import check_adapted
from export.checks.decoding import measure_parity, open_graph, random_rows
from export.checks.traced_decoding import check_traced
from export.errors import ExportError
from export.graphs.adapted_decoder import AdapterPlan
from export.graphs.int8_cache import at_all_places, with_int8_cache
from export.graphs.traced.attention import attention
from export.graphs.traced.decoder import layers_of, trace_traced
from export.graphs.traced.masks import Mask
from export.graphs.traced.prefill import trace_traced_prefill
from export.graphs.traced.products import layers_of_products
from export.graphs.traced.turned import turned_channels
from export.precision.experts import with_rounded_experts
from export.precision.per_token import quantize_rows
from export.precision.samples import largest_values
from export.recipes.decoders import LIMITS
from models.networks.traced import TracedDecoder
from tests.fakes.tiny_gpt import run
from tests.traced.networks import WINDOW, tiny_decoder

# Families of different kinds: partial and interleaved rotation, capped scores with windows in
# some layers, sinks with biased experts, a stray window that the mask does not have.
KINDS = ("glm4", "gemma2", "gpt_oss", "olmoe")
# With states beside the cache: short convolutions, and the scan of Mamba, where nothing attends.
# The gated delta rule is in the tests of faults.
STATES = {
    "lfm2": [(64, 2)],
    "mamba": [(96, 3), (96, 12, 1)] * 2,
}


@cache
def traced(model_type: str) -> tuple[TracedDecoder, onnx.ModelProto]:
    """A network and its graph; not to be changed."""
    changes = {"sliding_window": WINDOW} if model_type == "olmoe" else {}
    decoder = tiny_decoder(model_type, **changes)
    return decoder, trace_traced(decoder)


@pytest.mark.parametrize("model_type", KINDS)
def test_a_traced_graph_computes_what_transformers_does(model_type: str) -> None:
    """Within 1e-5 of the largest logit: alone, in company, in chunks and in used slots."""
    parity = check_traced(*traced(model_type))
    assert parity.changed_tokens == 0


@pytest.mark.parametrize("model_type", STATES)
def test_states_are_read_and_carried_on(model_type: str) -> None:
    """Whole, in chunks of 1, 7 and 16 tokens, in company, and in slots that others used."""
    decoder = tiny_decoder(model_type)
    graph = trace_traced(decoder)
    sizes = [
        tuple(x.dim_value for x in _dims(each)[1:])
        for each in graph.graph.input
        if each.name.startswith("past_state")
    ]
    assert sizes == STATES[model_type]
    assert check_traced(decoder, graph).changed_tokens == 0


def _dims(tensor: onnx.ValueInfoProto) -> Any:
    return tensor.type.tensor_type.shape.dim


def test_a_traced_decoder_takes_its_cache_in_int8_behind_a_graph_for_prompts() -> None:
    """With capped scores and windows, and samples shorter than the context."""
    decoder, graph = traced("gemma2")
    samples = random_rows(decoder.config.vocab_size, [40, 40], 40)
    largest = largest_values(graph, samples)
    size = largest["present.0.key"].shape[-1]
    largest = at_all_places(largest, turned_channels(decoder, size))
    rounded = quantize_rows(with_int8_cache(graph, largest))
    prefill = quantize_rows(trace_traced_prefill(decoder, largest))
    parity = measure_parity(decoder, rounded, is_exact=False, prefill=prefill)
    LIMITS["int8"].check(parity)
    assert parity.max_neighbour_effect == 0
    most = decoder.config.max_positions
    together = open_graph(rounded, most, 3, prefill)
    prompts = random_rows(decoder.config.vocab_size, [most // 2] * 3, most // 2)
    logits_of_all = run(together, 0, prompts, [0] * 3)  # more tokens than there are positions
    for prompt, logits in zip(prompts, logits_of_all, strict=True):
        assert np.array_equal(run(together, 0, [prompt], [0])[0], logits)
        run(together, 1, [prompt[:9]], [0])
        assert np.array_equal(run(together, 1, [prompt[9:]], [9])[0], logits), "in two runs"


def test_channels_that_a_rotation_turns_into_each_other_are_found_by_trial() -> None:
    """Halves of a head, pairs side by side in half of a head, and a quarter of a head."""
    for model_type, expected in (
        ("gemma2", [*range(8, 16), *range(8)]),
        ("glm4", [1, 0, 3, 2, 5, 4, 7, 6, *range(8, 16)]),
        ("gpt_neox", [2, 3, 0, 1, *range(4, 16)]),
    ):
        for partners in turned_channels(tiny_decoder(model_type), 16):
            assert partners.tolist() == expected


def test_sinks_and_a_cache_in_int8_are_refused_together() -> None:
    with pytest.raises(ExportError, match="has no sinks: take the cache in float"):
        trace_traced_prefill(tiny_decoder("gpt_oss"), {})


def test_rows_with_adapters_compute_what_merged_weights_do() -> None:
    decoder, plain = traced("glm4")
    adapted = trace_traced(decoder, AdapterPlan(2, 3, ("query", "contract")))
    check_adapted(decoder, plain, adapted, is_exact=True)
    with pytest.raises(ExportError, match="lora_targets has expand, which this network does not"):
        trace_traced(decoder, AdapterPlan(2, 3, ("expand",)))


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
    with pytest.raises(ExportError, match="BartForCausalLM takes no position_ids"):
        layers_of(tiny_decoder("bart"))


def test_places_that_are_added_to_scores_are_a_channel_of_keys() -> None:
    """BLOOM asks no interface and takes no places: its scores grow with those of keys.

    A slope that is 1 % off is found.
    """
    decoder = tiny_decoder("bloom")
    graph = trace_traced(decoder)
    assert check_traced(decoder, graph).changed_tokens == 0
    (slopes,) = [
        each
        for each in graph.graph.initializer
        if numpy_helper.to_array(each).flatten().tolist() == [1.0, 0.25, 0.0625, 0.015625]
    ]
    slopes.CopyFrom(numpy_helper.from_array(1.01 * numpy_helper.to_array(slopes), slopes.name))
    with pytest.raises(ExportError, match="differs from transformers"):
        check_traced(decoder, graph)


def test_attention_that_is_multiplied_out_is_read_by_trial() -> None:
    """MPT counts places from the end of a text, XGLM has a table of them; RemBERT looks ahead."""
    for model_type, slopes in (("mpt", [0.25, 0.0625, 0.015625, 0.00390625]), ("xglm", None)):
        layer, _ = layers_of(tiny_decoder(model_type))
        assert (layer.num_heads, layer.key_size, layer.mask) == (4, 16, Mask(is_causal=True))
        assert layer.slopes is None if slopes is None else layer.slopes.tolist() == slopes  # type: ignore[union-attr]
    with pytest.raises(ExportError, match="layer 0 looks ahead: its mask is full"):
        layers_of(tiny_decoder("rembert"))


def test_a_network_with_two_answers_of_its_own_is_refused() -> None:
    """Falcon's eager attention adds its places twice, and the other once."""
    with pytest.raises(ExportError, match="eager than by sdpa: they differ by"):
        layers_of(tiny_decoder("falcon", alibi=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda scores: 20 * torch.tanh(scores / 20), "changes scores by more than a factor"),
        (lambda scores: scores + torch.arange(scores.shape[-1]) ** 2, "what is no slope"),
        (lambda scores: torch.cat([scores, scores[..., :1]], dim=-1), "other scores than those"),
        (
            lambda scores: scores.masked_fill(torch.arange(scores.shape[-1]) == 1, -3e38),
            "is neither",
        ),
    ],
)
def test_scores_that_no_node_has_are_refused(
    change: Callable[[torch.Tensor], torch.Tensor], message: str
) -> None:
    """A cap, places that are squared, sinks, and a token that no other sees."""

    def run(num_tokens: int) -> torch.Tensor:
        states = torch.randn(1, 2, num_tokens, 8)
        scores = change(states @ states.transpose(-1, -2))
        lowest = torch.finfo(torch.float32).min
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1) > 0, lowest)
        return scores.softmax(dim=-1)[..., :num_tokens] @ states

    with pytest.raises(ExportError, match=message):
        layers_of_products(torch.nn.Identity(), run, 40)
    with pytest.raises(ExportError, match="choose a --context of 2048 or fewer"):
        layers_of_products(torch.nn.Identity(), run, 4_096)


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


def test_experts_in_8_bits_leave_rows_apart() -> None:
    """In float a row's sums depend on its neighbours, which moves what is rounded behind them."""
    decoder = tiny_decoder("qwen3_moe")
    graph = with_rounded_experts(quantize_rows(trace_traced(decoder)))
    assert sum(node.op_type == "QMoE" for node in graph.graph.node) == 2
    LIMITS["int8"].check(measure_parity(decoder, graph, is_exact=False))


def test_experts_whose_sizes_are_no_whole_blocks_stay_in_float() -> None:
    graph = trace_traced(tiny_decoder("qwen3_moe", moe_intermediate_size=24))
    operators = {node.op_type for node in with_rounded_experts(graph).graph.node}
    assert "MoE" in operators
    assert "QMoE" not in operators
