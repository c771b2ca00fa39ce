"""Folders of families that are traced, served by the one command and asked over HTTP.

`python -m tests.traced --served` asks all rows; these two export in the shortest time.
"""

from pathlib import Path

import pytest

from tests.traced.served import CHATS, READERS, compared

ASKED = ("glm4", "eurobert reranker")


@pytest.mark.long
@pytest.mark.timeout(600)  # two exports, and as many processes that import PyTorch
def test_completions_chats_and_scores_are_those_of_transformers(tmp_path: Path) -> None:
    assert "glm4" in CHATS
    assert READERS.keys() >= {"eurobert reranker"}
    assert set(compared(tmp_path, ASKED).values()) == {"equal"}
