"""Prefixes that outlast their slots: the time to the first token, and what is found.

    python -m loadtests.measure prefixes --layers 12 --width 768
    python -m loadtests.measure hit-rate

Both generate with a decoder of GPT's shape and random weights, which is made and exported first, in
the engine of the server, without a front.
"""

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from loadtests.load.engine import Prompt, run_one, serving, vocab_size_of
from loadtests.measure.generation import Loop
from loadtests.measure.records import (
    Column,
    Measure,
    Options,
    Turn,
    Way,
    by_columns,
    option,
)
from service.generation.cache.kv_cache import MIN_REACH
from service.generation.cache.prefix_store import PIECE_TOKENS
from service.generation.sequence import Sequence as Sample
from service.serving.generative_model import GenerativeModel

NAME = "random"
OWN_TOKENS = 16  # of a prompt, behind the system prompt
HEAD_SIZE = 64
COMPUTED, STORED, IN_ITS_SLOT = "computed", "from the store", "still in its slot"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixOptions(Options):
    """A decoder, and the system prompt."""

    shared: int = option(1_000, "Tokens of a system prompt.", min=PIECE_TOKENS)
    layers: int = option(6, "Layers of the decoder.", min=1)
    width: int = option(512, "Its hidden size.", min=HEAD_SIZE)
    rounds: int = option(7, "Rounds that count.", min=1)

    def decoder(self, stack: ExitStack) -> Path:
        """A repository with the decoder; gone with the stack."""
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        make_decoder(folder, self.layers, self.width, self.shared + 2 * OWN_TOKENS)
        return folder


def prefix_ways(options: PrefixOptions, stack: ExitStack) -> dict[str, Way]:
    """The first token behind a system prompt; a turn checks by counts that it took its way."""
    loop = Loop(stack)
    model = loop.enter(serving(options.decoder(stack), NAME))
    tokens = partial(random_tokens, np.random.default_rng(1), vocab_size_of(model))
    system = tokens(options.shared)
    loop.run(ask(model, system + tokens(OWN_TOKENS)))

    async def first_token(way: str) -> Turn:
        beginning = tokens(options.shared) if way == COMPUTED else system
        if way == STORED:
            for _ in range(2 * MIN_REACH):
                await ask(model, tokens(OWN_TOKENS * 2))
        elif way == IN_ITS_SLOT:
            await ask(model, system + tokens(OWN_TOKENS))
        sample = await ask(model, beginning + tokens(OWN_TOKENS))
        taken = way_of(sample, options.shared)
        assert taken == way, f"{sample.num_reused_tokens} tokens reused"
        return {"seconds": sample.timings.time_to_first_token_s}

    return {
        way: partial(lambda way: loop.run(first_token(way)), way)
        for way in (COMPUTED, STORED, IN_ITS_SLOT)
    }


def way_of(sample: Sample, shared: int) -> str:
    """Where the system prompt of a sequence came from, by its counts."""
    if sample.num_reused_tokens < PIECE_TOKENS:
        return COMPUTED
    num_whole = shared - shared % PIECE_TOKENS
    assert sample.num_reused_tokens >= num_whole, "a part of the system prompt"
    return STORED if sample.num_stored_tokens else IN_ITS_SLOT


PREFIXES = Measure(
    "prefixes",
    "Time to the first token behind a system prompt: computed, stored, or still in its slot",
    "Prefixes",
    PrefixOptions,
    prefix_ways,
    by_columns(
        Column("first token", "seconds", "ms"),
        Column("time over computing it", "seconds", over=COMPUTED),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HitRateOptions(PrefixOptions):
    """The mix of requests."""

    prompts: int = option(50, "System prompts.", min=2)
    requests: int = option(300, "Requests of the mix.", min=1)
    exponent: float = option(1.0, "Of Zipf's law.", min=0)
    layers: int = option(1, "Layers of the decoder.", min=1)
    width: int = option(HEAD_SIZE, "Its hidden size.", min=HEAD_SIZE)
    rounds: int = option(1, "Rounds that count.", min=1)
    warm_up: int = option(0, "Rounds before them.", min=0)


def hit_rate_ways(options: HitRateOptions, stack: ExitStack) -> dict[str, Way]:
    """Stores of several sizes under one mix.

    One request at a time, so that slots are as few as they get: `MIN_REACH`.
    """
    loop, folder = Loop(stack), options.decoder(stack)
    prompt_bytes = -(-options.shared // PIECE_TOKENS) * (
        2 * options.layers * options.width * 4 * PIECE_TOKENS
    )
    mix = zipf_mix(options.prompts, options.requests, options.exponent)

    async def mixed(num_stored: int) -> Turn:
        num_bytes = num_stored * prompt_bytes
        async with serving(folder, NAME, prefix_cache_bytes=num_bytes) as model:
            tokens = partial(random_tokens, np.random.default_rng(3), vocab_size_of(model))
            systems = [tokens(options.shared) for _ in range(max(mix) + 1)]
            samples = [await ask(model, systems[each] + tokens(OWN_TOKENS)) for each in mix]
        reused = sum(each.num_reused_tokens for each in samples)
        stored = sum(each.num_stored_tokens for each in samples)
        found = reused / sum(each.num_prompt_tokens for each in samples)
        return {"found": found, "stored": stored / max(1, reused)}

    counts = (0, options.prompts // 10, options.prompts // 4, options.prompts // 2, options.prompts)
    return {
        f"{count} of {options.prompts}": partial(lambda count: loop.run(mixed(count)), count)
        for count in counts
    }


HIT_RATE = Measure(
    "hit-rate",
    "Share of prompt tokens found under a Zipf mix, by how many system prompts the store holds",
    "Prefixes",
    HitRateOptions,
    hit_rate_ways,
    by_columns(
        Column("prompt tokens found", "found", "%"),
        Column("of them stored", "stored", "%"),
    ),
)


def zipf_mix(num_prompts: int, num_requests: int, exponent: float) -> list[int]:
    """The prompt of each request: the n-th most frequent has a share of 1 / n ** exponent."""
    weights = 1.0 / np.arange(1, num_prompts + 1) ** exponent
    drawn = np.random.default_rng(2).choice(num_prompts, num_requests, p=weights / weights.sum())
    return list(drawn.tolist())


def random_tokens(generator: np.random.Generator, vocab_size: int, count: int) -> list[int]:
    ids: list[int] = generator.integers(1, vocab_size, count).tolist()
    return ids


async def ask(model: GenerativeModel, ids: list[int]) -> Sample:
    return await run_one(model, Prompt(ids, 1))


def make_decoder(repository: Path, num_layers: int, width: int, max_tokens: int) -> None:
    """Export a decoder of GPT's shape with random weights, in float32."""
    import torch
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel

    from export.exporter import export_any
    from export.settings import ExportSettings
    from models.checkpoints.checkpoint import Checkpoint
    from models.data.tokenizer import END_OF_TEXT, byte_level
    from models.networks.gpt import GPT, GPTConfig

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
