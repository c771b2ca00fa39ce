"""A cache in int8: what is rounded, what it takes, and prompts by a graph of their own."""
# ruff: noqa: N806 - suffixes are array layouts: H heads, T tokens, Dh head size

import asyncio
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

from export.checks.decoding import measure_parity, open_graph
from export.errors import ExportError
from export.exporter import export_any
from export.graphs.files import copy_of
from export.graphs.int8_cache import MAX_STEP, scales_of, with_int8_cache
from export.graphs.prefill import trace_prefill
from export.precision.per_token import quantize_rows
from export.precision.samples import largest_values
from export.recipes.decoders import LIMITS
from export.settings import ExportSettings, HeldOut
from models.checkpoints.checkpoint import Checkpoint
from service.contract.files import ModelSource
from service.contract.manifest import Precision
from service.errors import LoadError, ModelFailed
from service.generation.decoders.decoder import OnnxDecoder
from service.generation.engine import GenerationEngine
from service.repository.loading import Openers, load_model
from service.settings import Settings
from tests.fakes.generation import RecordingObserver, ask_all, draft_eagerly, engine_on, request_of
from tests.fakes.processor import in_blocks
from tests.fakes.tiny import tiny_classifier
from tests.fakes.tiny_gpt import (
    HEAD_SIZE,
    MAX_TOKENS,
    NUM_HEADS,
    NUM_LAYERS,
    VOCAB_SIZE,
    liked_text,
    random_prompts,
    run,
    tiny_generator,
    tiny_gpt,
    tiny_graph,
    torch_logits,
)
from tests.fakes.tiny_transformer import tiny_writer

SAMPLES = random_prompts([MAX_TOKENS] * 24, seed=5)
PROMPTS = random_prompts([30, 12, 3, 1])


def largest() -> dict[str, np.ndarray]:
    return largest_values(tiny_graph(), SAMPLES)


def test_every_channel_of_every_layer_is_measured_over_all_samples() -> None:
    found = largest()
    names = [f"present.{i}.{part}" for i in range(NUM_LAYERS) for part in ("key", "value")]
    assert list(found) == names
    assert {values_HDh.shape for values_HDh in found.values()} == {(NUM_HEADS, HEAD_SIZE)}
    of_two = [largest_values(tiny_graph(), [sample]) for sample in SAMPLES[:2]]
    both = largest_values(tiny_graph(), SAMPLES[:2])
    for name in names:
        assert np.array_equal(both[name], np.maximum(of_two[0][name], of_two[1][name]))
        assert (found[name] >= both[name]).all()


def test_largest_values_are_measured_piece_by_piece_with_progress() -> None:
    """The same as of the whole graph, with the weights of one node at a time."""
    told: list[tuple[int, int]] = []
    whole = largest_values(tiny_graph(), SAMPLES[:3], lambda *run: told.append(run))
    assert told == [(1, 3), (2, 3), (3, 3)]
    told.clear()
    in_turn = largest_values(tiny_graph(), SAMPLES[:3], lambda *run: told.append(run), max_bytes=1)
    assert told == [(run + 1, len(told)) for run in range(len(told))]
    assert len(told) > 3 * NUM_LAYERS
    for name, values_HDh in whole.items():
        np.testing.assert_allclose(in_turn[name], values_HDh, rtol=1e-5)


def test_cached_values_are_those_of_float32_rounded_to_their_channels_scale() -> None:
    """Keys and values of a prompt, within half a step; the first layer's, before errors add up."""
    scales = largest()
    exact = open_graph(tiny_graph(), MAX_TOKENS, num_slots=1)
    small = open_graph(with_int8_cache(tiny_graph(), scales), MAX_TOKENS, num_slots=1)
    for decoder in (exact, small):
        run(decoder, 0, PROMPTS[:1], [0])
    for part in (0, 1):
        wanted_HTDh = exact._buffers[part][0, :, :30]
        found_HTDh = small._buffers[part][0, :, :30]
        assert found_HTDh.dtype == np.int8
        assert np.abs(found_HTDh.astype(int)).max() > MAX_STEP / 4, "the range is used"
        name = ("present.0.key", "present.0.value")[part]
        step_H1Dh = scales[name][:, None, :] / MAX_STEP
        off = np.abs(found_HTDh * step_H1Dh - wanted_HTDh) / step_H1Dh
        is_within = np.abs(wanted_HTDh) <= scales[name][:, None, :]
        assert off[is_within].max() <= 0.51
        assert np.abs(found_HTDh[~is_within].astype(int)).min(initial=MAX_STEP) == MAX_STEP, (
            "cut off"
        )


