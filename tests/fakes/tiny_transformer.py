"""A tiny encoder-decoder with random weights, and both its graphs.

Its weights are large, so that what it says next depends on all of the source and on all that it
said before: a cache that is wrong in one place would give other tokens.
"""

# ruff: noqa: N806 - suffixes are array layouts

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
import torch

from export.graphs.encoder_decoder import trace_encoder, trace_target_decoder
from models.checkpoints.checkpoint import Checkpoint
from models.data.pair_tokenizer import train_pair_tokenizer
from models.networks.layers import FeedForward
from models.networks.transformer import DecoderLayer, Transformer, TransformerConfig
from tests.fakes.tiny import randomise

MAX_POSITIONS = 40  # of source and of target
NUM_LAYERS, NUM_HEADS, HEAD_SIZE = 2, 4, 16
VOCAB_SIZE = 270
CONFIG = TransformerConfig(
    vocab_size=VOCAB_SIZE,
    hidden_size=NUM_HEADS * HEAD_SIZE,
    num_layers=NUM_LAYERS,
    num_heads=NUM_HEADS,
    intermediate_size=128,
    max_positions=MAX_POSITIONS,
)


def tiny_transformer(seed: int = 0, **changes: Any) -> Transformer:
    sizes = {**CONFIG.to_dict(), **changes}
    network = Transformer(TransformerConfig(**sizes))
    randomise(network, seed)
    with torch.no_grad():  # or it would say one token again and again, whatever it read last
        for layer in network.decoder:
            assert isinstance(layer, DecoderLayer)
            assert isinstance(layer.feed_forward, FeedForward)
            layer.feed_forward.contract.weight *= 4.0
            layer.cross_attention.output.weight *= 0.3
    return network.eval()


def tiny_writer(network: Transformer | None = None, max_tokens: int | None = None) -> Checkpoint:
    """A checkpoint of a network, by default `tiny_transformer()`."""
    network = network or tiny_transformer()
    return Checkpoint(
        model=network,
        task="text-generation",
        labels=(),
        tokenizer=train_pair_tokenizer(["on the 3rd of March, 2021"], VOCAB_SIZE),
        max_tokens=max_tokens or network.config.max_positions,
        origin="random weights",
    )


@cache
def tiny_graphs() -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """Of `tiny_transformer()`: encoder and decoder, made once; not to be changed."""
    network = tiny_transformer()
    return trace_encoder(network), trace_target_decoder(network)


def random_sources(lengths: Sequence[int], seed: int = 0) -> list[list[int]]:
    """Ids that mean nothing special."""
    generator = np.random.default_rng(seed)
    return [generator.integers(3, VOCAB_SIZE, size=length).tolist() for length in lengths]


def torch_logits(network: Transformer, source: Sequence[int], said: Sequence[int]) -> np.ndarray:
    """Float32 [T + 1, V] of what follows the start and each token said, computed as a whole."""
    source_1S = torch.tensor([list(source)])
    target_1T = torch.tensor([[network.config.start_token_id, *said]])
    with torch.inference_mode():
        logits: np.ndarray = network(source_1S, torch.ones_like(source_1S), target_1T)[0].numpy()
    return logits


def greedy(network: Transformer, source: Sequence[int], num_tokens: int) -> list[int]:
    """What the slow reference says, its end included."""
    source_1S = torch.tensor([list(source)])
    said, _ = network.greedy(source_1S, torch.ones_like(source_1S), num_tokens)
    tokens: list[int] = said[0].tolist()
    end = network.config.end_token_id
    return tokens[: tokens.index(end) + 1] if end in tokens else tokens
