"""Processors, from cgroup trees in a folder."""

import os
from pathlib import Path

import pytest

from service.runtime.cpus import available_cpus, cpu_flags

AFFINITY = len(os.sched_getaffinity(0))
FULL = AFFINITY * 100_000  # a quota of all processors, in microseconds of each 100 ms


def tree(folder: Path, own: str = "0::/\n") -> tuple[Path, Path]:
    """An empty cgroup root, and a /proc/self/cgroup that says where we are."""
    root, own_file = folder / "cgroup", folder / "own"
    root.mkdir()
    own_file.write_text(own)
    return root, own_file


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_without_cgroups_affinity_decides(tmp_path: Path) -> None:
    assert available_cpus(tmp_path / "none", tmp_path / "none either") == AFFINITY


@pytest.mark.parametrize(
    ("quota", "expected"),
    [
        ("max 100000\n", AFFINITY),
        ("100000 100000\n", 1),
        ("150000 100000\n", 1),  # whole processors: half of one would be throttled
        ("50000 100000\n", 1),  # at least one
        (f"{FULL} 100000\n", AFFINITY),
        (f"{FULL * 2} 100000\n", AFFINITY),
        (f"{FULL // 2} 50000\n", AFFINITY),
        ("", AFFINITY),
    ],
)
def test_a_quota_of_version_2_is_counted_in_whole_processors(
    tmp_path: Path, quota: str, expected: int
) -> None:
    root, own = tree(tmp_path)
    write(root, "cpu.max", quota)
    assert available_cpus(root, own) == expected


@pytest.mark.parametrize("level", ["", "a/", "a/b/"])
def test_a_quota_of_any_group_above_us_counts(tmp_path: Path, level: str) -> None:
    """We are in /a/b: the root, a parent and our own group may each set the bound."""
    root, own = tree(tmp_path, own="0::/a/b\n")
    for path in ("cpu.max", "a/cpu.max", "a/b/cpu.max"):
        write(root, path, "max 100000\n")
    write(root, f"{level}cpu.max", "100000 100000\n")
    assert available_cpus(root, own) == 1


def test_a_quota_of_another_group_does_not_count(tmp_path: Path) -> None:
    root, own = tree(tmp_path, own="0::/a\n")
    write(root, "b/cpu.max", "100000 100000\n")
    assert available_cpus(root, own) == AFFINITY


@pytest.mark.parametrize(("quota", "expected"), [("-1\n", AFFINITY), ("100000\n", 1)])
def test_a_quota_of_version_1_counts(tmp_path: Path, quota: str, expected: int) -> None:
    root, own = tree(tmp_path, own="3:cpu,cpuacct:/docker/x\n1:name=systemd:/docker/x\n")
    write(root, "cpu/cpu.cfs_quota_us", quota)
    write(root, "cpu/cpu.cfs_period_us", "100000\n")
    assert available_cpus(root, own) == expected


@pytest.mark.parametrize("key", ["flags\t\t", "Features\t"], ids=["x86", "Arm"])
def test_the_flags_are_those_of_the_first_processor(tmp_path: Path, key: str) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text(f"processor\t: 0\nvmx {key}: odd\n{key}: sse avx2 fp16\n\n{key}: other\n")
    assert cpu_flags(info) == {"sse", "avx2", "fp16"}
    assert cpu_flags(tmp_path / "none") == frozenset()