def test_a_channel_that_samples_leave_at_zero_has_a_scale_all_the_same() -> None:
    """As of a channel that is always zero: by zero nothing is divided."""
    zeros = {name: np.zeros_like(values) for name, values in largest().items()}
    assert all((scale_HDh > 0).all() for scale_HDh in scales_of(zeros).values())
    prefill = quantize_rows(trace_prefill(tiny_gpt(), zeros))
    graph = with_int8_cache(tiny_graph("int8"), zeros)
    decoder = open_graph(graph, MAX_TOKENS, 1, prefill)
    assert np.isfinite(run(decoder, 0, PROMPTS[:1], [0])).all()
    assert np.isfinite(run(decoder, 0, [[7]], [len(PROMPTS[0])])).all()


def test_quarter_of_the_memory() -> None:
    exact = open_graph(tiny_graph(), MAX_TOKENS, num_slots=1)
    small = open_graph(with_int8_cache(tiny_graph(), largest()), MAX_TOKENS, num_slots=1)
    assert 4 * small.shape.num_bytes(MAX_TOKENS) == exact.shape.num_bytes(MAX_TOKENS)


def test_the_graph_given_stays_as_it_was() -> None:
    before = tiny_graph("int8").SerializeToString()
    with_int8_cache(tiny_graph("int8"), largest())
    assert tiny_graph("int8").SerializeToString() == before


def test_decoding_equals_recomputing_and_neighbours_change_nothing() -> None:
    """As the export checks it: from the cache, in used slots and in chunks."""
    parity = measure_parity(
        tiny_gpt(), with_int8_cache(tiny_graph("int8"), largest()), is_exact=False
    )
    LIMITS["int8"].check(parity)
    assert parity.max_neighbour_effect == 0


@cache
def graphs() -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """The tiny decoder in int8 with an int8 cache, and the graph for its prompts; not changed."""
    scales = largest()
    prefill = quantize_rows(trace_prefill(tiny_gpt(), scales))
    return with_int8_cache(tiny_graph("int8"), scales), prefill


def decoder_of(*, has_prefill: bool = True, num_slots: int = 4) -> OnnxDecoder:
    graph, prefill = graphs()
    return open_graph(graph, MAX_TOKENS, num_slots, prefill if has_prefill else None)


def test_prompts_graph_leaves_in_the_cache_what_the_decoder_would() -> None:
    """Of rows at once: within a step of a channel's scale, the first layer's to the bit."""
    found, wanted = decoder_of(), decoder_of(has_prefill=False)
    for decoder in (found, wanted):
        run(decoder, 0, PROMPTS, [0] * len(PROMPTS))
    for index, (one, other) in enumerate(zip(found._buffers, wanted._buffers, strict=True)):
        assert one.any()
        for slot, prompt in enumerate(PROMPTS):
            off = one[slot, :, : len(prompt)].astype(int) - other[slot, :, : len(prompt)]
            assert np.abs(off).max() <= (1 if index > 1 else 0)
            assert (off != 0).mean() < 0.05, "most are equal"
            assert not one[slot, :, len(prompt) :].any()


def test_prompts_graph_gives_each_row_what_it_gives_it_alone() -> None:
    """Bit for bit: logits, and what is cached; also into slots that others used."""
    together = decoder_of()
    run(together, 0, random_prompts([40] * 4, seed=3), [0] * 4)
    logits_BV = run(together, 0, PROMPTS, [0] * len(PROMPTS))
    for slot, prompt in enumerate(PROMPTS):
        alone = decoder_of(num_slots=1)
        assert np.array_equal(run(alone, 0, [prompt], [0])[0], logits_BV[slot])
        for one, other in zip(alone._buffers, together._buffers, strict=True):
            assert np.array_equal(one[0, :, : len(prompt)], other[slot, :, : len(prompt)])


