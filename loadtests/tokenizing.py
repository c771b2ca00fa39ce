"""From which size on does tokenizing on another thread pay? Interleaved.

    python -m loadtests.tokenizing --tokenizer model_repository/minilm/1/tokenizer.json

The event loop is blocked for as long as an inline call takes, and for as long as handing
over and taking back take otherwise. Both are timed from the loop, idle.
"""

import asyncio
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from service.tokenizer import TextTokenizer

SENTENCE = "The committee met on Tuesday and could not agree, so it will meet again. "  # 73
SIZES = (64, 256, 1_024, 4_096, 16_384, 65_536)


def main(
    tokenizer: Annotated[Path, typer.Option(help="A tokenizer.json.")],
    rounds: Annotated[int, typer.Option(min=1, help="Rounds per size.")] = 200,
) -> None:
    """Time inline and handed-over tokenizing by size of the text."""
    asyncio.run(_measure(TextTokenizer(tokenizer, 256, 10**6), rounds))


async def _measure(tokenizer: TextTokenizer, rounds: int) -> None:
    loop = asyncio.get_running_loop()
    table = Table("characters", "inline, us (median)", "handed over", "handed over / inline")
    with ThreadPoolExecutor(1) as executor:
        for size in SIZES:
            texts = [(SENTENCE * (size // len(SENTENCE) + 1))[:size]]
            inline, handed = [], []
            for _ in range(rounds):
                started_s = time.perf_counter()
                tokenizer.encode(texts, True)
                between_s = time.perf_counter()
                await loop.run_in_executor(executor, tokenizer.encode, texts, True)
                inline.append(between_s - started_s)
                handed.append(time.perf_counter() - between_s)
            ratio = statistics.median(b / a for a, b in zip(inline, handed, strict=True))
            medians = (f"{statistics.median(side) * 1e6:.0f}" for side in (inline, handed))
            table.add_row(str(size), *medians, f"{ratio:.2f}")
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
