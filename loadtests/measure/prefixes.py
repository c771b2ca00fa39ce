"""Prefixes that outlast their slots: the time to the first token.

    python -m loadtests.measure prefixes --layers 12 --width 768

A decoder of GPT's shape and random weights is made and exported first; it generates in the engine
of the server, without a front.
"""

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from loadtests.load.engine import Prompt, run_one, serving, vocab_size_of
from loadtests.measure.generation import Loop
from loadtests.measure.records import Column, Measure, Options, Turn, Way, by_columns, option
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


def prefix_ways(options: PrefixOptions, stack: ExitStack) -> dict[str, Way]:
    """The first token behind a system prompt; a turn checks by counts that it took its way."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    make_decoder(folder, options.layers, options.width, options.shared + 2 * OWN_TOKENS)
    loop = Loop(stack)
    model = loop.enter(serving(folder, NAME))
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
    "Generation",
    PrefixOptions,
    prefix_ways,
    by_columns(
        Column("first token", "seconds", "ms"),
        Column("time over computing it", "seconds", over=COMPUTED),
    ),
)


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
