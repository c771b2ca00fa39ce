"""Outputs of an exported graph on the device, and how PyTorch computes the same from its network.

One function for each form of model. Graphs run in the server's own sessions and decoders, which are
opened once: what was opened also says where its nodes are. The same inputs then go through the
network in float32, and in the precision of the graph.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from export.checks.decoding import Greedy, Rows, random_rows
from export.checks.parity import NUM_ROWS, pad, ragged_batch
from export.graphs.attention import longest_text
from loadtests.compare.devices.shapes import Graph
from loadtests.gpu.context import Parts
from models.checkpoints.checkpoint import Checkpoint
from models.networks.attending import attending
from service.generation.choosing.step_logits import StepLogits
from service.generation.decoders.decoder import OnnxDecoder
from service.generation.decoders.decoder_interface import PagedDecoder
from service.generation.decoders.encoder_decoder import SourceLimits, open_encoder_decoder
from service.generation.decoders.opening import CacheLimits, open_decoder
from service.generation.decoders.paged_decoder import open_paged_decoder
from service.generation.steps.packed_scheduler import PackedInputs
from service.runtime.session import OnnxSession, SessionOptions

NUM_STEPS = 24  # tokens that a decoder continues its prompts by
PROMPT_TOKENS = (1, 7, 40, 150)  # fewer where the model takes fewer
CACHE_BYTES = 2**30


@dataclass(slots=True)
class Opening:
    """A graph that is opened, the sessions that this took, and the time that it took."""

    checkpoint: Checkpoint
    graph: Graph
    options: SessionOptions
    parts: Parts = field(default_factory=Parts)
    sessions: list[OnnxSession] = field(default_factory=list)

    def session(self) -> OnnxSession:
        with self.parts.timed("open"):
            session = OnnxSession(self.graph.path, self.options)
        self.sessions.append(session)
        return session

    def rows(self, max_tokens: int, num_rows: int, sources: SourceLimits | None = None) -> Rows:
        """A decoder over slots or, by the graph's layout, over blocks, with room for some rows."""
        where = self.graph.path, self.options, CacheLimits(max_tokens, num_rows, CACHE_BYTES)
        with self.parts.timed("open"):
            if self.graph.layout == "paged":
                paged = open_paged_decoder(*where)
                self._note(paged)
                return PagedRows(paged, max_tokens)
            decoder: Rows = (
                open_encoder_decoder(*where, sources) if sources else open_decoder(*where)
            )
        self._note(decoder)
        return decoder

    def _note(self, decoder: object) -> None:
        """Keep the sessions that a decoder has opened, or one within it."""
        for each in vars(decoder).values():
            if isinstance(each, OnnxSession):
                self.sessions.append(each)
            elif isinstance(each, OnnxDecoder):
                self._note(each)


