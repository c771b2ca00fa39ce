"""A plugin of pytest for `make mutants`: the quickest tests go first, by what mutmut measured.

The first test that fails ends a mutant's run, so most mutants end within the quick ones.
"""

import json
from pathlib import Path

import pytest

DURATIONS = Path("mutmut-stats.json")  # where mutmut runs pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if DURATIONS.exists():
        duration_s = json.loads(DURATIONS.read_text())["duration_by_test"]
        items.sort(key=lambda item: duration_s.get(item.nodeid, 0.0))
