"""Attention against worked numbers, and the fused path against the readable one."""
# ruff: noqa: N806 - suffixes are array layouts

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from models.errors import SettingError
from models.networks.attention import (
    MultiHeadAttention,
    ScaledDotProductAttention,
    attention_reference,
    causal_mask,
    padding_mask,
)


def core(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """One row and one head through the fused path."""
    output: Tensor = ScaledDotProductAttention()(
        query[None, None], key[None, None], value[None, None], None
    )
    return output[0, 0]


def test_scores_112_and_96_with_64_dimensions_give_weights_88_and_12_percent() -> None:
    """112 / sqrt(64) = 14 and 96 / 8 = 12; e^14 / (e^14 + e^12) = 1 / (1 + e^-2) = 0.88."""
    query = torch.ones(1, 64)
    key = torch.stack([torch.full((64,), 112 / 64), torch.full((64,), 96 / 64)])
    assert (query @ key.T).tolist() == [[112.0, 96.0]]
    assert (query @ key.T / math.sqrt(64)).tolist() == [[14.0, 12.0]]

    value = torch.eye(2)  # so that the output is the weights
    output, weights = attention_reference(query, key, value)

    assert [round(w, 2) for w in weights[0].tolist()] == [0.88, 0.12]
    assert [round(w, 2) for w in output[0].tolist()] == [0.88, 0.12]
    assert [round(w, 2) for w in core(query, key, value)[0].tolist()] == [0.88, 0.12]


def test_apple_becomes_043_orange_and_057_apple_by_cosine_similarity() -> None:
    """In 'an apple and an orange', the other words masked: softmax(0.71, 1) = (0.43, 0.57).

    Apple (2, 2) and orange (0, 3): the cosine is 6 / (sqrt(8) * 3) = 0.71, of apple with itself 1.
    The query is lengthened by sqrt(2), since cosines are not divided by sqrt(d_k).
    """
    words = ["an", "apple", "and", "an", "orange"]
    vectors = torch.tensor([[9.0, 1.0], [2.0, 2.0], [5.0, 5.0], [9.0, 1.0], [0.0, 3.0]])
    unit = F.normalize(vectors, dim=-1)
    mask = torch.tensor([word in ("apple", "orange") for word in words])
    apple = unit[1:2] * math.sqrt(2)

    output, weights = attention_reference(apple, unit, vectors, mask)
    fused = ScaledDotProductAttention()(
        apple[None, None], unit[None, None], vectors[None, None], mask[None]
    )

    assert round(float(unit[1] @ unit[4]), 2) == 0.71
    assert [round(w, 2) for w in weights[0].tolist()] == [0.0, 0.57, 0.0, 0.0, 0.43]
    torch.testing.assert_close(fused[0, 0], output)
    torch.testing.assert_close(output[0], 0.43 * vectors[4] + 0.57 * vectors[1], atol=0.02, rtol=0)


def test_cherry_orange_and_phone_have_scaled_dot_products_849_212_and_0() -> None:
    """Cherry (1, 4), orange (0, 3), phone (3, 0): 12, 3 and 0 divided by sqrt(2)."""
    cherry, orange, phone = (torch.tensor(v) for v in ([1.0, 4.0], [0.0, 3.0], [3.0, 0.0]))
    pairs = [(cherry, orange), (cherry, phone), (orange, phone)]

    scaled = [float(a @ b) / math.sqrt(2) for a, b in pairs]
    assert [round(score, 2) for score in scaled] == [8.49, 2.12, 0.0]

    keys = torch.stack([orange, phone])
    expected = torch.tensor(scaled[:2]).softmax(dim=0)
    _, weights = attention_reference(cherry[None], keys, torch.eye(2))
    torch.testing.assert_close(weights[0], expected)
    torch.testing.assert_close(core(cherry[None], keys, torch.eye(2))[0], expected)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("lengths", [None, [5, 1, 3]])
def test_fused_path_equals_reference(lengths: list[int] | None, is_causal: bool) -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 3, 2, 5, 8)
    padding = None if lengths is None else padding_mask(torch.tensor(lengths), 5)
    mask = torch.ones(3, 1, 5, 5, dtype=torch.bool)
    if padding is not None:
        mask = mask & padding[:, None, None, :]
    if is_causal:
        mask = mask & causal_mask(5)

    fused = ScaledDotProductAttention()(query, key, value, padding, is_causal)

    torch.testing.assert_close(fused, attention_reference(query, key, value, mask)[0])