def test_a_prompt_leaves_the_same_bits_wherever_it_is_cut() -> None:
    """Logits, and what is cached: in two runs, and in parts of one that is longer than those."""
    (ids,) = random_prompts([70], seed=4)
    whole = decoder_of(num_slots=1)
    expected = run(whole, 0, [ids], [0]).copy()
    for cut in (24, 33, 46, 70):
        decoder = decoder_of(num_slots=1)
        decoder.max_part = MAX_TOKENS if cut < len(ids) else 20
        logits = run(decoder, 0, [ids[:cut]], [0])
        if cut < len(ids):
            logits = run(decoder, 0, [ids[cut:]], [cut])
        assert np.array_equal(logits, expected)
        for one, other in zip(whole._buffers, decoder._buffers, strict=True):
            assert np.array_equal(one[:, :, : len(ids)], other[:, :, : len(ids)])


def test_prompts_longer_than_a_part_run_alone_with_the_same_bits() -> None:
    together, apart = decoder_of(), decoder_of()
    apart.max_part = 9
    logits_of_all = run(together, 0, PROMPTS, [0] * len(PROMPTS)).copy()
    assert np.array_equal(run(apart, 0, PROMPTS, [0] * len(PROMPTS)), logits_of_all)


def test_several_rows_that_go_on_from_pasts_are_refused_and_not_computed_as_if_from_one() -> None:
    """No run of the scheduler has them: attention takes one row behind a past."""
    with pytest.raises(ModelFailed):
        run(decoder_of(), 0, random_prompts([30, 30], seed=4), [20, 30])


def test_a_graph_for_prompts_without_a_past_is_served_as_it_was() -> None:
    """As older versions exported it: what goes on from a past is the decoder's own graph's."""
    graph, prefill = graphs()
    older = copy_of(prefill)
    inputs = [each for each in older.graph.input if each.name != "past"]
    del older.graph.input[:]
    older.graph.input.extend(inputs)
    heads = 2 * NUM_LAYERS * NUM_HEADS
    nothing = np.zeros((1, heads, 0, HEAD_SIZE), np.int8)
    older.graph.initializer.append(numpy_helper.from_array(nothing, "past"))
    (ids,) = random_prompts([70], seed=4)
    decoder, alone = open_graph(graph, MAX_TOKENS, 1, older), decoder_of(has_prefill=False)
    assert np.array_equal(run(decoder, 0, [ids], [0]), run(decoder_of(), 0, [ids], [0]))
    for slot_of in (decoder, alone):
        for buffer in slot_of._buffers:
            buffer[0, :, :70] = 3
    assert np.array_equal(run(decoder, 0, [ids[:30]], [40]).copy(), run(alone, 0, [ids[:30]], [40]))


def test_pieces_of_a_slot_that_was_overwritten_come_back_to_the_bit() -> None:
    """In int8, from the third slot into the first: 64 tokens, and logits of what follows."""
    ids, other = random_prompts([70, 70], seed=4)
    decoder = decoder_of()
    run(decoder, 2, [ids], [0])
    wanted = [buffer[2, :, :64].copy() for buffer in decoder._buffers]
    logits = run(decoder, 2, [ids[64:]], [64])
    pieces = decoder.prefix_memory(2**20)
    assert pieces is not None
    assert pieces.piece_bytes == 32 * 2 * NUM_LAYERS * NUM_HEADS * HEAD_SIZE
    for place in range(2):
        pieces.write(place + 3, 2, place * 32)
    run(decoder, 0, [other] * 3, [0] * 3)
    for place in range(2):
        pieces.read(place + 3, 0, place * 32)
    for one, buffer in zip(wanted, decoder._buffers, strict=True):
        assert np.array_equal(one, buffer[0, :, :64])
    assert np.array_equal(run(decoder, 0, [ids[64:]], [64]), logits)
    assert decoder.prefix_memory(pieces.piece_bytes - 1) is None


def test_decoding_goes_on_behind_the_prompts_graph() -> None:
    """Greedy tokens of rows, and a prompt in chunks, of which the decoder takes short ones."""
    parity = measure_parity(tiny_gpt(), graphs()[0], is_exact=False, prefill=graphs()[1])
    LIMITS["int8"].check(parity)
    assert parity.max_neighbour_effect == 0
    assert parity.changed_tokens < 0.05


