"""Kinds of traffic by name: the same seeded rows and prompts for all engines and servers.

Lengths of the texts are those that `lengths.toml` counted in real ones; or give files of texts,
one a line.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from loadtests.compare.llamas import SHAPES
from loadtests.compare.models import random_prompt, random_row
from loadtests.compare.worker import Work
from loadtests.load.lengths import SEED, WINDOW_ROWS, Sizes

CLASSIFY, GENERATE, EMBED, RERANK = "classify", "generate", "embed", "rerank"
BATCH_ROWS = 8
Make: TypeAlias = Callable[[Sizes], Work]


@dataclass(frozen=True, slots=True)
class Traffic:
    """One kind of work: what it is, and how to make it for the full or the quick mode."""

    name: str
    task: str
    what: str
    full: Make
    quick: Make | None = None  # None is left out of the quick mode


def fixed_rows(count: int, size: int = 128) -> Work:
    """Rows of the same length in batches of eight: nothing to pad."""
    generator = np.random.default_rng(SEED)
    return Work([random_row(generator, size) for _ in range(count)], BATCH_ROWS)


def real_rows(sizes: Sequence[int]) -> Work:
    """Rows of these lengths, sorted within a window, so that batches have little padding."""
    generator = np.random.default_rng(SEED)
    rows = [random_row(generator, size) for size in sizes]
    windows = (rows[start : start + WINDOW_ROWS] for start in range(0, len(rows), WINDOW_ROWS))
    return Work([row for window in windows for row in sorted(window, key=len)], BATCH_ROWS)


def prompts(
    concurrency: int,
    count: int,
    prompt_sizes: tuple[int, int] = (16, 128),
    output_sizes: tuple[int, int] = (8, 64),
) -> Work:
    """Prompts to continue; both ends of the ranges are included."""
    generator = np.random.default_rng(SEED + concurrency)
    first, last = prompt_sizes
    rows = [random_prompt(generator, size) for size in generator.integers(first, last + 1, count)]
    outputs = generator.integers(output_sizes[0], output_sizes[1] + 1, count).tolist()
    return Work(rows, concurrency, outputs)


def _mixed(level: int, quick: bool) -> Traffic:
    return Traffic(
        f"mixed-{level}",
        GENERATE,
        f"{level} in flight, prompts of 16 to 128 tokens, outputs of 8 to 64",
        lambda _: prompts(level, max(4, 2 * level)),
        (lambda _: prompts(level, max(2, level))) if quick else None,
    )


def _equal(level: int) -> Traffic:
    """Nearly decoding alone."""
    return Traffic(
        f"equal-{level}",
        GENERATE,
        f"{level} in flight, prompts of 16 tokens, outputs of 64",
        lambda _: prompts(level, max(2, level), (16, 16), (64, 64)),
    )


TRAFFIC: tuple[Traffic, ...] = (
    Traffic(
        "fixed",
        CLASSIFY,
        "batches of 8 rows of 128 tokens",
        lambda _: fixed_rows(48),
        lambda _: fixed_rows(16),
    ),
    Traffic(
        "real",
        CLASSIFY,
        "reviews, SMS and passages in batches of 8, sorted within 32",
        lambda sizes: real_rows(sizes(128)),
        lambda sizes: real_rows(sizes(32)),
    ),
    _mixed(1, quick=True),
    _mixed(8, quick=True),
    _mixed(32, quick=False),
    _equal(1),
    _equal(8),
    _equal(32),
)

LEVELS = (1, 8, 32)  # requests in flight


def _of_llama(model: str, level: int) -> tuple[Traffic, Traffic]:
    """As GPT-2's traffic, with half the outputs in the quick mode."""
    return (
        Traffic(
            f"{model}-alone-{level}",
            GENERATE,
            f"{level} in flight, prompts of 16 tokens, outputs of 64 (quick: 32)",
            lambda _: prompts(level, max(2, level), (16, 16), (64, 64)),
            lambda _: prompts(level, max(2, level), (16, 16), (32, 32)),
        ),
        Traffic(
            f"{model}-mixed-{level}",
            GENERATE,
            f"{level} in flight, prompts of 16 to 128 tokens, outputs of 8 to 64 (quick: 32)",
            lambda _: prompts(level, max(4, 2 * level)),
            lambda _: prompts(level, max(3, 3 * level // 2), output_sizes=(8, 32)),
        ),
    )


LLAMA_TRAFFIC: dict[str, tuple[Traffic, ...]] = {
    model: tuple(each for level in LEVELS for each in _of_llama(model, level)) for model in SHAPES
}
