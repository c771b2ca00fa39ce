"""Rows per second of encoders: our graphs in the server's session, beside PyTorch's network.

All ways take the same batches of token ids from the host and give logits to the host, as a server
needs them. PyTorch computes in bfloat16 with its fused attention; it is spared the mask where all
rows have one length, since it has a faster attention for that.
docs/how-to/cuda.md says what was verified on CUDA.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from loadtests.gpu.context import Context
from loadtests.gpu.counts import Sizes, encoder_flops
from loadtests.gpu.models import SHAPES, Model, network_of, timed_graphs
from loadtests.gpu.parity import session_options
from loadtests.gpu.timing import (
    DTYPES,
    MAX_ROUNDS,
    TINY_ROUNDS,
    MachineLimits,
    failing_alone,
    interleaved,
    ratios,
    write_rows,
)
from loadtests.load.lengths import WINDOW_ROWS, mixed_sizes
from models.networks.heads import SequenceClassifier
from service.contract.tensors import Arrays
from service.runtime.session import OnnxSession

FIRST_ID = 5  # ids below are of special tokens
NUM_REAL_ROWS = 128
PEER_PRECISION = "bf16"
EAGER, COMPILED = "torch, bf16", "torch.compile, bf16"
MAX_ERROR = 0.05  # of logits, over their size: bf16 has 3 significant digits, kept over 24 layers
LEAST_OVER_COMPILED, LEAST_MATRIX_SHARE = 1.2, 0.5
Logits = Callable[[], list[np.ndarray]]
Batch = tuple[int, ...]  # lengths of rows


def loads(*, is_tiny: bool) -> dict[str, list[Batch]]:
    """Batches of rows by load, the most important first: rows of real lengths are sorted."""
    num_rows, batch_rows, longest = (8, 4, 64) if is_tiny else (NUM_REAL_ROWS, WINDOW_ROWS, 512)
    sizes = sorted(min(size, longest) for size in mixed_sizes(num_rows))
    real = [tuple(sizes[at : at + batch_rows]) for at in range(0, num_rows, batch_rows)]
    if is_tiny:
        return {"2 x 32": [(32,) * 2], "real lengths": real}
    return {"8 x 128": [(128,) * 8], "8 x 512": [(512,) * 8], "real lengths": real}


def batches_of(load: list[Batch], vocab_size: int) -> list[Arrays]:
    """Random ids as a session takes them: int64 [B, S], right-padded."""
    generator = np.random.default_rng(1)
    batches: list[Arrays] = []
    for lengths in load:
        mask = (np.arange(max(lengths)) < np.array(lengths)[:, None]).astype(np.int64)
        ids = generator.integers(FIRST_ID, vocab_size, mask.shape) * mask
        batches.append({"input_ids": ids, "attention_mask": mask, "token_type_ids": ids * 0})
    return batches


class Peer(nn.Module):
    """The network in PyTorch, as fast as PyTorch has it: without a mask where none is needed."""

    def __init__(self, network: SequenceClassifier) -> None:
        super().__init__()
        self.network = network

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        encoder = self.network.encoder
        hidden = encoder.embeddings(input_ids)
        padding_mask = None if attention_mask is None else attention_mask != 0
        for layer in encoder.layers:
            hidden = layer(hidden, padding_mask)
        # Its pooling is of first tokens, so that the head needs no mask.
        logits: Tensor = self.network.head(hidden, torch.ones(()))
        return logits.float()


@dataclass(frozen=True, slots=True)
class _Race:
    """One encoder with all that its loads are measured with."""

    context: Context
    model: Model
    limits: MachineLimits
    sessions: dict[str, OnnxSession]
    peer: Peer
    is_compiled: bool


def measure(
    context: Context, model: Model, limits: MachineLimits, time_s: float, *, is_compiled: bool
) -> None:
    """Rows of one encoder under all loads."""
    options, timed = session_options(context.device), timed_graphs(model.name, context.device)
    with context.parts.timed("open"):
        sessions: dict[str, OnnxSession] = {}
        for each in model.graphs():
            if (each.precision, each.layout) in timed:
                way = f"ours, {each.precision}, {each.layout or 'packed'}"
                with failing_alone(context, f"{model.name}, {way}, is opened"):
                    sessions[way] = OnnxSession(each.path, options)
        peer = Peer(network_of(model.name).to(context.device, DTYPES[PEER_PRECISION]))
    race = _Race(context, model, limits, sessions, peer, is_compiled)
    ends_s, some = time.monotonic() + time_s, loads(is_tiny=context.is_tiny)
    for index, name in enumerate(some):
        left_s = ends_s - time.monotonic()
        if left_s <= 0:
            beside = " beside torch.compile" if is_compiled else ""
            context.leave_out(f"{model.name} at {name}{beside}: no time was left")
            continue
        _measure_load(race, name, some[name], left_s / (len(some) - index))


def _measure_load(race: _Race, name: str, load: list[Batch], time_s: float) -> None:
    context, config = race.context, SHAPES[race.model.name]
    ends_s = time.monotonic() + time_s
    batches = batches_of(load, config.vocab_size)
    is_even = all(len(set(batch)) == 1 for batch in load)
    ways = {way: _ours(session, batches) for way, session in race.sessions.items()}
    eager = _theirs(race.peer, batches, context.device, has_mask=not is_even)
    with context.parts.timed("reference"):
        for way, own in ways.items():
            what = f"{race.model.name} at {name}, {way}: difference of logits over their norm"
            context.at_most(what, _difference(own, eager), MAX_ERROR)
    if race.is_compiled:
        torch.compiler.reset()  # it compiles the same code a few times only, then goes on without
        with context.parts.timed("compile"):
            backend: Any = {"backend": "eager"} if context.is_tiny else {"mode": "reduce-overhead"}
            compiled = torch.compile(race.peer, dynamic=not is_even, **backend)
            ways[COMPILED] = _theirs(compiled, batches, context.device, has_mask=not is_even)
            for _ in range(3):  # CUDA graphs are recorded in the second run
                ways[COMPILED]()
    elif context.run.peers != "none":
        ways[EAGER] = eager
    with context.parts.timed("run"):
        max_rounds = TINY_ROUNDS if context.is_tiny else MAX_ROUNDS
        seconds = interleaved(ways, max(0.0, ends_s - time.monotonic()), max_rounds=max_rounds)
    lengths = [length for batch in load for length in batch]
    flops, rates = encoder_flops(Sizes.of(config), lengths), race.limits.flops_per_s

    def share(way: str, median_s: float) -> float:
        return flops / median_s / rates[way.split(", ")[1]]

    where = {"model": race.model.name, "load": name}
    ours = write_rows(
        *(context, "Encoders", where, seconds, (len(lengths), "rows/s")),
        lambda way, median_s: {"share of the matrix rate": f"{share(way, median_s):.1%}"},
    )
    title = f"{race.model.name} at {name}: {ours}"
    if COMPILED in seconds:
        over = ratios(seconds[ours], seconds[COMPILED]).median
        context.at_least(f"{title}, over {COMPILED}", over, LEAST_OVER_COMPILED, kind="goal")
    elif name == "8 x 512" or context.is_tiny:
        reached = share(ours, sorted(seconds[ours])[len(seconds[ours]) // 2])
        what = f"{title}, share of the matrix rate"
        context.at_least(what, reached, LEAST_MATRIX_SHARE, kind="goal")


def _ours(session: OnnxSession, batches: list[Arrays]) -> Logits:
    names = {spec.name for spec in session.signature.inputs}
    feeds = [{name: batch[name] for name in names} for batch in batches]
    return lambda: [session.run(feed, ["logits"])[0] for feed in feeds]


def _theirs(peer: Any, batches: list[Arrays], device: str, *, has_mask: bool) -> Logits:
    """Logits on the host, of ids on the host."""

    @torch.inference_mode()
    def run() -> list[np.ndarray]:
        outputs = []
        for batch in batches:
            ids = torch.from_numpy(batch["input_ids"]).to(device)
            mask = torch.from_numpy(batch["attention_mask"]).to(device) if has_mask else None
            outputs.append(peer(ids, mask).cpu().numpy())
        return outputs

    return run


def _difference(ours: Logits, theirs: Logits) -> float:
    """How far logits are from PyTorch's, over the size of those: what is timed is right."""
    one, other = (np.concatenate(way()) for way in (ours, theirs))
    return float(np.linalg.norm(one - other) / (np.linalg.norm(other) or 1.0))
