"""Beam search over exported graphs, among texts and samples: what PyTorch finds without a cache."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from export.checks.encoder_decoding import open_graphs
from service.generation.decoders.decoder import OnnxDecoder
from service.generation.decoders.decoder_interface import SlotDecoder
from service.generation.engine import GenerationEngine
from service.runtime.session import OnnxSession, SessionOptions
from tests.fakes import tiny_gpt, tiny_transformer
from tests.fakes.beams import reference_search
from tests.fakes.generation import ask_all, engine_on, read, request_of, within_patience

NUM_SLOTS = 9
SEARCHES: list[dict[str, Any]] = [
    {"beam_width": 4, "n": 4, "max_tokens": 12},
    {"beam_width": 3, "n": 1, "max_tokens": 9, "length_penalty": 0.0},
    {"beam_width": 8, "n": 5, "max_tokens": 6, "length_penalty": 2.0},
    {"beam_width": 2, "n": 2, "max_tokens": 16, "min_tokens": 16},
]


GPT = tiny_gpt.tiny_gpt()
TRANSFORMER = tiny_transformer.tiny_transformer()


def after_prompt(prompt: list[int], output: Sequence[int]) -> np.ndarray:
    """The GPT's logits after a prompt and an output, as a whole."""
    logits: np.ndarray = tiny_gpt.torch_logits(GPT, [*prompt, *output])[-1]
    return logits


def after_source(source: list[int], output: Sequence[int]) -> np.ndarray:
    """The same of the encoder-decoder."""
    logits: np.ndarray = tiny_transformer.torch_logits(TRANSFORMER, source, output)[-1]
    return logits


def gpt_decoder() -> SlotDecoder:
    session = OnnxSession(tiny_gpt.tiny_graph().SerializeToString(), SessionOptions())
    max_tokens = tiny_gpt.MAX_TOKENS
    return OnnxDecoder(session, num_slots=NUM_SLOTS, max_tokens=max_tokens, max_rows=NUM_SLOTS)


def encoder_decoder() -> SlotDecoder:
    graphs = tiny_transformer.tiny_graphs()
    return open_graphs(TRANSFORMER, *graphs, num_slots=NUM_SLOTS)


GPT_LIMITS = {"max_prefill_tokens": 24}  # so that some prompts go in chunks
SOURCE_LIMITS = {"can_reuse_prefixes": False, "has_whole_prompts": True}


@pytest.mark.parametrize(
    ("open_decoder", "limits", "logits_after"),
    [
        pytest.param(gpt_decoder, GPT_LIMITS, after_prompt, id="gpt"),
        pytest.param(encoder_decoder, SOURCE_LIMITS, after_source, id="encoder-decoder"),
    ],
)
async def test_searches_find_what_recomputing_finds(
    open_decoder: Any,
    limits: dict[str, Any],
    logits_after: Any,
) -> None:
    """Four searches of other widths for prompts of 1 to 40 tokens, beside four texts, 9 slots."""
    prompts = tiny_gpt.random_prompts((1, 7, 23, 40), seed=4)
    async with engine_on(open_decoder(), **limits) as engine:
        searches = [
            searched(engine, prompt, params)
            for prompt, params in zip(prompts, SEARCHES, strict=True)
        ]
        texts = [ask_all(engine, request_of(prompt, max_tokens=20)) for prompt in prompts]
        found, _ = await within_patience(
            asyncio.gather(asyncio.gather(*searches), asyncio.gather(*texts))
        )
    for prompt, params, outputs in zip(prompts, SEARCHES, found, strict=True):
        wanted = reference_search(partial(logits_after, prompt), **params)
        assert [ids for ids, _ in outputs] == [ids for ids, _ in wanted]
        assert [score for _, score in outputs] == pytest.approx([s for _, s in wanted], abs=1e-3)


async def searched(
    engine: GenerationEngine, prompt: list[int], params: dict[str, Any]
) -> list[Any]:
    async with engine.generate(request_of(prompt, **params)) as generation:
        await read(generation)
    return [
        (s.token_ids[s.num_prompt_tokens : s.num_tokens].tolist(), s.score)
        for s in generation.sequences
    ]
