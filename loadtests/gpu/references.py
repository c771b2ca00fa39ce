"""Outputs of an exported graph on the device, and of its PyTorch network in float32 beside them.

One function for each form of model. Graphs run in the server's own sessions and decoders.
"""
# ruff: noqa: N806 - suffixes are array layouts: B rows, S tokens, V vocabulary

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import nn

from export.checks.decoding import random_rows
from export.checks.parity import pad
from export.graphs.attention import longest_text
from export.graphs.cached_decoder import DecoderNetwork
from loadtests.gpu.figures import Outputs
from loadtests.gpu.paged_rows import PagedRows
from models.checkpoints.checkpoint import Checkpoint
from models.networks.attending import attending
from models.networks.gpt import GPT
from models.networks.heads import TextNetwork
from models.networks.llama import Llama
from models.networks.recurrent import RecurrentSeq2Seq
from models.networks.transformer import Transformer
from models.networks.vit import VisionTransformer
from service.contract.manifest import Manifest
from service.contract.tensors import Arrays
from service.generation.choosing.step_logits import StepLogits
from service.generation.decoders.encoder_decoder import SourceLimits, open_encoder_decoder
from service.generation.decoders.opening import CacheLimits, open_decoder
from service.generation.decoders.paged_decoder import open_paged_decoder
from service.runtime.session import OnnxSession, SessionOptions

NUM_ROWS = 8
NUM_STEPS = 24  # tokens that a decoder continues its prompts by
PROMPT_TOKENS = (1, 7, 40, 150)  # fewer where the model takes fewer
CACHE_BYTES = 2**30
CHOICES = ("logits",)  # outputs of which the largest value is the answer


class Rows(Protocol):
    """Sequences of a decoder, whatever keeps them."""

    @property
    def num_slots(self) -> int: ...

    def run(
        self, first_slot: int, rows: Sequence[np.ndarray], num_past: Sequence[int]
    ) -> np.ndarray | StepLogits: ...


def outputs_of(
    kind: str, checkpoint: Checkpoint, graph: Path, options: SessionOptions, device: torch.device
) -> list[Outputs]:
    """What both give for the same inputs, a pair for each output that clients see."""
    network = checkpoint.model.to(device)
    try:
        if kind == "attention":
            return _attention(checkpoint, graph, options, device)
        if isinstance(network, GPT | Llama):
            return _decoder(network, graph, options, device)
        if isinstance(network, Transformer):
            return _encoder_decoder(network, checkpoint.max_tokens, graph, options, device)
        if isinstance(network, RecurrentSeq2Seq):
            return _recurrent(network, graph, options, device)
        if isinstance(network, VisionTransformer):
            return _vision(network, graph, options, device)
        assert isinstance(network, TextNetwork), f"{kind} has no reference"
        return _texts(network, checkpoint.max_tokens, graph, options, device)
    finally:
        checkpoint.model.to("cpu")


