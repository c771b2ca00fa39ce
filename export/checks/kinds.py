"""A large decoder's graph checked in float32 by one layer of each kind, before it is rounded.

A graph of rounded weights is compared with itself, which cannot tell a wrong window, scale or
rotation: prompts and steps have it alike. The whole graph in float32 would tell, and takes four
bytes of memory for each weight. Layers differ in their windows and rotations alone, so a network
of one layer of each kind and of few words is traced by the same code and compared exactly.
"""

from dataclasses import replace

import torch
from torch import nn

from export.checks.decoding import (
    NUM_STEPS_OF_LARGE,
    PROMPT_TOKENS,
    DecoderParity,
    measure_parity,
)
from export.graphs.cached_decoder import DecoderNetwork, trace_decoder
from models.networks.gpt import GPT
from models.networks.llama import Llama

MAX_WORDS = 1_024
LONGEST_WINDOW = 4_096  # of those that a prompt reaches over
BEYOND = 9  # tokens of that prompt behind the window


def measure_kinds(network: DecoderNetwork) -> tuple[DecoderNetwork, DecoderParity]:
    """A network of one layer of each kind, and how far its graph is from it.

    Beside the usual prompts one is longer than the longest window.
    """
    small = one_of_each_kind(network)
    windows = small.config.windows if isinstance(small, Llama) else ()
    longest = max((each for each in windows if each <= LONGEST_WINDOW), default=0)
    prompts = (*PROMPT_TOKENS, longest + BEYOND) if longest > max(PROMPT_TOKENS) else PROMPT_TOKENS
    graph = trace_decoder(small)
    parity = measure_parity(
        small, graph, is_exact=True, prompt_tokens=prompts, num_steps=NUM_STEPS_OF_LARGE
    )
    return small, parity


@torch.inference_mode()
def one_of_each_kind(network: DecoderNetwork) -> DecoderNetwork:
    """A network of the first layer of each kind, with the first words; it shares the weights."""
    config, num_words = network.config, min(network.config.vocab_size, MAX_WORDS)
    few_words = nn.Embedding(
        num_words, config.hidden_size, _weight=network.words.weight[:num_words]
    )
    if isinstance(network, GPT):
        gpt_config = replace(network.config, num_layers=1, vocab_size=num_words, eos_token_id=0)
        with torch.device("meta"):
            gpt = GPT(gpt_config)
        gpt.words, gpt.positions, gpt.norm = few_words, network.positions, network.norm
        gpt.layers = network.layers[:1]
        return gpt.eval()
    config = network.config
    first: dict[tuple[int, int], int] = {}
    for index, kind in enumerate(zip(config.windows, config.layer_ropes, strict=True)):
        first.setdefault(kind, index)
    chosen = list(first.values())
    with torch.device("meta"):
        llama = Llama(
            replace(
                config,
                num_layers=len(chosen),
                vocab_size=num_words,
                eos_token_ids=(0,),
                windows=tuple(config.windows[index] for index in chosen),
                layer_ropes=tuple(config.layer_ropes[index] for index in chosen),
            )
        )
    llama.words, llama.norm = few_words, network.norm
    llama.layers = nn.ModuleList(network.layers[index] for index in chosen)
    if network.output is not None and llama.output is not None:
        llama.output.weight = nn.Parameter(network.output.weight[:num_words], requires_grad=False)
    return llama.eval()
