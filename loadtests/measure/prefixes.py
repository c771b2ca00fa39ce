"""Measure prefixes that outlast their slots: the time to the first token, and what is found.

    python -m loadtests.measure.prefixes first-token --layers 12 --width 768
    python -m loadtests.measure.prefixes hit-rate

Both generate with a decoder of GPT's shape and random weights, which is made and exported first, in
the engine of the server, without a front.
"""

import asyncio
import json
import statistics
import tempfile
from collections import Counter
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from export.exporter import export_any
from export.settings import ExportSettings
from loadtests.load.engine import Prompt, run_one, serving, vocab_size_of
from loadtests.load.turns import times_faster, turns
from models.checkpoints.checkpoint import Checkpoint
from models.data.tokenizer import END_OF_TEXT, byte_level
from models.networks.gpt import GPT, GPTConfig
from service.generation.cache.kv_cache import MIN_REACH
from service.generation.cache.prefix_store import PIECE_TOKENS
from service.generation.sequence import Sequence as Sample
from service.serving.generative_model import GenerativeModel

NAME = "random"
OWN_TOKENS = 16  # of a prompt, behind the system prompt
HEAD_SIZE = 64
WAYS = ("computed", "stored", "in_its_slot")
app = typer.Typer(help=__doc__, no_args_is_help=True)
console = Console()

Shared = Annotated[int, typer.Option(min=PIECE_TOKENS, help="Tokens of a system prompt.")]
Layers = Annotated[int, typer.Option(min=1, help="Layers of the decoder.")]
Width = Annotated[int, typer.Option(min=HEAD_SIZE, help="Its hidden size.")]


@app.command()
def first_token(
    shared: Shared = 1_000,
    layers: Layers = 12,
    width: Width = 768,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds that count.")] = 7,
) -> None:
    """Time to the first token behind a system prompt: computed, stored, or still in its slot."""
    with tempfile.TemporaryDirectory() as folder:
        make_decoder(Path(folder), layers, width, shared + 2 * OWN_TOKENS)
        times_s = asyncio.run(_first_tokens(Path(folder), shared, rounds))
    medians = {f"{way}_ms": statistics.median(each) * 1e3 for way, each in times_s.items()}
    shares = {
        f"{way}_over_computed": asdict(times_faster(times_s["computed"], times_s[way]))
        for way in WAYS[1:]
    }
    console.print_json(json.dumps(medians | shares))


async def _first_tokens(repository: Path, shared: int, rounds: int) -> dict[str, list[float]]:
    """Seconds by way; each turn checks by the counts that it took its way."""
    times_s: dict[str, list[float]] = {way: [] for way in WAYS}
    generator = np.random.default_rng(1)
    async with serving(repository, NAME) as model:
        tokens = partial(random_tokens, generator, vocab_size_of(model))
        system = tokens(shared)
        await _ask(model, system + tokens(OWN_TOKENS))
        for way, counts in turns(WAYS, rounds):
            beginning = tokens(shared) if way == "computed" else system
            if way == "stored":
                for _ in range(2 * MIN_REACH):
                    await _ask(model, tokens(OWN_TOKENS * 2))
            elif way == "in_its_slot":
                await _ask(model, system + tokens(OWN_TOKENS))
            sample = await _ask(model, beginning + tokens(OWN_TOKENS))
            assert _way_of(sample, shared) == way, f"{sample.num_reused_tokens} tokens reused"
            if counts:
                times_s[way].append(sample.timings.time_to_first_token_s)
    return times_s


def _way_of(sample: Sample, shared: int) -> str:
    if sample.num_reused_tokens < PIECE_TOKENS:
        return "computed"
    num_whole = shared - shared % PIECE_TOKENS
    assert sample.num_reused_tokens >= num_whole, "a part of the system prompt"
    return "stored" if sample.num_stored_tokens else "in_its_slot"