@pytest.mark.parametrize("has_memory", [False, True])
def test_multi_head_attention_is_the_reference_on_each_slice(has_memory: bool) -> None:
    """Head h works on columns 8h to 8h + 7 of the projections; with memory, T differs from S."""
    torch.manual_seed(0)
    attention = MultiHeadAttention(hidden_size=16, num_heads=2)
    hidden_BSD = torch.randn(2, 4, 16)
    memory_BTD = torch.randn(2, 6, 16) if has_memory else hidden_BSD
    padding_BT = padding_mask(torch.tensor([memory_BTD.shape[1], 2]), memory_BTD.shape[1])

    heads = []
    for head in range(2):
        columns = slice(8 * head, 8 * head + 8)
        query = attention.query(hidden_BSD)[..., columns]
        key = attention.key(memory_BTD)[..., columns]
        value = attention.value(memory_BTD)[..., columns]
        heads.append(attention_reference(query, key, value, padding_BT[:, None, :])[0])
    expected = attention.output(torch.cat(heads, dim=-1))

    output = attention(hidden_BSD, padding_BT, memory_BTD=memory_BTD if has_memory else None)
    torch.testing.assert_close(output, expected)
    assert (attention.num_heads, attention.head_size) == (2, 8)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_a_row_of_padding_gives_zeros_and_finite_gradients(dropout: float) -> None:
    torch.manual_seed(0)
    inputs = torch.randn(3, 2, 1, 4, 8, requires_grad=True)
    padding = padding_mask(torch.tensor([4, 0]), 4)

    output = ScaledDotProductAttention(dropout)(*inputs, padding)
    output.sum().backward()

    assert (output[1] == 0).all()
    assert inputs.grad is not None
    assert inputs.grad.isfinite().all()
    reference, weights = attention_reference(
        inputs[0], inputs[1], inputs[2], padding[:, None, None, :]
    )
    assert (reference[1] == 0).all()
    assert (weights[1] == 0).all()


def test_causal_attention_does_not_see_what_comes_later() -> None:
    torch.manual_seed(0)
    attention = MultiHeadAttention(16, 4)
    hidden = torch.randn(1, 5, 16)
    changed = hidden.clone()
    changed[:, 3:] += 1.0

    before, after = attention(hidden, is_causal=True), attention(changed, is_causal=True)

    torch.testing.assert_close(before[:, :3], after[:, :3])
    assert not torch.allclose(before[:, 3:], after[:, 3:])


def test_dropout_acts_on_the_weights_in_training_only() -> None:
    torch.manual_seed(0)
    attention = ScaledDotProductAttention(dropout=0.5)
    inputs = torch.randn(3, 1, 1, 6, 4)

    in_training = attention.train()(*inputs, None)
    in_use = attention.eval()(*inputs, None)

    torch.testing.assert_close(in_use, attention_reference(*inputs)[0])
    assert not torch.allclose(in_training, in_use)


def test_heads_that_do_not_divide_the_hidden_size_are_refused_by_number() -> None:
    with pytest.raises(
        SettingError, match="num_heads is 3, but must be a divisor of hidden_size 16"
    ):
        MultiHeadAttention(16, 3)


@pytest.mark.parametrize("size", [100.0, 1e4])
def test_large_scores_do_not_overflow_the_reference(size: float) -> None:
    """e^89 is more than float32 holds: scores of 100 and more, by their distance to the largest."""
    query, value = torch.tensor([[1.0]]), torch.eye(3)
    key = torch.tensor([[size], [size - 1], [-size]])
    output, weights = attention_reference(query, key, value)
    expected = torch.softmax(torch.tensor([[0.0, -1.0, -2 * size]]), dim=-1)
    assert torch.allclose(weights, expected, atol=1e-6)
    assert torch.allclose(output, expected, atol=1e-6)


def test_a_float_mask_is_added_to_the_scores_and_hides_where_it_is_minus_infinity() -> None:
    """Scores of relative positions, causal: the fused call computes what the readable one does."""
    torch.manual_seed(2)
    query, key, value = torch.randn(3, 2, 4, 5, 8)  # 2 rows, 4 heads, 5 tokens
    added = torch.randn(1, 4, 5, 5).masked_fill(~causal_mask(5), -torch.inf)
    fused = ScaledDotProductAttention()(query, key, value, added)
    expected, weights = attention_reference(query, key, value, added)
    torch.testing.assert_close(fused, expected)
    assert not weights.triu(1).any()
    without, _ = attention_reference(query, key, value, causal_mask(5))
    assert (expected - without).abs().max() > 0.1


def test_heads_may_be_of_another_size_than_hidden_size_says_and_without_biases() -> None:
    """T5 v1.1 small: 6 heads of 64 over 512 values."""
    attention = MultiHeadAttention(512, 6, head_size=64, bias=False)
    shapes = {name: tuple(each.shape) for name, each in attention.named_parameters()}
    assert shapes == {
        "query.weight": (384, 512),
        "key.weight": (384, 512),
        "value.weight": (384, 512),
        "output.weight": (512, 384),
    }
    assert attention(torch.zeros(1, 3, 512)).shape == (1, 3, 512)
