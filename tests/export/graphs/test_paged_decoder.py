"""The decoder's graph over blocks: ONNX's reference evaluator with the operator in NumPy."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

from export.checks.paged_decoding import PagedAttention, check_paged
from export.errors import ExportError
from export.graphs.paged_decoder import INPUTS, trace_paged_decoder
from service.contract.manifest import Precision
from service.generation.decoders.decoder_interface import PagedDecoder
from service.generation.decoders.paged_decoder import BOUNDS
from service.generation.decoders.shape import cache_names
from service.generation.decoders.step_graphs import bounds_of
from service.generation.sequence import Sequence
from service.generation.steps.packed_scheduler import PackedInputs
from service.generation.steps.scheduler import SchedulerLimits
from service.records import FinishReason
from tests.fakes.generation import engine_on, read, request_of, within_patience
from tests.fakes.tiny_gpt import (
    HEAD_SIZE,
    MAX_TOKENS,
    NUM_HEADS,
    NUM_LAYERS,
    VOCAB_SIZE,
    random_prompts,
    tiny_gpt,
    torch_logits,
)

TOLERANCE = 1e-4
NUM_BLOCKS, BLOCK_SIZE, MAX_ROWS = 40, 8, 5


class GraphDecoder(PagedDecoder):
    """The graph and its blocks, as the engine takes a decoder."""

    num_blocks, block_size, max_rows = NUM_BLOCKS, BLOCK_SIZE, MAX_ROWS
    max_tokens, vocab_size = MAX_TOKENS, VOCAB_SIZE

    def __init__(self, model: onnx.ModelProto) -> None:
        self._evaluator = ReferenceEvaluator(model, new_ops=[PagedAttention])
        sizes = (NUM_BLOCKS, BLOCK_SIZE, NUM_HEADS, HEAD_SIZE)
        self._names = cache_names(NUM_LAYERS)
        self._caches = {past: np.full(sizes, np.nan, np.float32) for past, _ in self._names}

    def copy(self, source: int, target: int, num_tokens: int) -> None:
        for cache in self._caches.values():
            cache[target, :num_tokens] = cache[source, :num_tokens]

    def run(self, inputs: PackedInputs) -> np.ndarray:
        bounds = bounds_of(inputs)
        known = {
            BOUNDS: np.array((bounds.new_tokens, bounds.tokens, bounds.least_tokens), np.int32)
        }
        named: dict[str, np.ndarray] = {
            name: known[name] if name in known else getattr(inputs, name) for name in INPUTS
        }
        logits, *presents = self._evaluator.run(None, named | self._caches)
        for (past, _), present in zip(self._names, presents, strict=True):
            self._caches[past] = present
        return np.asarray(logits)


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return trace_paged_decoder(tiny_gpt(), precision="fp32")


@pytest.mark.parametrize(
    ("precision", "kind"), [("fp16", TensorProto.FLOAT16), ("bf16", TensorProto.BFLOAT16)]
)
def test_the_graph_takes_and_gives_what_it_promises(precision: Precision, kind: int) -> None:
    graph = trace_paged_decoder(tiny_gpt(), precision=precision).graph
    found = {
        value.name: (
            value.type.tensor_type.elem_type,
            [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim],
        )
        for value in (*graph.input, *graph.output)
    }
    cache = (kind, ["blocks", "block_size", NUM_HEADS, HEAD_SIZE])
    assert found == {
        "input_ids": (TensorProto.INT64, ["tokens"]),
        "position_ids": (TensorProto.INT64, ["tokens"]),
        "cumulative_sequence_length": (TensorProto.INT32, ["rows + 1"]),
        "past_seqlens": (TensorProto.INT32, ["rows"]),
        "block_table": (TensorProto.INT32, ["rows", "row_blocks"]),
        "attention_metadata": (TensorProto.INT32, [3]),
        "logit_positions": (TensorProto.INT64, ["wanted"]),
        "logits": (TensorProto.FLOAT, ["wanted", VOCAB_SIZE]),
        **dict.fromkeys((name for pair in cache_names(NUM_LAYERS) for name in pair), cache),
    }


async def test_an_engine_over_the_graph_says_what_pytorch_says(model: onnx.ModelProto) -> None:
    """Eight at once on five places, in steps that mix prompts, parts of them, steps and drafts.

    At each place of each output the token is PyTorch's likeliest, or within the tolerance of it.
    """
    limits = SchedulerLimits(max_prefill_tokens=12, max_draft_tokens=4)
    prompts = random_prompts((1, 7, 20, 30, 5, 18, 9, 20))
    decoder = GraphDecoder(model)
    sequences: list[Sequence] = []
    async with engine_on(
        decoder,
        max_prefill_tokens=limits.max_prefill_tokens,
        max_draft_tokens=limits.max_draft_tokens,
    ) as engine:
        requests = [request_of(prompt, max_tokens=12, ignore_eos=True) for prompt in prompts]
        generations = [engine.generate(request) for request in requests]
        for generation in generations:
            async with generation:
                await within_patience(read(generation))
            sequences += generation.sequences
    for sequence in sequences:
        assert sequence.finish_reason is FinishReason.LENGTH
        token_ids = sequence.token_ids[: sequence.num_tokens].tolist()
        logits_SV = torch_logits(tiny_gpt(), token_ids)  # noqa: N806
        for place in range(sequence.num_prompt_tokens, sequence.num_tokens):
            logits = logits_SV[place - 1]
            assert logits[token_ids[place]] >= logits.max() - TOLERANCE


def test_logits_of_a_packed_run_are_pytorch_s(model: onnx.ModelProto) -> None:
    """Three prompts in one run, then one token of each, in scattered blocks."""
    decoder = GraphDecoder(model)
    prompts = random_prompts((3, 16, 9))
    table = np.array([[7, -1, -1], [2, 30, 11], [39, 0, -1]], np.int32)
    past = np.zeros(3, np.int32)
    for step in range(2):
        rows = prompts if not step else [[5], [6], [7]]
        counts = np.array([len(row) for row in rows])
        ends = np.cumsum(counts)
        positions = [np.arange(p, p + n) for p, n in zip(past, counts, strict=True)]
        inputs = PackedInputs(
            input_ids=np.concatenate(rows).astype(np.int64),
            position_ids=np.concatenate(positions).astype(np.int64),
            cumulative_sequence_length=np.append(0, ends).astype(np.int32),
            past_seqlens=past,
            block_table=table,
            logit_positions=ends - 1,
        )
        logits = decoder.run(inputs)
        texts = [prompt + (row if step else []) for prompt, row in zip(prompts, rows, strict=True)]
        expected = np.stack([torch_logits(tiny_gpt(), text)[-1] for text in texts])
        np.testing.assert_allclose(logits, expected, atol=TOLERANCE)
        past = past + counts.astype(np.int32)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_a_graph_for_cuda_is_checked_with_its_weights_as_they_are_rounded(
    precision: Precision,
) -> None:
    graph = trace_paged_decoder(tiny_gpt(), precision=precision)
    assert check_paged(tiny_gpt(), graph, precision)["max_abs_error"] < TOLERANCE
    with pytest.raises(ExportError, match="decoding over blocks differs from PyTorch by up to"):
        check_paged(tiny_gpt(seed=1), graph, precision)
