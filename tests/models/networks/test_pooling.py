"""Poolings against sentence-transformers' formulas, row by row without padding."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from models.choices import POOLINGS
from models.errors import SettingError
from models.networks.pooling import check_pooling, pool

LENGTHS = (5, 2, 1)
FORMULAS: dict[str, Callable[[Tensor], Tensor]] = {  # of the states [S, D] of one text
    "mean": lambda states: states.mean(dim=0),
    "cls": lambda states: states[0],
    "last": lambda states: states[-1],
    "max": lambda states: states.max(dim=0).values,
    "mean_sqrt_len_tokens": lambda states: states.sum(dim=0) / len(states) ** 0.5,
    "weightedmean": lambda states: (
        sum((place + 1) * state for place, state in enumerate(states))
        / sum(range(1, len(states) + 1))
    ),
}


def padded() -> tuple[Tensor, Tensor]:
    """States with noise where padding is, all below 0 so that a zero would be the largest."""
    torch.manual_seed(2)
    mask = torch.arange(max(LENGTHS))[None] < torch.tensor(LENGTHS)[:, None]
    return -torch.rand(len(LENGTHS), max(LENGTHS), 8) - 1.0, mask.to(torch.int64)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_each_pooling_is_its_formula_and_leaves_padding_out(pooling: str) -> None:
    hidden, mask = padded()
    found = pool(hidden, mask, pooling)
    for row, length in enumerate(LENGTHS):
        expected = FORMULAS[pooling](hidden[row, :length])
        torch.testing.assert_close(found[row], expected, atol=1e-6, rtol=0)
    assert pool(hidden, torch.zeros_like(mask), pooling).isfinite().all()


def test_several_poolings_are_one_after_the_other_in_their_order() -> None:
    hidden, mask = padded()
    parts = [pool(hidden, mask, each) for each in ("max", "cls", "weightedmean")]
    assert torch.equal(pool(hidden, mask, "max+cls+weightedmean"), torch.cat(parts, dim=-1))


def test_the_weights_of_a_long_text_fit_into_float16() -> None:
    """8,192 places sum to 33 million, and float16 ends at 65,504."""
    hidden = torch.ones(1, 8_192, 1, dtype=torch.float16)
    mean = pool(hidden, torch.ones(1, 8_192, dtype=torch.int64), "weightedmean")
    assert abs(float(mean) - 1.0) < 0.01


@pytest.mark.parametrize("pooling", ["", "median", "mean+mean", "mean+", "mean,cls"])
def test_another_pooling_is_refused_with_those_there_are(pooling: str) -> None:
    with pytest.raises(SettingError, match=r"pooling is .* one of mean, cls, last, max.* or sever"):
        check_pooling(pooling)
