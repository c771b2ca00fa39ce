"""Sequences over blocks, used as slots, give what each gives by itself."""

import numpy as np
import pytest

from export.checks.decoding import Greedy
from loadtests.gpu.references import PagedRows
from tests.fakes.paged import PagedDecoder

MAX_TOKENS, BLOCK_SIZE = 20, 8


def test_sequences_over_blocks_give_what_they_give_alone() -> None:
    """Prompts of 1, 9 and 13 tokens and 6 steps, over three blocks of eight tokens each."""
    decoder = PagedDecoder(num_blocks=9, block_size=BLOCK_SIZE, max_rows=3)
    rows = PagedRows(decoder, MAX_TOKENS)
    assert rows.num_slots == 3
    generator = np.random.default_rng(0)
    prompts = [generator.integers(decoder.vocab_size, size=size).tolist() for size in (1, 9, 13)]
    greedy = Greedy(rows, prompts, 0, num_steps=6)
    for prompt, row, steps in zip(prompts, greedy.rows, greedy.logits, strict=True):
        alone = decoder.alone(np.array(row[:-1]))[len(prompt) - 1 :]
        np.testing.assert_allclose(steps, alone, atol=1e-5)
    last = Greedy(rows, prompts[-1:], 2, num_steps=6).logits
    np.testing.assert_allclose(last[0], greedy.logits[-1], atol=1e-5)


def test_more_sequences_than_blocks_are_refused() -> None:
    rows = PagedRows(PagedDecoder(num_blocks=5, block_size=BLOCK_SIZE, max_rows=9), MAX_TOKENS)
    assert rows.num_slots == 1
    with pytest.raises(AssertionError, match="no blocks"):
        rows.run(1, [np.array([1])], [0])
