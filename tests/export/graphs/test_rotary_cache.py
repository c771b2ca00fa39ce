"""A cache in int8 of decoders with rotary positions, in the forms that the families have."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from export.checks.decoding import measure_parity, open_graph
from export.exporter import export_any
from export.graphs.cached_decoder import trace_decoder
from export.graphs.gated_layers import turned_channels
from export.graphs.int8_cache import Largest, at_all_places, with_int8_cache
from export.graphs.prefill import trace_prefill
from export.precision.per_token import quantize_rows
from export.precision.samples import largest_values
from export.recipes.decoders import LIMITS
from export.settings import ExportSettings, HeldOut
from models.networks.llama import Llama
from service.contract.files import ModelSource
from service.generation.decoders.decoder import OnnxDecoder
from service.repository.loading import Openers, load_model
from service.settings import Settings
from tests.export.graphs.test_rotary_decoder import FORMS
from tests.fakes.tiny_gpt import MAX_TOKENS, liked_text, random_prompts, run
from tests.fakes.tiny_llama import tiny_llama, tiny_llama_generator

SAMPLES = random_prompts([MAX_TOKENS] * 8, seed=5)
PROMPTS = random_prompts([30, 12, 3, 1])
# Windows of 8, two ropes and norms of heads; softcaps and a layer without a rope; parts of heads.
ROUNDED: dict[str, dict[str, Any]] = {
    "gemma3": FORMS["gemma3"],
    "gemma2 and smollm3": FORMS["gemma2"] | FORMS["smollm3"],
    "phi-4-mini": FORMS["phi-4-mini"],
}


@cache
def traced(form: str) -> tuple[Llama, onnx.ModelProto, Largest]:
    """A network, its graph in float32, and the largest values of its cache; not to be changed."""
    network = tiny_llama(**ROUNDED[form])
    graph = trace_decoder(network)
    return network, graph, largest_values(graph, SAMPLES)


@cache
def traced_prefill(form: str) -> onnx.ModelProto:
    """The graph for prompts of the same network; not to be changed."""
    network, _, largest = traced(form)
    return trace_prefill(network, largest)


@pytest.mark.parametrize("form", ROUNDED)
def test_both_graphs_leave_the_same_in_the_cache_and_answer_as_float32_within_a_bound(
    form: str,
) -> None:
    """Prompts beyond the window, and then a token more from what either graph has left.

    Nothing else is rounded: cached values are within a step, logits within a quarter of their
    spread.
    """
    _, graph, largest = traced(form)
    rounded = with_int8_cache(graph, largest)
    exact, alone = (open_graph(each, MAX_TOKENS, len(PROMPTS)) for each in (graph, rounded))
    beside = open_graph(rounded, MAX_TOKENS, len(PROMPTS), traced_prefill(form))
    pasts = [len(prompt) for prompt in PROMPTS]
    for rows, num_past in ((PROMPTS, [0] * len(PROMPTS)), ([[7]] * len(PROMPTS), pasts)):
        expected = run(exact, 0, rows, num_past)
        for decoder in (alone, beside):
            off = np.abs(run(decoder, 0, rows, num_past) - expected).max()
            assert off < 0.25 * expected.std()
    for one, other in zip(alone._buffers, beside._buffers, strict=True):
        for slot, past in enumerate(pasts):
            steps = one[slot, :, : past + 1].astype(int) - other[slot, :, : past + 1]
            assert np.abs(steps).max() <= 1
            assert (steps != 0).mean() < 0.01


@pytest.mark.parametrize("form", ROUNDED)
def test_prompts_together_may_have_more_tokens_than_there_are_positions(form: str) -> None:
    """Three of 40 tokens where a sequence has at most 96: each as it is alone, bit for bit."""
    _, graph, largest = traced(form)
    prompts = random_prompts([40] * 3, seed=6)
    decoder = open_graph(with_int8_cache(graph, largest), MAX_TOKENS, 3, traced_prefill(form))
    together = run(decoder, 0, prompts, [0] * 3)
    for prompt, logits in zip(prompts, together, strict=True):
        assert np.array_equal(run(decoder, 0, [prompt], [0])[0], logits)
        run(decoder, 1, [prompt[:16]], [0])
        assert np.array_equal(run(decoder, 1, [prompt[16:]], [16])[0], logits), "in two runs"


def test_decoding_goes_on_behind_the_prompts_graph_with_rounded_weights() -> None:
    network, graph, largest = traced("gemma3")
    decoder = quantize_rows(with_int8_cache(graph, largest))
    prefill = quantize_rows(traced_prefill("gemma3"))
    parity = measure_parity(network, decoder, is_exact=False, prefill=prefill)
    LIMITS["int8"].check(parity)
    assert parity.max_neighbour_effect == 0


def test_keys_at_places_that_no_sample_reached_are_within_their_bounds() -> None:
    """Samples of 12 tokens, and keys at up to 96 places of the same tokens in another order."""
    network, graph, _ = traced("phi-4-mini")
    short = [token for row in SAMPLES for token in row]
    of_short = largest_values(graph, [short[start : start + 12] for start in range(0, 96, 12)])
    at_all = at_all_places(of_short, turned_channels(network))
    found = largest_values(graph, [[token] * MAX_TOKENS for token in short[:12]])
    name = "present.0.key"  # of the first layer: keys of later ones depend on what is before
    assert (found[name] > 1.01 * of_short[name]).any(), "a pair turned further"
    assert (found[name] <= at_all[name] * 1.000_01).all()
    assert np.array_equal(at_all["present.0.value"], of_short["present.0.value"])


def test_export_measures_what_it_costs_and_the_server_serves_both_graphs(tmp_path: Path) -> None:
    """The calibration is shorter than the context; a slot takes a quarter of the memory."""
    text = liked_text(tiny_llama(), num_windows=2)
    calibration = tuple(text[start : start + 9] for start in range(0, 72, 9))
    settings = ExportSettings(
        "tale",
        tmp_path,
        "int8",
        kv_cache="int8",
        calibration=calibration,
        max_perplexity_rise=1.0,
    )
    folder, manifest = export_any(tiny_llama_generator(), settings, HeldOut(text=text))
    assert (manifest.precision, manifest.kv_cache) == ("int8", "int8")
    assert 0.9 < manifest.perplexity["exported"] / manifest.perplexity["float"] < 1.5
    assert manifest.perplexity["exported"] != manifest.perplexity["float"]
    assert {path.name for path in folder.glob("*.onnx")} == {"model.onnx", "model.prefill.onnx"}
    (version,) = load_model(ModelSource.of(tmp_path, "tale"), Settings(), Openers()).versions
    assert version.decoder is not None
    decoder = version.decoder.decoder
    assert isinstance(decoder, OnnxDecoder)
    assert decoder.shape.num_bytes(MAX_TOKENS) == 2 * 3 * 2 * 16 * MAX_TOKENS
    assert not decoder.pads_prompts