async def test_a_prompt_is_scored_by_the_decoder_s_graph_beside_one_for_prompts() -> None:
    """The graph for prompts gives last logits only; the other scores, within int8's rounding."""
    (ids, *_) = random_prompts([60], seed=8)
    decoder = decoder_of()
    async with engine_on(decoder, max_scored_tokens=decoder.max_logits_per_row) as engine:
        for _ in range(2):  # the second time in a slot that was used
            request = request_of(ids, prompt_logprobs=0, max_tokens=1)
            async with engine.generate(request) as generation:
                async for _ in generation:
                    pass
            scores = generation.sequences[0].prompt_logprobs
            logits_SV = torch.from_numpy(torch_logits(tiny_gpt(), ids))
            expected_SV = torch.log_softmax(logits_SV, dim=1).numpy()
            off = [
                abs(each.logprob - expected_SV[place, each.token_id])
                for place, each in enumerate(scores)
            ]
            assert len(off) == 59
            assert np.mean(off) < 0.1  # 0.04 on the processor that this was written on


def test_a_graph_of_another_network_is_refused() -> None:
    """Named with what it gives: of one layer for a decoder of two."""
    scales = {name: values for name, values in largest().items() if name.startswith("present.0.")}
    other = trace_prefill(tiny_gpt(num_layers=1), scales)
    with pytest.raises(
        LoadError, match=r"has 'past' as int8 \[-1, 8, -1, 16\], expected int8 \[-1, 16,"
    ):
        open_graph(graphs()[0], MAX_TOKENS, 1, other)
    with pytest.raises(LoadError, match="has 'attention_mask' as nothing, expected int64"):
        open_graph(graphs()[0], MAX_TOKENS, 1, tiny_graph())


def test_several_logits_of_a_row_without_a_past_are_the_decoders_own() -> None:
    """The graph for prompts gives one per row; a request for more gets as many."""
    found, wanted = (
        each.run(0, [np.array(PROMPTS[0])], [0], num_logits=3).whole()
        for each in (decoder_of(), decoder_of(has_prefill=False))
    )
    assert found.shape == (3, VOCAB_SIZE)
    assert np.array_equal(found, wanted)


def test_run_that_fails_leaves_all_slots_as_they_were() -> None:
    decoder = decoder_of()
    run(decoder, 0, PROMPTS, [0] * len(PROMPTS))
    before = [buffer.copy() for buffer in decoder._buffers]
    with pytest.raises(ModelFailed):
        run(decoder, 0, [[1, 2, VOCAB_SIZE + 7], [3, 4]], [0, 0])
    for buffer, old in zip(decoder._buffers, before, strict=True):
        assert np.array_equal(buffer, old)


def test_slots_are_copied_as_they_are() -> None:
    """A copied prefix goes on with the same logits, bit for bit."""
    decoder = open_graph(with_int8_cache(tiny_graph("int8"), largest()), MAX_TOKENS, num_slots=2)
    run(decoder, 0, PROMPTS[:1], [0])
    decoder.copy(0, 1, 30)
    one, other = (run(decoder, slot, [[7]], [30]) for slot in (0, 1))
    assert np.array_equal(one, other)


def test_export_writes_it_beside_float32_with_what_it_costs(tmp_path: Path) -> None:
    """int8 has four times the slots of float32 in the same memory, and its perplexity is told."""
    text = liked_text(tiny_gpt(), num_windows=4)
    calibration = tuple(liked_text(tiny_gpt(), 16)[i : i + 90] for i in range(0, 1_440, 90))
    settings = ExportSettings(
        "tale", tmp_path, "auto", kv_cache="int8", calibration=calibration, max_perplexity_rise=1.0
    )
    told: list[str] = []
    folder, manifest = export_any(tiny_generator(), settings, HeldOut(text=text), told.append)
    assert manifest.kinds == ("fp32", "int8"), manifest.left_out
    assert "measuring keys and values: 15 of 15 parts of samples" in told
    for once in ("tracing the graph", f"measuring PyTorch's perplexity on {4 * MAX_TOKENS} tokens"):
        assert told.count(once) == 1, "both precisions share it"
    assert (manifest.kv_cache, manifest.of_graph("model.int8.onnx").kv_cache) == ("", "int8")
    slots = {}
    for precision in manifest.kinds:
        chosen = Settings(precision=precision, kv_cache_bytes=2**20)
        (version,) = load_model(ModelSource.of(tmp_path, "tale"), chosen, Openers()).versions
        assert version.decoder is not None
        decoder = version.decoder.decoder
        assert isinstance(decoder, OnnxDecoder)
        assert decoder.pads_prompts == (precision == "fp32")
        assert ("tokens in int8 on cpu" in version.description) == (precision == "int8")
        slots[precision] = decoder.num_slots
    assert slots["int8"] // slots["fp32"] in (4, 5)
    assert {path.name for path in folder.iterdir()} == {
        *("model.onnx", "model.int8.onnx", "model.int8.prefill.onnx"),
        *("manifest.json", "tokenizer.json"),
    }
    int8 = manifest.of_graph("model.int8.onnx")
    assert int8.perplexity["exported"] < 1.1 * int8.perplexity["float"]


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_what_does_not_round_keeps_its_cache(precision: str, tmp_path: Path) -> None:
    settings = ExportSettings("tale", tmp_path, precision, kv_cache="int8")  # type: ignore[arg-type]
    with pytest.raises(ExportError, match=f"precision is {precision}, expected auto, int8,"):
        export_any(tiny_generator(), settings)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("precision", ["int8", in_blocks("int4-weights")])
