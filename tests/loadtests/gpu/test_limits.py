"""The limits of a machine; their values differ from machine to machine."""

import pytest

from loadtests.gpu.limits import Limits, measured_limits, seconds_of


@pytest.fixture(scope="module")
def limits() -> Limits:
    return measured_limits("cpu", ["bf16", "fp32"], is_tiny=True)


def test_memory_and_products_have_a_rate(limits: Limits) -> None:
    """At least a hundredth of what any processor of today makes."""
    assert limits.copy_bytes_per_s > 1e8
    assert limits.flops_per_s.keys() == {"bf16", "fp32"}
    assert min(limits.flops_per_s.values()) > 1e7
    assert 0 < limits.launch_s < 1e-2


def test_copies_between_host_and_device_are_for_devices(limits: Limits) -> None:
    assert limits.to_device_bytes_per_s == limits.to_host_bytes_per_s == {}
    assert limits.to_dict()["launch_s"] == limits.launch_s


def test_warm_up_is_not_counted() -> None:
    calls: list[int] = []
    figures = seconds_of("cpu", lambda: calls.append(1), rounds=4)
    assert figures.count == 4
    assert len(calls) == 7
