"""Positions: the formula of the paper, and the offset of RoBERTa."""

import math

import pytest
import torch

from models.networks.layers import LearnedPositions, SinusoidalPositions, sinusoidal_table


def test_sinusoidal_positions_follow_the_formula_of_the_paper() -> None:
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos of the same."""
    table = sinusoidal_table(5_001, 8)
    for position in (0, 1, 7, 5_000):
        for pair in range(4):
            angle = position / 10_000 ** (2 * pair / 8)
            assert table[position, 2 * pair].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[position, 2 * pair + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_the_product_of_two_sinusoidal_positions_depends_on_their_distance_alone() -> None:
    """Sin a sin b + cos a cos b = cos(a - b), summed over the frequencies."""
    table = sinusoidal_table(100, 32)
    torch.testing.assert_close(table[3] @ table[13], table[70] @ table[80])


def test_sinusoidal_positions_have_nothing_to_learn_or_to_store() -> None:
    positions = SinusoidalPositions(10, 7)  # an odd size keeps the last sine without its cosine
    assert list(positions.parameters()) == []
    assert positions.state_dict() == {}
    torch.testing.assert_close(positions(4), sinusoidal_table(4, 7))


def test_learned_positions_start_at_the_offset() -> None:
    positions = LearnedPositions(max_positions=5, hidden_size=3, offset=2)
    assert positions.table.weight.shape == (7, 3)
    torch.testing.assert_close(positions(5), positions.table.weight[2:7])
