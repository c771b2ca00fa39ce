"""Rows per second of encoders: our graphs in the server's session, beside PyTorch's.

All ways take the same batches of token ids from the host and give logits to the host, as a server
needs them. PyTorch computes in bfloat16 with its fused attention, as it is, compiled, and compiled
with CUDA graphs; it is spared the mask where all rows have one length, since it has a faster
attention for that. What is compiled is compiled before it is timed.
docs/cuda.md says what was verified on CUDA.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from loadtests.gpu.build import DTYPES, encoder_kinds, encoder_network
from loadtests.gpu.builds import MAX_REASON
from loadtests.gpu.context import Context
from loadtests.gpu.counts import Sizes, encoder_flops
from loadtests.gpu.limits import Limits
from loadtests.gpu.shapes import TITLES, encoders
from loadtests.gpu.timing import MAX_ROUNDS, Quartiles, interleaved, noise_of, ratios
from loadtests.load.lengths import WINDOW_ROWS, mixed_sizes
from models.networks.encoder import EncoderConfig
from models.networks.heads import SequenceClassifier
from service.contract.manifest import Manifest
from service.contract.tensors import Arrays
from service.errors import AttendantError
from service.runtime.cpus import available_cpus
from service.runtime.session import OnnxSession, SessionOptions

FIRST_ID = 5  # ids below are of special tokens
NUM_REAL_ROWS = 128
TINY_ROUNDS = 9
PEER_PRECISION = "bf16"
EAGER, COMPILED = "torch, bf16", "torch.compile, bf16"
COMPILED_GRAPHS = "torch.compile with CUDA graphs, bf16"
# What is left of the time for a network that is compiled, if it is in the compiler's folder or not.
LEAST_KNOWN_S, LEAST_COMPILE_S = 8.0, 45.0
MAX_ERROR = 0.05  # of logits, over their size: bf16 has 3 significant digits, kept over 24 layers

Logits = Callable[[], list[np.ndarray]]  # a way to compute all batches
Task = tuple[str, str]  # a shape, and the name of its load
PeerCall = Callable[[Tensor, Tensor | None], Tensor]  # ids and mask to logits


@dataclass(frozen=True, slots=True)
class Load:
    """Rows of these lengths, in these batches."""

    name: str
    batches: tuple[tuple[int, ...], ...]

    @property
    def lengths(self) -> list[int]:
        return [length for batch in self.batches for length in batch]

    @property
    def is_even(self) -> bool:
        """Whether nothing is padded."""
        return all(len(set(batch)) == 1 for batch in self.batches)


def even_load(num_rows: int, num_tokens: int) -> Load:
    """One batch of rows of one length."""
    return Load(f"{num_rows} x {num_tokens}", ((num_tokens,) * num_rows,))


def real_load(num_rows: int, batch_rows: int, max_tokens: int) -> Load:
    """Reviews, messages and passages, sorted, so that rows of about one length are together."""
    sizes = sorted(min(size, max_tokens) for size in mixed_sizes(num_rows))
    starts = range(0, num_rows, batch_rows)
    return Load("real lengths", tuple(tuple(sizes[at : at + batch_rows]) for at in starts))


def loads(*, is_tiny: bool) -> list[Load]:
    """The loads, the most important first."""
    if is_tiny:
        return [even_load(2, 32), real_load(8, 4, 64)]
    return [even_load(8, 128), real_load(NUM_REAL_ROWS, WINDOW_ROWS, 512), even_load(8, 512)]


def matrix_load(*, is_tiny: bool) -> Load:
    """The load under which an encoder is to come near the matrix rate."""
    return loads(is_tiny=is_tiny)[0 if is_tiny else -1]


def batches_of(load: Load, vocab_size: int) -> list[Arrays]:
    """Random ids as a session takes them: int64 [B, S], right-padded."""
    generator = np.random.default_rng(1)
    batches: list[Arrays] = []
    for lengths in load.batches:
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


def compare(
    context: Context, name: str, folder: Path, limits: Limits, compiled: Collection[Task] = ()
) -> dict[str, Any]:
    """Figures of one encoder under all loads: `rows`, each a way under a load, and remarks."""
    config = encoders(is_tiny=context.is_tiny)[name]
    ours, remarks = open_ours(folder, context.device)
    if not ours:
        return {"rows": [], "left_out": remarks, "noise": [], "errors": {}}
    network = encoder_network(config).to(context.device, DTYPES[PEER_PRECISION])
    rows: list[dict[str, Any]] = []
    noise: list[str] = []
    errors: dict[str, float] = {}
    some = loads(is_tiny=context.is_tiny)
    for index, load in enumerate(some):
        if context.is_over:
            remarks.append(f"{TITLES[name]} at {load.name}: the section's time was over.")
            continue
        part = context.until(1 / (len(some) - index))
        part.say(f"{TITLES[name]}, {load.name}")
        batches = batches_of(load, config.vocab_size)
        least_s = LEAST_KNOWN_S if (name, load.name) in compiled else LEAST_COMPILE_S
        peers, why = peers_of(part, network, load, least_s)
        why = [f"{TITLES[name]} at {load.name}: {each}" for each in why]
        ways = {each: _ours(session, batches) for each, session in ours.items()}
        ways |= {each: _theirs(peer, batches, load, part.device) for each, peer in peers.items()}
        errors |= {f"{load.name}, {key}": e for key, e in _errors(ways).items()}
        max_rounds = TINY_ROUNDS if part.is_tiny else MAX_ROUNDS
        seconds = interleaved(ways, max(0.0, part.left_s), max_rounds=max_rounds)
        remarks += why
        noise += noise_of(seconds, f"{TITLES[name]} at {load.name}")
        rows += [row_of(name, load, each, seconds, limits, config, part.device) for each in seconds]
    return {"rows": rows, "left_out": remarks, "noise": noise, "errors": errors}


def compile_load(context: Context, name: str, load: Load) -> None:
    """Compile a network for a load, so that it is in the compiler's folder; raises where not."""
    network = encoder_network(encoders(is_tiny=context.is_tiny)[name])
    network.to(context.device, DTYPES[PEER_PRECISION])
    _, failures = peers_of(context, network, load, 0.0)
    if failures:
        raise RuntimeError("; ".join(failures))


