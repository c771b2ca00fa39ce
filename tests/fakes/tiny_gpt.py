"""A tiny decoder with random weights, its tokenizer of bytes, and text that it likes.

Its weights are large, so that what it says next depends on all that came before: a cache that is
wrong in one place would give other tokens.
"""

import string
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
import torch
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from export.graphs.cached_decoder import DecoderNetwork, trace_decoder
from export.precision.blockwise import quantize_blocks
from export.precision.per_token import quantize_rows
from models.checkpoints.checkpoint import Checkpoint
from models.data.tokenizer import END_OF_TEXT, byte_level
from models.networks.gpt import GPT, GPTConfig
from service.contract.manifest import Precision
from service.generation.decoders.decoder import OnnxDecoder
from tests.fakes.tiny import randomise

MAX_TOKENS = 96
NUM_LAYERS, NUM_HEADS, HEAD_SIZE = 2, 4, 16
VOCAB_SIZE = 257  # a token for each byte, and one that ends a text
TEXT_IDS = [sorted(ByteLevel.alphabet()).index(character) for character in string.ascii_letters]


def tiny_gpt(seed: int = 0, **changes: Any) -> GPT:
    sizes: dict[str, Any] = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": NUM_HEADS * HEAD_SIZE,
        "num_layers": NUM_LAYERS,
        "num_heads": NUM_HEADS,
        "intermediate_size": 128,
        "max_positions": MAX_TOKENS,
        "eos_token_id": VOCAB_SIZE - 1,
    }
    network = GPT(GPTConfig(**(sizes | changes)))
    randomise(network, seed)
    return network.eval()


def byte_tokenizer() -> Tokenizer:
    """A token for each byte, and one that ends a text."""
    pieces = {character: token for token, character in enumerate(sorted(ByteLevel.alphabet()))}
    tokenizer = byte_level(BPE(pieces, []))
    tokenizer.add_special_tokens([END_OF_TEXT])
    return tokenizer


def tiny_generator(network: GPT | None = None, max_tokens: int | None = None) -> Checkpoint:
    """A checkpoint of a network, by default `tiny_gpt()`."""
    network = network or tiny_gpt()
    return Checkpoint(
        model=network,
        task="text-generation",
        labels=(),
        tokenizer=byte_tokenizer(),
        max_tokens=max_tokens or network.config.max_positions,
        origin="random weights",
    )


def tiny_graph(precision: Precision = "fp32") -> onnx.ModelProto:
    """The graph of `tiny_gpt()`, made once; not to be changed."""
    return _make_graph(precision)


@cache
def _make_graph(precision: Precision) -> onnx.ModelProto:
    if precision in ("fp32", "fp16"):
        return trace_decoder(tiny_gpt(), precision=precision)
    if precision == "int8":
        return quantize_rows(tiny_graph())
    return quantize_blocks(tiny_graph(), bits=8 if precision == "int8-weights" else 4)


def random_prompts(lengths: Sequence[int], seed: int = 0) -> list[list[int]]:
    generator = np.random.default_rng(seed)
    return [generator.integers(VOCAB_SIZE, size=length).tolist() for length in lengths]


def torch_logits(network: DecoderNetwork, ids: Sequence[int]) -> np.ndarray:
    """Float32 [S, V], recomputed from scratch."""
    with torch.inference_mode():
        logits: np.ndarray = network(torch.tensor([list(ids)]))[0].numpy()
    return logits


def run(
    decoder: OnnxDecoder, first_slot: int, rows: Sequence[Sequence[int]], num_past: Sequence[int]
) -> np.ndarray:
    """Logits [B, V] of the rows' last tokens, which the next run leaves alone."""
    return decoder.run(first_slot, [np.array(row) for row in rows], num_past).whole().copy()


def continued(
    decoder: OnnxDecoder,
    first_slot: int,
    rows: Sequence[Sequence[int]],
    logits: np.ndarray,
    num_tokens: int,
) -> list[list[int]]:
    """Greedy tokens after rows that are in the cache; `logits` [B, V] are of their last tokens."""
    found = [[int(best)] for best in logits.argmax(axis=1)]
    for step in range(num_tokens - 1):
        past = [len(row) + step for row in rows]
        logits = run(decoder, first_slot, [tokens[-1:] for tokens in found], past)
        for tokens, best in zip(found, logits.argmax(axis=1), strict=True):
            tokens.append(int(best))
    return found


def liked_text(network: DecoderNetwork, num_windows: int, temperature: float = 0.5) -> str:
    """Windows of `MAX_TOKENS` letters, drawn from what the network expects: it is not surprised.

    On text of other kinds a random network is so wrong that rounding it may do it good.
    """
    generator = torch.Generator().manual_seed(0)
    allowed = torch.tensor(TEXT_IDS)
    ids = allowed[torch.randint(len(allowed), (num_windows, 1), generator=generator)]
    with torch.inference_mode():
        while ids.shape[1] < MAX_TOKENS:
            logits = network(ids)[:, -1, allowed] / temperature
            drawn = torch.multinomial(torch.softmax(logits, dim=-1), 1, generator=generator)
            ids = torch.cat([ids, allowed[drawn]], dim=1)
    letters = dict(zip(TEXT_IDS, string.ascii_letters, strict=True))
    return "".join(letters[token] for token in ids.flatten().tolist())
