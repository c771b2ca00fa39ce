"""Products with the numbers that a folder stores give what the float weights give."""
# ruff: noqa: N803, N806 - suffixes are array layouts: K inputs, N outputs of a product, M rows

from collections.abc import Sequence
from typing import Any

import gguf
import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from export.precision.kept import FLOAT_WEIGHTS, forms_of, keep_stored
from models.checkpoints.gguf.blocks import BLOCKS, stored_blocks
from models.checkpoints.rounded.kept import Kept, kept_of
from models.checkpoints.rounded.stored import Stored
from service.runtime.session import OnnxSession, SessionOptions
from tests.export.precision.test_blockwise import attributes_of, product
from tests.models.checkpoints.rounded.test_methods import FORMS, kept_in_form

LIMIT = 1e-6  # of the largest value of a product


def run(model: onnx.ModelProto, **feeds: np.ndarray) -> np.ndarray:
    session = OnnxSession(model.SerializeToString(), SessionOptions(num_threads=1))
    return session.run(feeds, ["y"])[0]


def largest_error(floats_NK: np.ndarray, weights: Sequence[Kept], *, is_kept: bool = True) -> float:
    """Of the product as it is kept, as a share of its largest value by the float weights."""
    x_MK = np.random.default_rng(1).normal(size=(3, floats_NK.shape[1])).astype(np.float32)
    model = keep_stored(product(np.ascontiguousarray(floats_NK.T)), weights, 0)
    assert (FLOAT_WEIGHTS not in forms_of(model)) == is_kept, forms_of(model)
    exact_MN = x_MK.astype(np.float64) @ floats_NK.T.astype(np.float64)
    found_MN = run(model, x=x_MK)
    scale_MN = np.abs(x_MK).astype(np.float64) @ np.abs(floats_NK.T).astype(np.float64)
    return float((np.abs(found_MN - exact_MN) / scale_MN.max()).max())


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


# Forms that no node holds: floats of 8 bits, and groups across rows.
NOT_KEPT = ("compressed-tensors-fp8", "fp8-blocks", "hqq-4-axis0")


@pytest.mark.filterwarnings("ignore::models.remarks.DataWarning")
@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_a_program_is_kept(form: str) -> None:
    floats, kept = kept_in_form(form)
    if form.startswith(NOT_KEPT):
        assert kept is None
        return
    assert kept is not None
    is_table = form.startswith(("bitsandbytes-fp4", "bitsandbytes-nf4"))
    expected = "rows" if form.endswith("-activations") else "table" if is_table else "blocks"
    assert kept.kept_as == expected
    limit = 1e-2 if kept.kept_as == "rows" else LIMIT  # as activations are rounded there too
    assert largest_error(floats.numpy(), [kept]) < limit


def test_a_factor_that_the_network_folds_in_is_folded_into_the_scales() -> None:
    """Granite's residual multiplier; it is not folded into numbers, which stay as they are."""
    generator = torch.Generator().manual_seed(0)
    biases = torch.rand((8, 2), generator=generator)
    floats_NK, kept = kept_in_blocks(0, zeros=None, biases=biases, factor=0.22)
    _, plain = kept_in_blocks(0, zeros=None, biases=biases)
    np.testing.assert_array_equal(kept.codes, plain.codes)
    assert largest_error(floats_NK, [kept]) < LIMIT


