"""The number of processors that this process may use, and their instruction sets.

ONNX Runtime and `os.cpu_count()` see the host's cores. In a container the
scheduler gives us our affinity mask and a quota of time, and a thread above the
quota is throttled in the middle of a run while all others wait for it.
"""

import os
from collections.abc import Iterator
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")
CPU_INFO = Path("/proc/cpuinfo")


def available_cpus(root: Path = CGROUP_ROOT, own: Path = OWN_CGROUP) -> int:
    """Whole processors that affinity and every cgroup quota above us leave, at least 1."""
    affinity = len(os.sched_getaffinity(0))
    return max(1, min([affinity, *map(int, _quotas(root, own))]))


def cpu_flags(path: Path = CPU_INFO) -> frozenset[str]:
    """The first processor's instruction sets by Linux's names; empty if they are unknown."""
    for line in _read(path).splitlines():
        key, _, flags = line.partition(":")
        if key.strip() in ("flags", "Features"):  # on x86, on Arm
            return frozenset(flags.split())
    return frozenset()


def _quotas(root: Path, own: Path) -> Iterator[float]:
    """Quotas in processors: of our group and its parents in v2, of the mounted one in v1."""
    for group in _own_groups(root, own):
        quota, _, period = _read(group / "cpu.max").partition(" ")
        if quota.isdecimal():  # the word "max" stands for none
            yield int(quota) / int(period)
    quota = _read(root / "cpu/cpu.cfs_quota_us")
    if quota.isdecimal():  # -1 stands for none
        yield int(quota) / int(_read(root / "cpu/cpu.cfs_period_us"))


def _own_groups(root: Path, own: Path) -> list[Path]:
    path = next((line[3:] for line in _read(own).splitlines() if line.startswith("0::")), "/")
    group = root / path.lstrip("/")
    return [group, *(parent for parent in group.parents if parent.is_relative_to(root))]


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
