"""A tiny decoder of Llama's kind with random weights; its tokenizer is one of bytes."""

from typing import Any

from models.checkpoints.checkpoint import Checkpoint
from models.networks.llama import Llama, LlamaConfig
from tests.fakes.tiny import randomise
from tests.fakes.tiny_gpt import MAX_TOKENS, VOCAB_SIZE, byte_tokenizer


def tiny_llama(seed: int = 0, **changes: Any) -> Llama:
    sizes: dict[str, Any] = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 64,
        "num_layers": 3,
        "num_heads": 4,
        "num_kv_heads": 2,
        "intermediate_size": 96,
        "max_positions": MAX_TOKENS,
        "eos_token_ids": (VOCAB_SIZE - 1,),
    }
    network = Llama(LlamaConfig.plain(**(sizes | changes)))
    randomise(network, seed)
    return network.eval()


def tiny_llama_generator(network: Llama | None = None) -> Checkpoint:
    """A checkpoint of a network, by default `tiny_llama()`."""
    network = network or tiny_llama()
    most = network.config.max_positions
    return Checkpoint(network, "text-generation", (), byte_tokenizer(), most, "tiny-llama")
