"""Rows per second of encoders: our graphs in the server's session, beside transformers' model.

All ways take the same batches of token ids from the host and give logits to the host, as a server
needs them. PyTorch computes in bfloat16 with its fused attention, without a mask where all rows
have one length. What is timed of ours gives the logits of the network that was exported.
docs/how-to/cuda.md says what was verified on CUDA.
"""

from contextlib import ExitStack
from functools import partial

import numpy as np
import torch

from export.checks.parity import pad
from loadtests.compare.devices.counts import encoder_flops
from loadtests.compare.devices.goals import CHECKED, Goal, with_goals
from loadtests.compare.devices.options import ShapeOptions
from loadtests.compare.devices.shapes import config_of, graphs_of, network_of
from loadtests.compare.worker import Run, Work
from loadtests.load.lengths import WINDOW_ROWS, mixed_sizes
from loadtests.measure.records import (
    Column,
    Figure,
    Measure,
    Rounds,
    Turn,
    Way,
    by_columns,
)
from models.networks.heads import SequenceClassifier

FIRST_ID = 5  # ids below are of special tokens
NUM_REAL_ROWS = 128
EAGER, COMPILED = "transformers, bf16", "torch.compile, bf16"
MAX_ERROR = 5.0  # percent of the logits' size: bf16 has 3 digits, kept over 24 layers


def loads(*, is_tiny: bool) -> dict[str, tuple[list[int], int]]:
    """Lengths of rows, and rows of a batch, the most important first; real lengths are sorted."""
    num_rows, batch_rows, longest = (8, 4, 64) if is_tiny else (NUM_REAL_ROWS, WINDOW_ROWS, 512)
    real = sorted(min(size, longest) for size in mixed_sizes(num_rows)), batch_rows
    if is_tiny:
        return {"2 x 32": ([32] * 2, 2), "real lengths": real}
    return {"8 x 128": ([128] * 8, 8), "8 x 512": ([512] * 8, 8), "real lengths": real}


def ways(options: ShapeOptions, stack: ExitStack) -> dict[str, Way]:
    """Each load with each of our graphs, and with the peer."""
    folder, config = options.version(is_text=False), config_of(options.shape)
    network = network_of(options.shape).to(options.device)
    engines, rates, found = {}, options.limits.flops_per_s, dict[str, Way]()
    for graph in graphs_of(folder):
        name = f"ours, {graph.precision}, {graph.layout or 'packed'}"
        engines[name] = options.ours(stack, task="classify", graph=graph.path.name)
    if options.peer == "compiled":
        how = {"backend": "eager"} if options.is_tiny else {"mode": "reduce-overhead"}
        engines[COMPILED] = options.theirs(task="classify", compile=how)
    elif options.peer == "eager":
        engines[EAGER] = options.theirs(task="classify")
    generator = np.random.default_rng(1)
    for load, (lengths, batch_rows) in loads(is_tiny=options.is_tiny).items():
        rows = [generator.integers(FIRST_ID, config.vocab_size, size).tolist() for size in lengths]
        work, flops = Work(rows, batch_rows), encoder_flops(config, lengths)
        expected = _logits(network, work, options.device)
        for name, run in engines.items():
            logits = None if name in (EAGER, COMPILED) else expected
            least_s = flops / rates[name.split(", ")[1]]
            found[f"{load}: {name}"] = partial(_turn, run, work, least_s, logits)
    return found


@torch.inference_mode()
def _logits(network: SequenceClassifier, work: Work, device: str) -> np.ndarray:
    """Those of PyTorch in float32, of all rows."""
    found = []
    for rows in work.batches():
        batch = pad(rows, 0)
        inputs = (torch.from_numpy(batch[name]).to(device) for name in network.input_names)
        found.append(network(*inputs).cpu().numpy())
    return np.concatenate(found)


def _turn(run: Run, work: Work, least_s: float, expected: np.ndarray | None) -> Turn:
    answer = run(work)
    turn = {"seconds": answer.seconds, "rows": len(work.rows), "share": least_s / answer.seconds}
    if expected is not None:
        error = np.linalg.norm(np.array(answer.outputs) - expected)
        turn["error"] = float(error / (np.linalg.norm(expected) or 1.0))
    return turn


def figures(rounds: Rounds) -> list[Figure]:
    columns = (
        Column("rows/s", "rows/seconds"),
        Column("share of the matrix rate", "share", "%"),
        Column(CHECKED, "error", "%", goals=dict.fromkeys(rounds, MAX_ERROR), at_most=True),
        Column(f"over {EAGER}", "rows/seconds", over=EAGER),
        Column(f"over {COMPILED}", "rows/seconds", over=COMPILED),
    )
    goals = [Goal(f"over {COMPILED}", 1.2)]
    goals += [Goal("share of the matrix rate", 50.0, load) for load in ("8 x 512", "2 x 32")]
    return with_goals(by_columns(*columns)(rounds), goals, "rows/s")


ENCODERS = Measure(
    "encoders",
    "Encoders' graphs beside transformers, and their share of the device's matrix rate",
    "Networks on a device",
    ShapeOptions,
    ways,
    figures,
)
