"""Shares of the processors, and what several processes refuse to do together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands.processes.supervisor import check_processes, shares
from service.errors import SettingError
from service.settings import Settings


@given(st.lists(st.integers(0, 999), unique=True, min_size=1), st.data())
def test_shares_are_all_processors_once_and_nearly_equal(
    cpus: list[int], data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, len(cpus)))
    each = shares(cpus, count)
    assert len(each) == count
    assert [cpu for share in each for cpu in share] == cpus
    assert max(map(len, each)) - min(map(len, each)) <= 1


def test_more_processes_than_processors_are_refused() -> None:
    check_processes(Settings(processes=4), 4)
    with pytest.raises(SettingError, match="--processes is 4, expected at most 3, the processors"):
        check_processes(Settings(processes=4), 3)


def test_batches_are_refused_beside_several_processes() -> None:
    with pytest.raises(SettingError, match="--batch-folder is set, expected one of them"):
        check_processes(Settings(processes=2, batch_folder="batches"), 2)
