"""Graphs over blocks: what they must state, and which of their steps are recorded."""

import numpy as np
import pytest

from service.contract.tensors import Signature, TensorSpec
from service.errors import LoadError
from service.generation.decoders.paged_decoder import BLOCKS, BOUNDS, INPUTS
from service.generation.decoders.shape import DecoderShape
from service.generation.decoders.step_graphs import (
    AttentionBounds,
    bounds_of,
    recorded_rows,
    widened,
)
from service.generation.steps.packed_scheduler import PackedInputs
from tests.fakes.sessions import spec

CACHE = ("past_key_values.0.key", "past_key_values.0.value")
PRESENT = ("present.0.key", "present.0.value")


def packed(rows: list[int], past: list[int], wanted: list[int]) -> PackedInputs:
    """A run of rows of these many new tokens, behind these many."""
    ends = np.cumsum(rows)
    return PackedInputs(
        input_ids=np.arange(sum(rows)),
        position_ids=np.concatenate([np.arange(p, p + n) for p, n in zip(past, rows, strict=True)]),
        cumulative_sequence_length=np.append(0, ends).astype(np.int32),
        past_seqlens=np.array(past, np.int32),
        block_table=np.arange(2 * len(rows), dtype=np.int32).reshape(len(rows), 2),
        logit_positions=np.array(wanted),
    )


def signature(**changed: TensorSpec | None) -> Signature:
    """A graph of one layer with 3 heads of 8 values; None leaves a tensor out."""
    inputs = {name: spec(name, "INT64" if "ids" in name else "INT32", -1) for name in INPUTS}
    inputs |= {name: spec(name, "FP16", -1, -1, 3, 8) for name in CACHE}
    outputs = {name: spec(name, "FP16", -1, -1, 3, 8) for name in PRESENT}
    outputs["logits"] = spec("logits", "FP32", -1, 100)
    for name, tensor in changed.items():
        place = outputs if name in outputs or name.startswith(("top", "log_")) else inputs
        place.pop(name, None)
        if tensor is not None:
            place[name] = tensor
    return Signature(tuple(inputs.values()), tuple(outputs.values()))


def test_sizes_are_read_from_the_graph() -> None:
    """2 * 1 layer * 3 heads * 8 values * 2 bytes * 256 tokens = 24,576 bytes a block."""
    shape = DecoderShape.of(signature(), BLOCKS)
    assert (shape.num_layers, shape.num_kv_heads, shape.head_size) == (1, 3, 8)
    assert (shape.vocab_size, shape.cache_type.name) == (100, "FP16")
    assert (shape.takes_option, shape.num_candidates) == (False, 0)
    assert shape.num_bytes(256) == 24_576


def test_bounds_and_candidates_are_optional() -> None:
    shape = DecoderShape.of(
        signature(
            **{BOUNDS: spec(BOUNDS, "INT32", 3)},
            top_logits=spec("top_logits", "FP32", -1, 50),
            top_ids=spec("top_ids", "INT64", -1, 50),
            log_sum=spec("log_sum", "FP32", -1),
        ),
        BLOCKS,
    )
    assert (shape.takes_option, shape.num_candidates) == (True, 50)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"block_table": None}, "a decoder over blocks takes input_ids, "),
        ({"present.0.key": None}, "a decoder over blocks takes input_ids, "),
        ({CACHE[0]: None, CACHE[1]: None}, "a decoder over blocks takes input_ids, "),
        ({"extra": spec("extra", "FP32", 1)}, "the graph takes .*'extra'"),
        ({CACHE[1]: spec(CACHE[1], "FP16", -1, -1, 2, 8)}, "'past_key_values.0.value' is"),
        ({CACHE[1]: spec(CACHE[1], "FP32", -1, -1, 3, 8)}, "'past_key_values.0.value' is"),
        ({CACHE[0]: spec(CACHE[0], "FP16", -1, 3, -1, 8)}, r"TYPE_FP16 \[-1, 3, -1, 8\], exp"),
        ({"logits": spec("logits", "FP32", -1, -1)}, "'logits' has dims"),
        ({"top_ids": spec("top_ids", "INT64", -1, 50)}, "candidates are top_logits and top_ids"),
        (
            {
                "top_logits": spec("top_logits", "FP32", -1, 40),
                "top_ids": spec("top_ids", "INT64", -1, 50),
                "log_sum": spec("log_sum", "FP32", -1),
            },
            "candidates are top_logits and top_ids",
        ),
    ],
    ids=str,
)
def test_another_graph_is_refused(changed: dict[str, TensorSpec | None], message: str) -> None:
    with pytest.raises(LoadError, match=message):
        DecoderShape.of(signature(**changed), BLOCKS)


@pytest.mark.parametrize(
    ("num_rows", "recorded"), [(1, 8), (7, 8), (8, 8), (9, 16), (16, 16), (17, 32), (100, 128)]
)
def test_steps_are_padded_to_the_next_power_of_two(num_rows: int, recorded: int) -> None:
    step = packed([1] * num_rows, [3] * num_rows, [*range(num_rows)])
    assert recorded_rows(step) == recorded


def test_only_steps_of_one_token_each_are_recorded() -> None:
    assert recorded_rows(packed([2, 1], [0, 5], [1, 2])) is None
    assert recorded_rows(packed([2, 0], [0, 5], [0, 1])) is None, "two tokens of one row"
    assert recorded_rows(packed([1, 1], [0, 5], [1])) is None, "a part of a prompt"


def test_a_padded_step_is_the_step_and_rows_in_the_scratch_block() -> None:
    step = packed([1] * 3, [4, 300, 0], [0, 1, 2])
    wide = widened(step, 8, scratch_block=99)
    assert wide.cumulative_sequence_length.tolist() == [*range(9)]
    assert wide.logit_positions.tolist() == [*range(8)]
    for name in ("input_ids", "position_ids", "past_seqlens", "block_table"):
        np.testing.assert_array_equal(getattr(wide, name)[:3], getattr(step, name))
        assert getattr(wide, name).dtype == getattr(step, name).dtype
    assert wide.cumulative_sequence_length.dtype == np.int32
    assert wide.past_seqlens[3:].tolist() == [0] * 5
    assert wide.block_table[3:].tolist() == [[99, 0]] * 5
    assert recorded_rows(wide) == 8
    np.testing.assert_array_equal(widened(wide, 8, 99).block_table, wide.block_table)


def test_bounds_are_those_of_the_longest_row() -> None:
    """5 new tokens behind 3, and 1 behind 300."""
    assert bounds_of(packed([5, 1], [3, 300], [4, 5])) == AttentionBounds(5, 301, 301)