def numbers(seed: int, bits: int, shape: tuple[int, int], *, is_signed: bool) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    low = -(1 << bits - 1) if is_signed else 0
    return torch.randint(low, low + (1 << bits), shape, generator=generator)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 99),
    bits=st.integers(2, 8),
    num_inputs=st.integers(16, 300),
    group_size=st.sampled_from([16, 32, 48, 64, 128, 0]),
    kind=st.sampled_from(["none", "middle", "whole", "float", "biases"]),
    is_signed=st.booleans(),
    is_sorted=st.booleans(),
)
def test_numbers_of_any_groups_and_zeros_are_kept(
    seed: int,
    bits: int,
    num_inputs: int,
    group_size: int,
    kind: str,
    is_signed: bool,
    is_sorted: bool,
) -> None:
    """A last group may be shorter; a group of 0 is the whole row."""
    group_size = group_size or num_inputs
    if kind in ("float", "biases"):  # which all programs have in whole groups
        num_inputs = max(group_size, num_inputs // group_size * group_size)
    num_outputs, num_groups = 5, -(-num_inputs // group_size)
    generator = torch.Generator().manual_seed(seed)
    codes = numbers(seed, bits, (num_outputs, num_inputs), is_signed=is_signed)
    shape = (num_outputs, num_groups)
    scales = torch.rand(shape, generator=generator) - 0.3  # as Q6_K's, which may be negative
    groups = torch.arange(num_inputs) // group_size
    if not is_sorted:
        groups = groups[torch.randperm(num_inputs, generator=generator)]
    whole = numbers(seed + 1, bits, shape, is_signed=is_signed)
    zeros = {
        "middle": torch.full(shape, 0 if is_signed else 1 << bits - 1),
        "whole": whole,
        "float": whole + torch.rand(shape, generator=generator),
    }.get(kind)
    biases = torch.rand(shape, generator=generator) if kind == "biases" else None
    stored = Stored(codes, bits, scales, zeros, biases, groups)
    kept = kept_of(stored, "numbers")
    assert kept is not None
    assert kept.block_size in (16, 32)
    assert kept.bits == (4 if bits <= 4 else 8)
    assert largest_error(stored.floats().numpy(), [kept]) < LIMIT


def test_groups_that_are_no_blocks_are_not_kept() -> None:
    codes = numbers(0, 4, (3, 72), is_signed=False)
    assert kept_of(Stored(codes, 4, torch.rand(3, 3)), "of 24") is None
    uneven = torch.tensor([0] * 40 + [1] * 32)
    assert kept_of(Stored(codes, 4, torch.rand(3, 2), groups=uneven), "of 40 and 32") is None


def gguf_blocks(kind: str, num_outputs: int = 6, num_inputs: int = 512) -> tuple[Any, Stored]:
    """Random blocks of a type as gguf's floats, and with their own numbers."""
    of_type = gguf.GGMLQuantizationType[kind]
    in_block, block_bytes = gguf.GGML_QUANT_SIZES[of_type]
    generator = np.random.default_rng(3)
    shape = (num_outputs * num_inputs // in_block, block_bytes)
    blocks = generator.integers(0, 256, shape, dtype=np.uint8)
    layout = BLOCKS[kind]
    for place, content in {**layout.scales, **(layout.added or {})}.items():
        if len(content) == 2:  # a float16, which is to be finite and of some usual size
            blocks[:, place + 1] = blocks[:, place + 1] & 0x03 | 0x28
        elif kind == "MXFP4":
            blocks[:, place] = generator.integers(120, 130, len(blocks))
    if kind in ("Q4_K", "Q5_K"):
        blocks[:, 4] = 0  # the first group's scale is 0, and its minimum is not
    blocks = blocks.reshape(num_outputs, -1)

    def dequantize(each: Any) -> Any:
        return gguf.quants.dequantize(each, of_type)

    stored = stored_blocks(kind, blocks, block_bytes, dequantize)
    assert stored is not None
    return dequantize(blocks), stored


@pytest.mark.parametrize("kind", BLOCKS)
def test_blocks_of_gguf_are_kept(kind: str) -> None:
    floats_NK, stored = gguf_blocks(kind)
    np.testing.assert_array_equal(stored.floats().numpy(), floats_NK)
    kept = kept_of(stored, kind)
    assert kept is not None
    if kind in ("Q4_K", "Q5_K"):
        assert bool((stored.scales == 0).any()), "some groups have a scale of 0"
    assert largest_error(floats_NK, [kept]) < LIMIT


def kept_in_blocks(seed: int, num_outputs: int = 8, **fields: Any) -> tuple[np.ndarray, Kept]:
    generator = torch.Generator().manual_seed(seed)
    codes = numbers(seed, fields.pop("bits", 4), (num_outputs, 64), is_signed=False)
    scales = torch.rand((num_outputs, 2), generator=generator)
    zeros = numbers(seed, 4, (num_outputs, 2), is_signed=False)
    stored = Stored(codes, 4, scales, **{"zeros": zeros, **fields})
    kept = kept_of(stored, f"weight {seed}")
    assert kept is not None
    return stored.floats().numpy(), kept


def test_joined_products_of_one_form_are_one_node() -> None:
    """Also where one has zero points and another has not."""
    middle = torch.full((8, 2), 8)
    weights = [kept_in_blocks(0), kept_in_blocks(1, zeros=middle), kept_in_blocks(2)]
    floats_NK = np.concatenate([floats for floats, _ in weights])
    model = keep_stored(
        product(np.ascontiguousarray(floats_NK.T)), [kept for _, kept in weights], 4
    )
    assert operators(model) == ["MatMulNBits"]
    assert forms_of(model) == {"weight 0": 1, "weight 1": 1, "weight 2": 1}
    assert attributes_of(model.graph.node[0])["accuracy_level"] == 4
    assert largest_error(floats_NK, [kept for _, kept in weights]) < LIMIT


def test_joined_products_of_several_forms_are_computed_apart() -> None:
    """4 bits, 8 bits, inputs in another order, and floats that no stored numbers are known of."""
    eight = Stored(numbers(1, 8, (8, 64), is_signed=True), 8, torch.rand(8, 1))
    order = torch.randperm(64, generator=torch.Generator().manual_seed(0)) // 32
    turned = kept_in_blocks(2, groups=order)
    kept_eight = kept_of(eight, "8 bits")
    assert kept_eight is not None
    floats = np.random.default_rng(0).normal(size=(4, 64)).astype(np.float32)
    parts = [kept_in_blocks(0), (eight.floats().numpy(), kept_eight), turned, (floats, None)]
    floats_NK = np.concatenate([part for part, _ in parts])
    weights = [kept for _, kept in parts if kept is not None]
    model = keep_stored(product(np.ascontiguousarray(floats_NK.T)), weights, 0)
    assert operators(model) == [*["MatMulNBits"] * 2, "Gather", "MatMulNBits", "MatMul", "Concat"]
    assert forms_of(model)[FLOAT_WEIGHTS] == 1
    assert largest_error(floats_NK, weights, is_kept=False) < LIMIT


def test_a_weight_that_was_changed_stays_float() -> None:
    floats_NK, kept = kept_in_blocks(0)
    floats_NK[-1, -1] += 1e-6
    model = keep_stored(product(np.ascontiguousarray(floats_NK.T)), [kept], 4)
    assert operators(model) == ["MatMul"]
    assert forms_of(model) == {FLOAT_WEIGHTS: 1}


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q6_K"])
def test_rows_of_a_table_are_read_as_they_are_stored(kind: str) -> None:
    floats_NK, stored = gguf_blocks(kind)
    kept = kept_of(stored, kind)
    assert kept is not None
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "x"], ["y"])],
        "lookup",
        [helper.make_tensor_value_info("x", TensorProto.INT64, ["rows"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", None])],
        [numpy_helper.from_array(floats_NK, "table")],
    )
    plain = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    model = keep_stored(plain, [kept], 4)
    assert operators(model) == ["GatherBlockQuantized"]
    np.testing.assert_allclose(run(model, x=np.array([5, 0, 3])), floats_NK[[5, 0, 3]], rtol=1e-6)


def test_int8_of_rows_is_the_scheme_of_our_own_with_the_numbers_of_the_folder() -> None:
    """Activations too are rounded as compressed-tensors' w8a8 does: 127 for a token's largest."""
    stored = Stored(numbers(0, 8, (6, 40), is_signed=True), 8, torch.rand(6, 1), rounds_rows=True)
    kept = kept_of(stored, "w8a8")
    assert kept is not None
    model = keep_stored(product(np.ascontiguousarray(stored.floats().numpy().T)), [kept], 4)
    assert "MatMulIntegerToFloat" in operators(model)
    x_MK = np.random.default_rng(0).normal(size=(3, 40)).astype(np.float32)
    largest_M1 = np.abs(x_MK).max(axis=1, keepdims=True)
    rounded_MK = np.rint(x_MK / largest_M1 * 127)
    expected = rounded_MK @ stored.codes.numpy().T * largest_M1 / 127 * stored.scales.numpy().T
    np.testing.assert_allclose(run(model, x=x_MK), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_K", "Q6_K"])
def test_a_row_does_not_depend_on_its_neighbours(kind: str) -> None:
    """Not in its last bit, of blocks of 32 and of 16, and with offsets, where activations are int8.

    A last bit would move values to the next step in all layers that follow.
    """
    floats_NK, stored = gguf_blocks(kind, 96)
    kept = kept_of(stored, kind)
    assert kept is not None
    model = keep_stored(product(np.ascontiguousarray(floats_NK.T)), [kept], 4)
    x_MK = np.random.default_rng(0).normal(size=(9, 512)).astype(np.float32)
    together_MN = run(model, x=x_MK)
    for row in range(9):
        np.testing.assert_array_equal(run(model, x=x_MK[row : row + 1])[0], together_MN[row])


def test_the_operators_own_order_of_groups_ignores_zero_points() -> None:
    """The reason why inputs are sorted: g_idx gives other numbers, and no error."""
    generator = torch.Generator().manual_seed(0)
    groups = (torch.randperm(64, generator=generator) // 32).long()
    codes = numbers(0, 4, (8, 64), is_signed=False)
    zeros = torch.full((8, 2), 3)
    scales = torch.rand((8, 2), generator=generator)
    stored = Stored(codes, 4, scales, zeros, groups=groups)
    kept = kept_of(stored, "by g_idx")
    assert kept is not None
    assert largest_error(stored.floats().numpy(), [kept]) < LIMIT
    pairs = codes.numpy().astype(np.uint8)
    constants = {
        "codes": (pairs[:, 0::2] | pairs[:, 1::2] << 4).reshape(8, 2, 16),
        "scales": scales.numpy(),
        "zeros": np.full((8, 1), 0x33, np.uint8),
        "g_idx": groups.numpy().astype(np.int32),
    }
    node = helper.make_node(
        *("MatMulNBits", ["x", *constants], ["y"]),
        domain="com.microsoft",
        K=64,
        N=8,
        bits=4,
        block_size=32,
        accuracy_level=0,
    )
    model = product(np.zeros((64, 8), np.float32))
    del model.graph.node[:], model.graph.initializer[:]
    model.graph.node.append(node)
    model.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in constants.items())
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    x_MK = np.random.default_rng(1).normal(size=(3, 64)).astype(np.float32)
    exact_MN = x_MK @ stored.floats().numpy().T
    assert np.abs(run(model, x=x_MK) - exact_MN).max() > 0.1 * np.abs(exact_MN).max()