class PagedRows:
    """Sequences of a paged decoder, each with blocks of its own for `max_tokens`, in order."""

    def __init__(self, decoder: PagedDecoder, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self._decoder = decoder
        self._blocks_per_row = -(-max_tokens // decoder.block_size)

    @property
    def num_slots(self) -> int:
        return min(self._decoder.num_blocks // self._blocks_per_row, self._decoder.max_rows)

    def run(
        self, first_slot: int, rows: Sequence[np.ndarray], num_past: Sequence[int]
    ) -> np.ndarray | StepLogits:
        """Logits [B, V] of each row's last token; see `OnnxDecoder.run`."""
        assert first_slot + len(rows) <= self.num_slots, "there are no blocks for them"
        slots = np.arange(first_slot, first_slot + len(rows))
        table = slots[:, None] * self._blocks_per_row + np.arange(self._blocks_per_row)
        return self._decoder.run(PackedInputs.of(rows, num_past, table))


@dataclass(frozen=True, slots=True)
class Compared:
    """Outputs of a graph, [rows, values] each, and the same by a network."""

    by_graph: list[np.ndarray]
    by_network: Callable[[Any], list[np.ndarray]]  # by a network in any precision
    is_choice: bool  # whether the best value is the answer


Reference = Callable[[Opening], Compared]


def computed(network: nn.Module, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """A network's first output as float32, of inputs on the host; floats in its precision."""
    like = next(network.parameters())
    tensors = [torch.from_numpy(each).to(like.device) for each in inputs]
    with torch.inference_mode():
        out = network(
            *(each.to(like.dtype) if each.is_floating_point() else each for each in tensors)
        )
    output: np.ndarray = (out[0] if isinstance(out, tuple) else out).float().cpu().numpy()
    return output


def texts(opening: Opening) -> Compared:
    """The first output of rows of all lengths."""
    network: Any = opening.checkpoint.model
    session, name = opening.session(), network.output_name
    batch = ragged_batch(network, opening.checkpoint.max_tokens)
    (by_graph,) = session.run({s.name: batch[s.name] for s in session.signature.inputs}, [name])
    inputs = [batch[each] for each in network.input_names]
    is_choice = name == "logits" and by_graph.shape[-1] > 1
    return Compared([by_graph], lambda each: [computed(each, inputs)], is_choice)


def attention(opening: Opening) -> Compared:
    """Weights of single texts: of attention there are no batches. A query's weights are a row."""
    checkpoint, session = opening.checkpoint, opening.session()
    config, names = checkpoint.config, attending(checkpoint.model).inputs
    longest = min(checkpoint.max_tokens, longest_text(config.num_layers, config.num_heads), 128)
    generator, texts = np.random.default_rng(0), []
    for length in (longest, max(1, longest // 3)):
        row = generator.integers(config.vocab_size, size=length).tolist()
        texts.append({name: values for name, values in pad([row], 0).items() if name in names})
    outputs = [session.run(each, ["attentions"])[0] for each in texts]

    def by_network(network: nn.Module) -> list[np.ndarray]:
        like = next(network.parameters())
        own = attending(network).to(like.device, like.dtype)
        found = [computed(own, [each[name] for name in names]) for each in texts]
        return [weights.reshape(-1, weights.shape[-1]) for weights in found]

    return Compared([each.reshape(-1, each.shape[-1]) for each in outputs], by_network, False)


def vision(opening: Opening) -> Compared:
    """The logits of random pictures."""
    config = opening.checkpoint.config
    size = (NUM_ROWS, config.channels, config.height, config.width)
    pixels = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    (by_graph,) = opening.session().run({"pixel_values": pixels}, ["logits"])
    return Compared([by_graph], lambda each: [computed(each, [pixels])], True)


def recurrent(opening: Opening) -> Compared:
    """The attention of the first step and the tokens, over rows of ragged sources.

    A token that differs changes all that follows: behind it there is nothing to compare.
    """
    config = opening.checkpoint.config
    generator = np.random.default_rng(0)
    lengths = np.linspace(config.max_positions, 1, NUM_ROWS).astype(int)
    rows = [generator.integers(3, config.vocab_size, size=length).tolist() for length in lengths]
    source, session = pad(rows, config.pad_token_id), opening.session()
    names = [spec.name for spec in session.signature.outputs]
    tokens, weights = session.run({"source": source["input_ids"]}, names)

    def by_network(network: Any) -> list[np.ndarray]:
        device = next(network.parameters()).device
        inputs = [torch.from_numpy(source[n]).to(device) for n in ("input_ids", "attention_mask")]
        with torch.inference_mode():
            expected, shown = network.greedy(*inputs, tokens.shape[1])
        is_same = (tokens == expected.cpu().numpy()).mean(axis=1)  # the share of a row's tokens
        return [shown[:, 0].float().cpu().numpy(), np.stack([is_same, 1 - is_same], axis=1)]

    all_same = np.stack([np.ones(len(rows)), np.zeros(len(rows))], axis=1)
    return Compared([weights[:, 0], all_same], by_network, False)


def decoder(opening: Opening) -> Compared:
    """Logits of prompts that are continued from the cache."""
    config = opening.checkpoint.config
    prompts = random_rows(config.vocab_size, PROMPT_TOKENS, config.max_positions // 2)
    opened = opening.rows(config.max_positions, len(prompts))
    greedy = Greedy(opened, prompts, 0, num_steps=NUM_STEPS)

    def by_network(network: nn.Module) -> list[np.ndarray]:
        outputs = [
            computed(network, [np.array([row])])[0][len(prompt) - 1 : len(row) - 1]
            for prompt, row in zip(prompts, greedy.rows, strict=True)
        ]
        return [np.concatenate(outputs)]

    return Compared([np.concatenate(greedy.logits)], by_network, True)


def encoder_decoder(opening: Opening) -> Compared:
    """Logits of what is written from sources."""
    checkpoint, config = opening.checkpoint, opening.checkpoint.config
    prompts = random_rows(config.vocab_size, PROMPT_TOKENS, checkpoint.max_tokens)
    sources = SourceLimits(checkpoint.max_tokens, config.pad_token_id, config.start_token_id)
    most = checkpoint.max_tokens + config.max_positions  # of a source and what it becomes
    opened = opening.rows(most, len(prompts), sources)
    greedy = Greedy(opened, prompts, 0, num_steps=min(NUM_STEPS, config.max_positions - 1))

    def by_network(network: nn.Module) -> list[np.ndarray]:
        outputs = []
        for prompt, row in zip(prompts, greedy.rows, strict=True):
            source, target = np.array([prompt]), [config.start_token_id, *row[len(prompt) : -1]]
            outputs.append(computed(network, [source, np.ones_like(source), np.array([target])])[0])
        return [np.concatenate(outputs)]

    return Compared([np.concatenate(greedy.logits)], by_network, True)