def test_alone_it_is_beside_the_models_graph(precision: Precision, tmp_path: Path) -> None:
    """Without it the model is not loaded: prompts would be slow without a reason."""
    settings = ExportSettings("tale", tmp_path, precision, kv_cache="int8")
    folder, manifest = export_any(tiny_generator(), settings)
    assert (manifest.precision, manifest.kv_cache) == (precision, "int8")
    assert {path.name for path in folder.glob("*.onnx")} == {"model.onnx", "model.prefill.onnx"}
    load_model(ModelSource.of(tmp_path, "tale"), Settings(), Openers())
    (folder / "model.prefill.onnx").unlink()
    with pytest.raises(LoadError, match=r"model\.prefill\.onnx is missing: the manifest says"):
        load_model(ModelSource.of(tmp_path, "tale"), Settings(), Openers())


def test_texts_without_a_token_calibrate_nothing(tmp_path: Path) -> None:
    settings = ExportSettings("tale", tmp_path, "int8", kv_cache="int8", calibration=("",) * 8)
    with pytest.raises(ExportError, match="the texts to calibrate on have no tokens"):
        export_any(tiny_generator(), settings)


async def test_engine_serves_the_same_with_drafts_and_copied_prefixes() -> None:
    """12 requests with prompts in common, at once and with drafts: texts as one by one."""
    prompts = [[*PROMPTS[0][:20], *prompt] for prompt in random_prompts([3, 9, 1, 20], seed=9)]

    async def said(engine: GenerationEngine, prompt: list[int], max_tokens: int = 12) -> str:
        (answer,) = await ask_all(engine, request_of(prompt, max_tokens=max_tokens))
        return answer.text

    wanted = []
    for prompt in prompts:
        async with engine_on(decoder_of(), can_reuse_prefixes=False) as engine:
            wanted.append(await said(engine, prompt))
    decoder = decoder_of(num_slots=8)
    limits: dict[str, Any] = {"max_draft_tokens": 3, "pads_prompts": False}
    async with engine_on(decoder, observer=(seen := RecordingObserver()), **limits) as engine:
        draft_eagerly(engine)
        found = await asyncio.gather(*(said(engine, prompt) for prompt in prompts * 3))
        await said(engine, PROMPTS[0][:12] * 3, max_tokens=50)
    assert any(sequence.num_reused_tokens for sequence in seen.ended)
    assert any(step.num_drafted for step in seen.steps)
    agreeing = sum(one == other for one, other in zip(found, wanted * 3, strict=True))
    assert agreeing >= 10, "a copied prefix may round a tie otherwise"


@pytest.mark.parametrize(
    ("checkpoint", "task"),
    [(tiny_classifier(), None), (tiny_writer(), None), (tiny_generator(), "attention")],
    ids=["classifier", "encoder-decoder", "attention"],
)
def test_networks_without_such_a_cache_refuse_it(
    checkpoint: Checkpoint, task: str | None, tmp_path: Path
) -> None:
    settings = ExportSettings("mood", tmp_path, "int8", kv_cache="int8")
    with pytest.raises(ExportError, match="kv_cache is int8, which is for decoders"):
        export_any(checkpoint, settings, task=task)
    assert not [*tmp_path.iterdir()]
