"""The decoder's graph over blocks: ONNX's reference evaluator with the operator in NumPy."""

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from export.graphs.paged_decoder import INPUTS, trace_paged_decoder
from service.generation.decoder import cache_names
from service.generation.decoder_interface import PackedInputs
from service.generation.scheduler import SchedulerLimits
from service.generation.sequence import Sequence
from service.records import FinishReason
from tests.fakes import paged
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


class PagedAttention(OpRun):
    """The operator for the evaluator; query, key and value come as one."""

    op_domain = "com.microsoft"

    def _run(
        self,
        packed: np.ndarray,
        key: None,
        value: None,
        key_cache: np.ndarray,
        value_cache: np.ndarray,
        cumulative_sequence_length: np.ndarray,
        past_seqlens: np.ndarray,
        block_table: np.ndarray,
        num_heads: int = 0,
        kv_num_heads: int = 0,
        scale: float = 0.0,
        **_: Any,
    ) -> tuple[np.ndarray, ...]:
        assert key is value is None
        size = packed.shape[1] // (num_heads + 2 * kv_num_heads)
        ends = np.cumsum([num_heads * size, kv_num_heads * size])
        query, keys, values = np.split(packed, ends, axis=1)
        context = paged.PagedAttention(num_heads, kv_num_heads, scale)(
            query,
            keys,
            values,
            key_cache,
            value_cache,
            cumulative_sequence_length,
            past_seqlens,
            block_table,
        )
        return context.astype(packed.dtype), key_cache, value_cache


class GraphDecoder:
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
        named: dict[str, np.ndarray] = {name: getattr(inputs, name) for name in INPUTS}
        logits, *presents = self._evaluator.run(None, named | self._caches)
        for (past, _), present in zip(self._names, presents, strict=True):
            self._caches[past] = present
        return np.asarray(logits)


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return trace_paged_decoder(tiny_gpt(), dtype=torch.float32)


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [(torch.float16, TensorProto.FLOAT16), (torch.bfloat16, TensorProto.BFLOAT16)],
)
def test_the_graph_takes_and_gives_what_it_promises(dtype: torch.dtype, kind: int) -> None:
    graph = trace_paged_decoder(tiny_gpt(), dtype=dtype).graph
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
