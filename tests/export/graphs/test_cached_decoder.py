"""The decoder's graph, run from its cache, computes what PyTorch computes without one."""

import copy
import re
from collections import Counter

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, numpy_helper

from export.checks.decoding import open_graph
from export.graphs.cached_decoder import trace_decoder
from models.networks.gpt import generate
from service.contract.manifest import Precision
from service.generation.decoders.decoder import OnnxDecoder
from tests.fakes.processor import BLOCKS, in_blocks
from tests.fakes.tiny_gpt import (
    HEAD_SIZE,
    MAX_TOKENS,
    NUM_HEADS,
    NUM_LAYERS,
    VOCAB_SIZE,
    continued,
    random_prompts,
    run,
    tiny_gpt,
    tiny_graph,
    torch_logits,
)

# Sums here have up to 128 terms near 1, logits are near 2, and float32 rounds at 6e-8 of a value.
TOLERANCE = 1e-4
RAGGED = (1, 7, 20, 32)  # and 64 more tokens fill the longest row to MAX_TOKENS
NUM_STEPS = 64
NUM_SLOTS = 8


@pytest.fixture
def decoder() -> OnnxDecoder:
    return open_graph(tiny_graph(), MAX_TOKENS, NUM_SLOTS)


def wanted_tokens(prompt: list[int], num_tokens: int = NUM_STEPS) -> list[int]:
    """What the slow reference continues a prompt with."""
    return generate(tiny_gpt(), prompt, num_tokens, ignore_eos=True)


# --- the graph ------------------------------------------------------------------------------------


def shapes_of(values: list[onnx.ValueInfoProto]) -> dict[str, tuple[int, list[str | int]]]:
    return {
        value.name: (
            value.type.tensor_type.elem_type,
            [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim],
        )
        for value in values
    }


@pytest.mark.parametrize(
    ("precision", "kind"), [("fp32", TensorProto.FLOAT), ("fp16", TensorProto.FLOAT16)]
)
def test_graph_takes_and_gives_what_it_promises(precision: Precision, kind: int) -> None:
    """2 layers: 5 inputs and 4 halves of a cache in, logits in float32 and the cache out."""
    graph = tiny_graph(precision).graph
    cache = (kind, ["batch", NUM_HEADS, "cache", HEAD_SIZE])
    parts = [f"{layer}.{part}" for layer in range(NUM_LAYERS) for part in ("key", "value")]
    inputs, outputs = shapes_of(list(graph.input)), shapes_of(list(graph.output))
    assert inputs == {
        "input_ids": (TensorProto.INT64, ["batch", "sequence"]),
        "position_ids": (TensorProto.INT64, ["batch", "sequence"]),
        "seqlens_k": (TensorProto.INT32, ["batch"]),
        "total_sequence_length": (TensorProto.INT32, []),
        "logit_positions": (TensorProto.INT64, ["positions"]),
        **{f"past_key_values.{part}": cache for part in parts},
    }
    assert outputs == {
        "logits": (TensorProto.FLOAT, ["positions", VOCAB_SIZE]),
        **{f"present.{part}": cache for part in parts},
    }


@pytest.mark.parametrize("num_layers", [1, 2])
def test_each_layer_s_attention_is_one_node(num_layers: int) -> None:
    """And nothing of the plain attention is left: no mask, no softmax."""
    graph = (
        tiny_graph() if num_layers == 2 else trace_decoder(tiny_gpt(num_layers=1), precision="fp32")
    )
    counts = Counter(node.op_type for node in graph.graph.node)
    assert counts["GroupQueryAttention"] == num_layers
    assert not {"Softmax", "Where", "Trilu", "Attention"} & counts.keys()
    (first, *_) = (node for node in graph.graph.node if node.op_type == "GroupQueryAttention")
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in first.attribute}
    assert attributes == {"num_heads": 4, "kv_num_heads": 4, "scale": 0.25}