def open_ours(folder: Path, device: str) -> tuple[dict[str, OnnxSession], list[str]]:
    """Sessions of all graphs of a version that are timed, and why others are not."""
    sessions, remarks = {}, []
    manifest = Manifest.from_json((folder / "manifest.json").read_text())
    options = SessionOptions(device=device, num_threads=available_cpus())
    for filename, graph in manifest.graphs.items():
        if (graph.precision, graph.layout) not in encoder_kinds(device):
            continue
        way = f"ours, {graph.precision}, {graph.layout or 'packed'}"
        try:
            sessions[way] = OnnxSession(folder / filename, options)
        except AttendantError as error:
            remarks.append(f"{folder.parent.name}, {way}: {error}")
    return sessions, remarks


def peers_of(
    context: Context, network: SequenceClassifier, load: Load, least_s: float
) -> tuple[dict[str, PeerCall], list[str]]:
    """PyTorch's ways that there is time for, compiled and warm, and why others are not there."""
    torch.compiler.reset()  # it compiles the same code a few times only, and then goes on without
    peer = Peer(network)
    modes: dict[str, str | None] = {COMPILED: None}
    if context.device == "cuda":
        modes[COMPILED_GRAPHS] = "reduce-overhead"
    peers: dict[str, PeerCall] = {EAGER: peer}
    remarks = []
    config: EncoderConfig = network.config
    for name, mode in modes.items():
        if not context.is_tiny and context.left_s < least_s:
            remarks.append(f"no time was left for {name}.")
            continue
        compiled = compiled_peer(peer, context, mode, is_dynamic=not load.is_even)
        try:
            for batch in batches_of(load, config.vocab_size):
                for _ in range(3):  # CUDA graphs are recorded in the second run
                    run_peer(compiled, batch, load, context.device)
        except Exception as error:  # of the compiler, whose errors have no common class
            remarks.append(f"{name} failed: {type(error).__name__}: {str(error)[:MAX_REASON]}")
            continue
        peers[name] = compiled
    return peers, remarks


def compiled_peer(peer: Peer, context: Context, mode: str | None, *, is_dynamic: bool) -> PeerCall:
    """The network compiled: for its shapes alone, or for all where those of batches differ."""
    if context.is_tiny:  # to compile takes a minute and a compiler: what surrounds it is tested
        return torch.compile(peer, backend="eager", dynamic=is_dynamic)
    return torch.compile(peer, mode=mode, dynamic=is_dynamic)


def run_peer(peer: PeerCall, batch: Arrays, load: Load, device: str) -> np.ndarray:
    """Logits on the host, of ids on the host."""
    with torch.inference_mode():
        ids = torch.from_numpy(batch["input_ids"]).to(device)
        mask = None if load.is_even else torch.from_numpy(batch["attention_mask"]).to(device)
        logits: np.ndarray = peer(ids, mask).cpu().numpy()
        return logits


def _ours(session: OnnxSession, batches: Sequence[Arrays]) -> Logits:
    names = {spec.name for spec in session.signature.inputs}
    feeds = [{name: batch[name] for name in names} for batch in batches]
    return lambda: [session.run(feed, ["logits"])[0] for feed in feeds]


def _theirs(
    peer: PeerCall,
    batches: Sequence[Arrays],
    load: Load,
    device: str,
) -> Logits:
    return lambda: [run_peer(peer, batch, load, device) for batch in batches]


def _errors(ways: dict[str, Logits]) -> dict[str, float]:
    """How far each way's logits are from PyTorch's, over the size of those: what is timed is right.

    The parity of exports has a section of its own.
    """
    reference = np.concatenate(ways[EAGER]())
    size = float(np.linalg.norm(reference)) or 1.0
    return {
        name: float(np.linalg.norm(np.concatenate(way()) - reference)) / size
        for name, way in ways.items()
        if name != EAGER
    }


def row_of(
    name: str,
    load: Load,
    way: str,
    seconds: dict[str, list[float]],
    limits: Limits,
    config: EncoderConfig,
    device: str,
) -> dict[str, Any]:
    """The figures of one way under one load, as plain JSON."""
    own = Quartiles.of(seconds[way])
    flops = encoder_flops(Sizes.of(config), load.lengths)
    precision = way.split(", ")[1]
    rate = limits.flops_per_s.get(precision) or limits.flops_per_s[PEER_PRECISION]
    over = {
        peer: ratios(seconds[way], seconds[peer]).to_dict()
        for peer in seconds
        if not peer.startswith("ours") and peer != way
    }
    return {
        "shape": name,
        "load": load.name,
        "way": way,
        "device": device,
        "num_rows": len(load.lengths),
        "num_tokens": sum(load.lengths),
        "flops": flops,
        "seconds": own.to_dict(),
        "rows_per_s": own.per_second(len(load.lengths)).to_dict(),
        "share_of_matrix_rate": flops / own.median / rate,
        "speed_over": over,
    }
