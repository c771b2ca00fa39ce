"""Windows: every token once an epoch, as a function of the seed, and nothing else of the text."""

import pytest
import torch

from models.data.windows import TrainingWindows, validation_windows
from models.errors import DatasetError


def epoch_of(windows: TrainingWindows, epoch: int) -> torch.Tensor:
    return windows.batch(epoch * windows.num_windows, windows.num_windows)


@pytest.mark.parametrize("epoch", [0, 1, 5])
def test_every_token_is_input_once_and_target_once_in_an_epoch(epoch: int) -> None:
    """60 tokens in 6 windows of 10, wherever the circle is cut."""
    found = epoch_of(TrainingWindows(torch.arange(60), 10, seed=0), epoch)
    assert found.shape == (6, 11)
    assert sorted(found[:, :-1].flatten().tolist()) == list(range(60))
    assert sorted(found[:, 1:].flatten().tolist()) == list(range(60))
    assert (found[:, 1:] == (found[:, :-1] + 1) % 60).all()  # in order, the last before the first


def test_what_is_left_over_is_less_than_a_window_and_elsewhere_each_time() -> None:
    windows = TrainingWindows(torch.arange(65), 10, seed=0)
    left_over = set()
    for epoch in range(20):
        inputs = epoch_of(windows, epoch)[:, :-1].flatten().tolist()
        assert len(set(inputs)) == len(inputs) == 60
        left_over |= {frozenset(range(65)) - frozenset(inputs)}
    assert {len(tokens) for tokens in left_over} == {5}
    assert len(left_over) > 10


def test_the_order_depends_on_seed_and_epoch_alone() -> None:
    windows = TrainingWindows(torch.arange(60), 10, seed=0)
    first = epoch_of(windows, 1)
    assert not torch.equal(epoch_of(windows, 2), first)
    assert not torch.equal(epoch_of(TrainingWindows(torch.arange(60), 10, seed=1), 1), first)
    assert torch.equal(epoch_of(TrainingWindows(torch.arange(60), 10, seed=0), 1), first)


def test_a_batch_may_begin_in_one_epoch_and_end_in_the_next() -> None:
    windows = TrainingWindows(torch.arange(60), 10, seed=0)
    across = windows.batch(4, 5)
    assert torch.equal(across, torch.cat([epoch_of(windows, 0)[4:], epoch_of(windows, 1)[:3]]))
    assert across.dtype == torch.int64


def test_less_text_than_a_window_is_refused_with_both_numbers() -> None:
    with pytest.raises(DatasetError, match="has 9 tokens, but one window takes 10"):
        TrainingWindows(torch.arange(9), 10, seed=0)
    assert TrainingWindows(torch.arange(10), 10, seed=0).batch(0, 2).shape == (2, 11)


def test_measuring_makes_every_token_but_the_first_a_target_once() -> None:
    found = list(validation_windows(torch.arange(25), 10, max_windows=8))
    assert [window.shape for window in found] == [(1, 11), (1, 11), (1, 5)]
    assert torch.cat([window[0, 1:] for window in found]).tolist() == list(range(1, 25))


def test_where_there_are_too_many_windows_they_are_spread_over_the_stream() -> None:
    found = list(validation_windows(torch.arange(101), 10, max_windows=4))
    assert [int(window[0, 0]) for window in found] == [0, 20, 50, 70]


def test_nothing_to_measure_on_is_said() -> None:
    with pytest.raises(DatasetError, match="fewer than 2 tokens"):
        list(validation_windows(torch.arange(1), 10, max_windows=4))