def test_query_key_and_value_are_one_product() -> None:
    """Per layer: it, the output, expand and contract; and the output layer."""
    graph = tiny_graph().graph
    counts = Counter(node.op_type for node in graph.node)
    assert counts["MatMul"] + counts["Gemm"] == 4 * NUM_LAYERS + 1
    sizes = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    (packed, *_) = (node for node in graph.node if node.op_type == "MatMul")
    assert sizes[packed.input[1]] == [NUM_HEADS * HEAD_SIZE, 3 * NUM_HEADS * HEAD_SIZE]


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_word_vectors_are_stored_once(precision: Precision) -> None:
    """They are the first layer and the last; without them the graph would be 66 KB larger."""
    graph = tiny_graph(precision).graph
    words = [tensor for tensor in graph.initializer if VOCAB_SIZE in tensor.dims]
    assert [(tensor.name, list(tensor.dims)) for tensor in words] == [("words.weight", [257, 64])]
    num_weights = sum(parameter.numel() for parameter in tiny_gpt().parameters())
    num_values = sum(numpy_helper.to_array(tensor).size for tensor in graph.initializer)
    assert num_weights <= num_values < num_weights + 100, "a few constants beside the weights"


def test_same_weights_give_the_same_bytes() -> None:
    """Traced again, from another object, with other traces in between."""
    again = trace_decoder(tiny_gpt(), precision="fp32")
    assert again.SerializeToString() == tiny_graph().SerializeToString()


def test_graph_tells_nothing_about_where_it_was_made() -> None:
    text = str(tiny_graph().graph)
    assert ".py" not in text
    assert "metadata_props" not in text
    assert not re.search('doc_string: "[^"]', text)


def test_tracing_leaves_the_network_as_it_was() -> None:
    """In training mode and float32; the graph has no dropout all the same."""
    network = tiny_gpt(num_layers=1).train()
    before = copy.deepcopy(network.state_dict())
    graph = trace_decoder(network, precision="fp16")
    assert "Dropout" not in {node.op_type for node in graph.graph.node}
    assert network.training
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())


# --- prompts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lengths",
    [(1,), (5,), (MAX_TOKENS,), (1, 1, 1), (32, 1, 20, 7), (MAX_TOKENS, 3), (2, 95, 96, 1, 50)],
    ids=str,
)
def test_logits_are_of_each_row_s_last_token(
    lengths: tuple[int, ...], decoder: OnnxDecoder
) -> None:
    """[B, V], within 1e-4 of PyTorch's for each prompt alone: padding adds nothing."""
    prompts = random_prompts(lengths)
    found = run(decoder, 0, prompts, [0] * len(prompts))
    wanted = np.stack([torch_logits(tiny_gpt(), prompt)[-1] for prompt in prompts])
    assert found.dtype == np.float32
    assert np.ptp(wanted, axis=1).min() > 1, "logits must differ, or nothing is compared"
    np.testing.assert_allclose(found, wanted, rtol=0, atol=TOLERANCE)


# --- cached decoding equals recomputing -----------------------------------------------------------


@pytest.mark.parametrize("first_slot", [0, 3, NUM_SLOTS - len(RAGGED)])
def test_cached_decoding_equals_recomputing(first_slot: int, decoder: OnnxDecoder) -> None:
    """64 greedy tokens of 4 ragged rows, the longest to its last place; at any first slot."""
    prompts = random_prompts(RAGGED)
    logits = run(decoder, first_slot, prompts, [0] * len(prompts))
    found = continued(decoder, first_slot, prompts, logits, NUM_STEPS)
    assert found == [wanted_tokens(prompt) for prompt in prompts]
    assert len(prompts[-1]) + NUM_STEPS == MAX_TOKENS
    assert min(len(set(tokens)) for tokens in found) > 10, "the same token again proves little"


@pytest.mark.parametrize("chunk", [1, 2, 5, 16, 31])
def test_prompt_in_chunks_equals_the_prompt_at_once(chunk: int, decoder: OnnxDecoder) -> None:
    """32 tokens, by the chunk; within 1e-4 at the end, and the same 64 tokens follow."""
    (prompt,) = random_prompts((32,))
    for start in range(0, len(prompt), chunk):
        logits = run(decoder, 2, [prompt[start : start + chunk]], [start])
    np.testing.assert_allclose(
        logits[0], torch_logits(tiny_gpt(), prompt)[-1], rtol=0, atol=TOLERANCE
    )
    assert continued(decoder, 2, [prompt], logits, NUM_STEPS) == [wanted_tokens(prompt)]


