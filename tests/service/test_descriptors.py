"""Connections are no more than the files that the process may open."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from service.descriptors import LEAST_FILES, OWN_FILES, max_connections
from service.errors import SettingError

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("num_ports", [1, 2, 3])
@pytest.mark.parametrize("allowed", [LEAST_FILES, 300, 512, 1_024, 4_096, 2**20])
def test_all_connections_have_a_file_and_some_are_left(allowed: int, num_ports: int) -> None:
    most = max_connections(allowed, num_ports)
    assert most >= 1
    assert allowed - num_ports * most >= min(OWN_FILES, allowed // 2)


def test_a_process_that_may_open_too_few_files_does_not_start() -> None:
    with pytest.raises(SettingError, match="may open 64 files, expected at least 256: raise"):
        max_connections(64, 2)


@pytest.mark.parametrize(
    ("hard", "printed"), [(64, "may open 64 files"), (600, "is lowered from 1024 to 150")]
)
def test_a_hard_limit_is_a_refusal_or_a_warning(hard: int, printed: str) -> None:
    """In a process of its own, whose limit cannot be raised again."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < hard:
        pytest.skip("this process may open fewer files")
    script = (
        "import logging, resource\n"
        "logging.basicConfig()\n"
        "from service.descriptors import settings_within_files\n"
        "from service.settings import Settings\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({hard}, {hard}))\n"
        "settings_within_files(Settings())\n"
    )
    ended = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert printed in ended.stderr