@app.command()
def hit_rate(
    shared: Shared = 1_000,
    prompts: Annotated[int, typer.Option(min=2, help="System prompts.")] = 50,
    requests: Annotated[int, typer.Option(min=1, help="Requests of the mix.")] = 500,
    exponent: Annotated[float, typer.Option(min=0, help="Of Zipf's law.")] = 1.0,
    layers: Layers = 1,
    width: Width = HEAD_SIZE,
) -> None:
    """Share of prompt tokens found under a Zipf mix, by how many system prompts the store holds."""
    piece_bytes = 2 * layers * width * 4 * PIECE_TOKENS
    stored = (0, prompts // 10, prompts // 4, prompts // 2, prompts)
    table = Table("the store holds", "prompt tokens found", "of them stored")
    with tempfile.TemporaryDirectory() as folder:
        make_decoder(Path(folder), layers, width, shared + 2 * OWN_TOKENS)
        for count in stored:
            num_bytes = count * -(-shared // PIECE_TOKENS) * piece_bytes
            mix = zipf_mix(prompts, requests, exponent)
            counts = asyncio.run(_mixed(Path(folder), shared, mix, num_bytes))
            found = counts["reused"] / counts["prompt"]
            table.add_row(
                f"{count} of {prompts}",
                f"{found:.1%}",
                f"{counts['stored'] / max(1, counts['reused']):.0%}",
            )
    console.print(table)


def zipf_mix(num_prompts: int, num_requests: int, exponent: float) -> list[int]:
    """The prompt of each request: the n-th most frequent has a share of 1 / n ** exponent."""
    weights = 1.0 / np.arange(1, num_prompts + 1) ** exponent
    drawn = np.random.default_rng(2).choice(num_prompts, num_requests, p=weights / weights.sum())
    return list(drawn.tolist())


async def _mixed(repository: Path, shared: int, mix: list[int], num_bytes: int) -> Counter[str]:
    """Tokens of prompts, and those of them that were reused, and that were stored.

    One request at a time, so that slots are as few as they get: `MIN_REACH`.
    """
    generator, counts = np.random.default_rng(3), Counter[str]()
    async with serving(repository, NAME, prefix_cache_bytes=num_bytes) as model:
        tokens = partial(random_tokens, generator, vocab_size_of(model))
        systems = [tokens(shared) for _ in range(max(mix) + 1)]
        for number in mix:
            sample = await _ask(model, systems[number] + tokens(OWN_TOKENS))
            counts["prompt"] += sample.num_prompt_tokens
            counts["reused"] += sample.num_reused_tokens
            counts["stored"] += sample.num_stored_tokens
    return counts


def random_tokens(generator: np.random.Generator, vocab_size: int, count: int) -> list[int]:
    ids: list[int] = generator.integers(1, vocab_size, count).tolist()
    return ids


async def _ask(model: GenerativeModel, ids: list[int]) -> Sample:
    return await run_one(model, Prompt(ids, 1))


def make_decoder(repository: Path, num_layers: int, width: int, max_tokens: int) -> None:
    """Export a decoder of GPT's shape with random weights, in float32."""
    pieces = {character: index for index, character in enumerate(sorted(ByteLevel.alphabet()))}
    tokenizer = byte_level(BPE(pieces, []))
    tokenizer.add_special_tokens([END_OF_TEXT])
    vocab_size = tokenizer.get_vocab_size()
    torch.manual_seed(0)
    sizes = {
        "vocab_size": vocab_size,
        "hidden_size": width,
        "num_layers": num_layers,
        "num_heads": width // HEAD_SIZE,
        "intermediate_size": 4 * width,
        "max_positions": max_tokens,
        "eos_token_id": vocab_size - 1,
    }
    checkpoint = Checkpoint(
        model=GPT(GPTConfig(**sizes)).eval(),  # type: ignore[arg-type]
        task="text-generation",
        labels=(),
        tokenizer=tokenizer,
        max_tokens=max_tokens,
        origin="random weights",
    )
    export_any(checkpoint, ExportSettings(NAME, repository, "fp32"))


if __name__ == "__main__":
    app()