def test_slot_reuse_leaks_nothing_from_the_previous_owner(decoder: OnnxDecoder) -> None:
    """Slots filled to the last place give bit for bit what fresh ones give."""
    prompts = random_prompts(RAGGED)
    fresh = run(decoder, 0, prompts, [0] * 4)
    run(decoder, 4, random_prompts((MAX_TOKENS,) * 4, seed=1), [0] * 4)
    used = run(decoder, 4, prompts, [0] * 4)
    assert used.tobytes() == fresh.tobytes()
    assert continued(decoder, 4, prompts, used, NUM_STEPS) == continued(
        decoder, 0, prompts, fresh, NUM_STEPS
    )


@pytest.mark.parametrize("num_copied", [1, 19, 31])
def test_copied_prefix_equals_a_computed_one(num_copied: int, decoder: OnnxDecoder) -> None:
    """Two prompts of 32 tokens that begin alike; the rest differs, and so does the owner's."""
    prompt, other = random_prompts((32, 64))
    owner = prompt[:num_copied] + other[num_copied:]
    run(decoder, 6, [owner], [0])
    run(decoder, 1, random_prompts((MAX_TOKENS,), seed=2), [0])
    decoder.copy(6, 1, num_copied)
    logits = run(decoder, 1, [prompt[num_copied:]], [num_copied])
    assert continued(decoder, 1, [prompt], logits, NUM_STEPS) == [wanted_tokens(prompt)]


def test_rows_that_decode_together_need_not_be_alike(decoder: OnnxDecoder) -> None:
    """One with 95 tokens takes its last, one has its first, beside two in between."""
    rows = random_prompts((96, 1, 40, 2))
    for slot, row in enumerate(rows):
        if row[:-1]:
            run(decoder, slot, [row[:-1]], [0])
    found = run(decoder, 0, [row[-1:] for row in rows], [len(row) - 1 for row in rows])
    wanted = np.stack([torch_logits(tiny_gpt(), row)[-1] for row in rows])
    np.testing.assert_allclose(found, wanted, rtol=0, atol=TOLERANCE)


# --- neighbours -----------------------------------------------------------------------------------


def effect_of_neighbours(precision: Precision) -> float:
    """Largest difference in a row's logits alone and beside 1 to 7 others, 16 tokens long."""
    decoder = open_graph(tiny_graph(precision), MAX_TOKENS, NUM_SLOTS)
    (prompt,) = random_prompts((9,))
    forced = random_prompts((15,), seed=1)[0]
    alone: list[np.ndarray] = []
    largest = 0.0
    for num_rows in range(1, NUM_SLOTS + 1):
        others = random_prompts(range(3, 3 + 3 * (num_rows - 1), 3), seed=num_rows)
        place = num_rows // 2
        rows = [*others[:place], prompt, *others[place:]]
        steps = [run(decoder, 0, rows, [0] * num_rows)[place]]
        for step, token in enumerate(forced):
            new = random_prompts((1,) * num_rows, seed=100 + step)
            new[place] = [token]
            steps.append(run(decoder, 0, new, [len(row) + step for row in rows])[place])
        alone = alone or steps
        largest = max(largest, float(np.abs(np.stack(steps) - np.stack(alone)).max()))
    return largest


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8", *map(in_blocks, BLOCKS)])
def test_batched_row_equals_the_row_alone(precision: Precision) -> None:
    """Bit for bit: prompt and 15 more tokens, whatever stands beside it."""
    assert effect_of_neighbours(precision) == 0.0


def test_fp16_graph_runs_and_stays_close() -> None:
    """Within 0.02 of float32 over 64 tokens, and not equal, or nothing was rounded."""
    decoder = open_graph(tiny_graph("fp16"), MAX_TOKENS, 1)
    (prompt,) = random_prompts((32,))
    row = prompt + wanted_tokens(prompt)
    found = [run(decoder, 0, [prompt], [0])[0]]
    found += [run(decoder, 0, [row[past : past + 1]], [past])[0] for past in range(32, 95)]
    error = np.abs(np.stack(found) - torch_logits(tiny_gpt(), row)[31:95]).max()
    assert 1e-5 < error < 0.02
