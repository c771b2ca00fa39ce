"""Adapters beside a decoder's own weights: each row is what merged weights compute."""
# ruff: noqa: N806 - suffixes are array layouts: B rows, V vocabulary

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from export.checks.adapted_decoding import check_adapted, merged, random_adapter
from export.errors import ExportError
from export.exporter import export_any
from export.graphs.adapted_decoder import AdapterPlan, trace_adapted
from export.graphs.cached_decoder import trace_decoder
from export.graphs.graph import open_session
from export.precision.per_token import quantize_rows
from export.settings import ExportSettings
from service.contract.adapter import Adapter, Factors
from service.errors import LoadError
from service.generation.decoders.adapter_buffers import AdapterBuffers, AdapterShape
from service.generation.decoders.decoder import OnnxDecoder
from service.generation.sequence import GenerationRequest
from tests.fakes.generation import ask_all, engine_on, now
from tests.fakes.tiny_gpt import tiny_graph, torch_logits
from tests.fakes.tiny_llama import tiny_llama, tiny_llama_generator

PLAN = AdapterPlan(4, 4, ("query", "value", "output", "gate", "contract"))
NETWORK = tiny_llama(num_layers=2, query_key_norm="head")
NUM_ROWS, NUM_STEPS = 16, 6


@pytest.fixture(scope="module")
def plain() -> onnx.ModelProto:
    return trace_decoder(NETWORK)


@pytest.fixture(scope="module")
def adapted() -> onnx.ModelProto:
    return trace_adapted(NETWORK, PLAN)


@pytest.fixture
def decoder(plain: onnx.ModelProto, adapted: onnx.ModelProto) -> OnnxDecoder:
    return OnnxDecoder(
        open_session(plain),
        num_slots=NUM_ROWS,
        max_tokens=64,
        max_rows=NUM_ROWS,
        adapted=open_session(adapted),
    )


def buffers_of(decoder: OnnxDecoder) -> AdapterBuffers:
    assert decoder.adapters is not None
    return decoder.adapters


def four_adapters(shape: AdapterShape) -> list[Adapter]:
    """The first three have ranks below the graph's, and the last one changes two products only."""
    adapters = [random_adapter(NETWORK, shape, seed) for seed in range(4)]
    cut = [
        Adapter("", {n: Factors(f.a[:, :r], f.b[:r]) for n, f in adapters[r].factors.items()})
        for r in (1, 2, 3)
    ]
    few = dict(list(adapters[0].factors.items())[:2])
    return [*cut, Adapter("", few)]


def test_four_adapters_and_the_base_in_one_batch_equal_merged_weights(decoder: OnnxDecoder) -> None:
    """16 rows of prompts of one length, then greedy steps: logits within 1e-4, tokens equal."""
    buffers = buffers_of(decoder)
    adapters = four_adapters(buffers.shape)
    networks = [NETWORK, *(merged(NETWORK, adapter) for adapter in adapters)]
    for place, adapter in enumerate(adapters, start=1):
        buffers.write(place, adapter)
    rows = np.random.default_rng(0).integers(257, size=(NUM_ROWS, 7)).tolist()
    places = [row % 5 for row in range(NUM_ROWS)]
    new, past = rows, [0] * NUM_ROWS
    for _ in range(NUM_STEPS):
        arrays = [np.array(ids) for ids in new]
        logits_BV = decoder.run(0, arrays, past, 1, places).whole().copy()
        past = [len(row) for row in rows]
        for row, place, logits_V in zip(rows, places, logits_BV, strict=True):
            expected_V = torch_logits(networks[place], row)[-1]
            assert np.abs(logits_V - expected_V).max() < 1e-4
            assert logits_V.argmax() == expected_V.argmax()
            row.append(int(logits_V.argmax()))
        new = [row[-1:] for row in rows]


async def test_an_engine_generates_what_merged_weights_do(decoder: OnnxDecoder) -> None:
    """Two adapters and the base, with drafts, in chunks of 4 tokens, and from a copied prefix."""
    shape = buffers_of(decoder).shape
    adapters = [None, *four_adapters(shape)[:2]]
    prompt = "abcabcabcabcabcabcabcabc"

    def request(adapter: Adapter | None) -> GenerationRequest:
        return replace(
            now(prompt, max_tokens=12),
            adapter=adapter,
            namespace=str(adapter.number) if adapter else "",
        )

    async with engine_on(decoder, max_prefill_tokens=4, max_draft_tokens=4) as engine:
        for _ in range(2):
            answers = await asyncio.gather(*(ask_all(engine, request(each)) for each in adapters))
            for adapter, (answer,) in zip(adapters, answers, strict=True):
                network = merged(NETWORK, adapter) if adapter else NETWORK
                ids = list(prompt.encode())
                for token_id in answer.token_ids:
                    assert token_id == torch_logits(network, ids)[-1].argmax()
                    ids.append(token_id)


