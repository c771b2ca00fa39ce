"""What does a wider beam find, and what does it cost? Against greed, over texts that people wrote.

    python -m loadtests.beams --repository model_repository --model gpt

Prompts are the beginnings of topics of Python's own documentation. Every output has the same number
of tokens, so that their log probabilities can be compared.
"""

import asyncio
import statistics
import time
from dataclasses import dataclass
from pydoc_data.topics import topics

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from loadtests.generation import Model, Repository, serving
from service.generation.model import GenerativeModel
from service.generation.sampling_params import SamplingParams

WIDTHS = (1, 2, 4, 8, 16)
MAX_CHARACTERS = 500  # of a topic, which prompts are taken from


@dataclass(frozen=True, slots=True)
class Found:
    """One output."""

    score: float  # its log probability
    total_s: float
    cpu_s: float  # of this process: all of its threads


def main(
    repository: Repository,
    model: Model,
    prompts: int = 24,
    prompt_tokens: int = 32,
    tokens: int = 32,
) -> None:
    """Search with each width in turn, one request at a time."""
    found = asyncio.run(_measure(repository, model, prompts, prompt_tokens, tokens))
    table = Table("beam_width", "log probability", "better than greedy", "ms a token", "CPU ms")
    for width, outputs in found.items():
        pairs = zip(outputs, found[WIDTHS[0]], strict=True)
        num_better = sum(output.score > greedy.score + 1e-3 for output, greedy in pairs)
        table.add_row(
            str(width),
            f"{statistics.mean(output.score for output in outputs):.2f}",
            f"{num_better} of {len(outputs)}",
            f"{statistics.median(output.total_s for output in outputs) / tokens * 1e3:.2f}",
            f"{statistics.median(output.cpu_s for output in outputs) / tokens * 1e3:.2f}",
        )
    Console().print(table)


async def _measure(
    repository: Repository, name: str, num_prompts: int, prompt_tokens: int, num_tokens: int
) -> dict[int, list[Found]]:
    found: dict[int, list[Found]] = {width: [] for width in WIDTHS}
    async with serving(repository, name) as model:
        texts = [topics[topic] for topic in sorted(topics)]
        prompts = [
            model.tokenizer.encode(text[:MAX_CHARACTERS])[:prompt_tokens].tolist()
            for text in texts
            if text
        ]
        for prompt in track(prompts[:num_prompts], description="prompts"):
            for width in WIDTHS:  # in turn, so that a busy minute is everybody's
                found[width].append(await _search(model, prompt, width, num_tokens))
    return found


async def _search(model: GenerativeModel, prompt: list[int], width: int, num_tokens: int) -> Found:
    params = SamplingParams(
        temperature=0.0,
        max_tokens=num_tokens,
        ignore_eos=True,
        beam_width=width,
        logprobs=0,
    )
    started_s, started_cpu_s = time.monotonic(), time.process_time()
    score = 0.0
    async with model.generate(prompt, params, received_s=started_s) as generation:
        async for chunk in generation:
            score += sum(each.logprob for each in chunk.logprobs)
    return Found(score, time.monotonic() - started_s, time.process_time() - started_cpu_s)


if __name__ == "__main__":
    typer.run(main)