def ragged_rows(network: TextNetwork, max_tokens: int, seed: int = 0) -> Arrays:
    """Rows of random tokens, the longest as long as the model takes, the shortest of two."""
    generator = np.random.default_rng(seed)
    lengths = np.linspace(max_tokens, min(2, max_tokens), NUM_ROWS).astype(int)
    rows = [
        network.as_sample(generator.integers(network.vocab_size, size=length).tolist())
        for length in lengths
    ]
    halves = [[0] * (len(row) - len(row) // 2) + [1] * (len(row) // 2) for row in rows]
    return pad(rows, network.pad_token_id, halves if network.has_token_types else ())


def computed(network: nn.Module, inputs: Sequence[np.ndarray], device: torch.device) -> np.ndarray:
    """A network's first output in float32."""
    with torch.inference_mode():
        found = network(*(torch.from_numpy(each).to(device) for each in inputs))
    output: np.ndarray = found.float().cpu().numpy()
    return output


def _texts(
    network: TextNetwork,
    max_tokens: int,
    graph: Path,
    options: SessionOptions,
    device: torch.device,
) -> list[Outputs]:
    session = OnnxSession(graph, options)
    batch = ragged_rows(network, max_tokens)
    names = [spec.name for spec in session.signature.inputs]
    (by_graph,) = session.run({name: batch[name] for name in names}, [network.output_name])
    by_network = computed(network, [batch[name] for name in network.input_names], device)
    return [Outputs(by_graph, by_network, _is_choice(network.output_name, by_network))]


def _is_choice(name: str, values: np.ndarray) -> bool:
    return name in CHOICES and values.shape[-1] > 1


def _attention(
    checkpoint: Checkpoint, graph: Path, options: SessionOptions, device: torch.device
) -> list[Outputs]:
    """Weights of single texts: of attention there are no batches."""
    shown = attending(checkpoint.model).to(device)
    session = OnnxSession(graph, options)
    config = checkpoint.config
    longest = min(checkpoint.max_tokens, longest_text(config.num_layers, config.num_heads), 128)
    generator = np.random.default_rng(0)
    outputs = []
    for length in (longest, max(1, longest // 3)):
        ids = generator.integers(config.vocab_size, size=(1, length))
        batch = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        batch["token_type_ids"] = np.zeros_like(ids)
        inputs = {name: batch[name] for name in shown.inputs}
        (by_graph,) = session.run(inputs, ["attentions"])
        with torch.inference_mode():
            weights, _ = shown(*(torch.from_numpy(each).to(device) for each in inputs.values()))
        rows = (-1, length)  # a query's weights are one row
        outputs.append(Outputs(by_graph.reshape(rows), weights.cpu().numpy().reshape(rows), False))
    return outputs


def _vision(
    network: VisionTransformer, graph: Path, options: SessionOptions, device: torch.device
) -> list[Outputs]:
    config = network.config
    size = (NUM_ROWS, config.channels, config.height, config.width)
    pixels = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    (by_graph,) = OnnxSession(graph, options).run({"pixel_values": pixels}, ["logits"])
    return [Outputs(by_graph, computed(network, [pixels], device), True)]


def _recurrent(
    network: RecurrentSeq2Seq, graph: Path, options: SessionOptions, device: torch.device
) -> list[Outputs]:
    """The attention of every step, over rows of ragged sources whose tokens are the same.

    A token that differs changes all that follows, so only rows up to there are comparable: the
    first step always is.
    """
    config = network.config
    generator = np.random.default_rng(0)
    lengths = np.linspace(config.max_positions, 1, NUM_ROWS).astype(int)
    rows = [generator.integers(3, config.vocab_size, size=length).tolist() for length in lengths]
    source = pad(rows, config.pad_token_id)
    session = OnnxSession(graph, options)
    names = [spec.name for spec in session.signature.outputs]
    tokens, weights = session.run({"source": source["input_ids"]}, names)
    with torch.inference_mode():
        ids, mask = (
            torch.from_numpy(source[name]).to(device) for name in ("input_ids", "attention_mask")
        )
        expected, shown = network.greedy(ids, mask, tokens.shape[1])
    assert shown is not None, "the network was made with attention"
    by_network = shown.float().cpu().numpy()
    is_same = tokens == expected.cpu().numpy()
    # A step depends on the tokens before it: the first that differs was chosen after its weights.
    reached = np.cumprod(np.pad(is_same, ((0, 0), (1, 0)), constant_values=True)[:, :-1], axis=1)
    kept = reached.astype(bool)
    num_same = np.eye(2, dtype=np.float32)[is_same[kept].astype(int)]
    all_same = np.eye(2, dtype=np.float32)[np.ones(int(kept.sum()), int)]
    return [
        Outputs(weights[kept], by_network[kept], False),
        Outputs(num_same, all_same, True),
    ]


def _decoder(
    network: DecoderNetwork, graph: Path, options: SessionOptions, device: torch.device
) -> list[Outputs]:
    config = network.config
    prompts = random_rows(config.vocab_size, PROMPT_TOKENS, config.max_positions // 2)
    decoder = open_rows(graph, options, config.max_positions, len(prompts))
    rows, logits = continued(decoder, prompts, NUM_STEPS)
    by_network = []
    for prompt, row in zip(prompts, rows, strict=True):
        logits_SV = computed(network, [np.array([row])], device)[0]
        by_network.append(logits_SV[len(prompt) - 1 : len(row) - 1])
    return [Outputs(np.concatenate(logits), np.concatenate(by_network), True)]


def _encoder_decoder(
    network: Transformer,
    max_tokens: int,
    graph: Path,
    options: SessionOptions,
    device: torch.device,
) -> list[Outputs]:
    config = network.config
    manifest = Manifest.from_json(graph.with_name("manifest.json").read_text(encoding="utf-8"))
    prompts = random_rows(config.vocab_size, PROMPT_TOKENS, max_tokens)
    limits = CacheLimits(manifest.max_tokens, len(prompts), CACHE_BYTES)
    sources = SourceLimits(max_tokens, config.pad_token_id, config.start_token_id)
    decoder = open_encoder_decoder(graph, options, limits, sources)
    rows, logits = continued(decoder, prompts, min(NUM_STEPS, config.max_positions - 1))
    by_network = []
    for prompt, row in zip(prompts, rows, strict=True):
        source, target = np.array([prompt]), [config.start_token_id, *row[len(prompt) : -1]]
        inputs = [source, np.ones_like(source), np.array([target])]
        by_network.append(computed(network, inputs, device)[0])
    return [Outputs(np.concatenate(logits), np.concatenate(by_network), True)]


def open_rows(graph: Path, options: SessionOptions, max_tokens: int, num_rows: int) -> Rows:
    """A decoder over slots or, by the graph's layout, over blocks, with room for some rows."""
    limits = CacheLimits(max_tokens, num_rows, CACHE_BYTES)
    manifest = Manifest.from_json(graph.with_name("manifest.json").read_text(encoding="utf-8"))
    if manifest.graphs[graph.name].layout == "paged":
        return PagedRows(open_paged_decoder(graph, options, limits), max_tokens)
    return open_decoder(graph, options, limits)


def continued(
    decoder: Rows, prompts: Sequence[Sequence[int]], num_steps: int, first_slot: int = 0
) -> tuple[list[list[int]], list[np.ndarray]]:
    """Prompts with greedy tokens behind them, and the logits [steps, V] each was chosen by."""
    rows, steps = [list(prompt) for prompt in prompts], []
    new, past = rows, [0] * len(rows)
    for _ in range(num_steps):
        logits = decoder.run(first_slot, [np.array(ids) for ids in new], past)
        logits_BV = StepLogits.of(logits).whole().copy()
        steps.append(logits_BV)
        past = [len(row) for row in rows]
        rows = [[*row, int(best)] for row, best in zip(rows, logits_BV.argmax(axis=1), strict=True)]
        new = [row[-1:] for row in rows]
    return rows, list(np.stack(steps, axis=1))