def test_an_adapter_that_overflows_harms_no_neighbour(decoder: OnnxDecoder) -> None:
    buffers = buffers_of(decoder)
    shape = buffers.shape
    huge = {
        module: Factors(np.full((i, 1), 3e38, np.float32), np.full((1, o), 3e38, np.float32))
        for module, (i, o) in shape.modules.items()
    }
    rows = [np.arange(5), np.arange(5)]
    expected_BV = decoder.run(0, rows, [0, 0]).whole().copy()
    buffers.write(1, Adapter("", huge))
    logits_BV = decoder.run(0, rows, [0, 0], 1, (1, 0)).whole()
    assert not np.isfinite(logits_BV[0]).all()
    assert np.abs(logits_BV[1] - expected_BV[1]).max() < 1e-4


def test_what_a_place_had_before_is_gone(decoder: OnnxDecoder) -> None:
    buffers = buffers_of(decoder)
    few = four_adapters(buffers.shape)[3]
    rows = [np.arange(5)]
    buffers.write(1, few)
    expected = decoder.run(0, rows, [0], 1, (1,)).whole().copy()
    buffers.write(1, random_adapter(NETWORK, buffers.shape, 9))
    buffers.write(1, few)
    assert np.array_equal(decoder.run(0, rows, [0], 1, (1,)).whole(), expected)


def test_rounded_graphs_agree_where_there_is_no_adapter(
    plain: onnx.ModelProto, adapted: onnx.ModelProto
) -> None:
    rounded = quantize_rows(plain), quantize_rows(adapted)
    check_adapted(NETWORK, *rounded, is_exact=False)
    with pytest.raises(ExportError, match=r"differs by .* from the graph without adapters"):
        check_adapted(NETWORK, plain, rounded[1], is_exact=False)


def test_a_rounded_row_with_an_adapter_depends_on_no_other_row(
    plain: onnx.ModelProto, adapted: onnx.ModelProto
) -> None:
    """The fault: one step of rounding for all rows of a batch."""

    def together(graph: onnx.ModelProto) -> onnx.ModelProto:
        rounded = quantize_rows(graph)
        rounded.graph.initializer.append(numpy_helper.from_array(np.array([0, 1, 2]), "batch"))
        *inner, _ = [node for node in rounded.graph.node if node.op_type == "ReduceMax"]
        for node in inner:  # the last is of single tokens, which have no such axes
            node.input[1] = "batch"
        return rounded

    with pytest.raises(ExportError, match="from the same row alone"):
        check_adapted(NETWORK, together(plain), together(adapted), is_exact=False)


def test_a_graph_of_another_decoder_is_refused(adapted: onnx.ModelProto) -> None:
    with pytest.raises(LoadError, match="the graph with adapters is of DecoderShape"):
        OnnxDecoder(
            open_session(tiny_graph()),
            num_slots=2,
            max_tokens=64,
            max_rows=2,
            adapted=open_session(adapted),
        )
    with pytest.raises(LoadError, match="a graph with adapters takes adapter_mask"):
        AdapterShape.of(open_session(tiny_graph()).signature)


REFUSED = [
    ({"target": "cuda"}, "are for the CPU"),
    ({"kv_cache": "int8", "precision": "int8"}, "kv_cache is int8"),
    ({"precision": "int4-weights"}, "take int8-weights"),
    ({"lora_targets": "query,rope"}, "lora_targets has 'rope', expected some of query"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_a_form_that_takes_no_adapters_is_refused(
    changes: dict[str, str], message: str, tmp_path: Path
) -> None:
    settings = ExportSettings(name="tiny", repository=tmp_path, lora_rank=2, **changes)  # type: ignore[arg-type]
    with pytest.raises(ExportError, match=message):
        export_any(tiny_llama_generator(), settings)
    assert not list(tmp_path.iterdir())
