"""What is left of a prompt that is longer than its reading keeps."""

from typing import Any

import pytest

from service.contract.prompt_reading import PromptReading


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({}, [1, 2, 3, 4]),
        ({"max_tokens": 2}, [1, 2, 3, 4]),
        ({"num_kept": 3}, [2, 3, 4]),
        ({"num_kept": 3, "keeps_beginning": True}, [1, 2, 3]),
        ({"num_kept": 3, "max_tokens": 2}, [3, 4]),
        ({"num_kept": 4}, [1, 2, 3, 4]),
        ({"num_kept": 9}, [1, 2, 3, 4]),
    ],
)
def test_a_longer_prompt_keeps_its_end_or_its_beginning(
    options: dict[str, Any], left: list[int]
) -> None:
    """No more than the model takes; one that is not cut is left to be refused."""
    assert PromptReading(**options).cut([1, 2, 3, 4]) == left
