"""A decoder's graph, run from its cache, must compute what recomputing from scratch does.

Checked before anything is written, in the server's own decoder: prompts of several lengths,
prefilled together, in chunks, and into slots that others used before, then greedy tokens. What is
exact is compared with PyTorch, whose pass over a whole sequence knows no cache. Quantised graphs
are compared with their own pass over the whole sequence. Of a large network fewer tokens are
compared: each step reads all weights.
"""

# ruff: noqa: N806 - suffixes are array layouts: B rows, S tokens, V vocabulary

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np
import onnx
import torch

from export.checks.rounding import rounding_of
from export.errors import ExportError
from export.graphs.cached_decoder import AnyDecoder
from export.graphs.graph import open_session
from service.generation.choosing.step_logits import StepLogits
from service.generation.decoders.decoder import OnnxDecoder

NUM_STEPS = 64
PROMPT_TOKENS = (1, 7, 40)  # fewer where the model takes fewer
NUM_STEPS_OF_LARGE = 8
LARGE = 500_000_000  # weights of a network of which fewer tokens are compared
CHUNK_TOKENS, MAX_CHUNKS = 16, 32
# Graph and network add in another order. Over the tests' decoders they differ by up to 1.8 times
# what float32 costs the network itself, by its own logits in float64.
ROUNDINGS = 4
# Two logits so close are a tie: another order of additions may swap them.
TIE = 1e-4

Row = list[int]
Recompute = Callable[[int, Row], np.ndarray]  # prompt tokens, row -> logits [steps, V]


class Rows(Protocol):
    """Sequences of a decoder, whatever keeps them."""

    @property
    def num_slots(self) -> int: ...

    @property
    def max_tokens(self) -> int: ...

    def run(
        self, first_slot: int, rows: Sequence[np.ndarray], num_past: Sequence[int]
    ) -> np.ndarray | StepLogits: ...


@dataclass(frozen=True, slots=True)
class DecoderParity:
    """The differences between cached decoding and recomputing, over all rows and steps."""

    max_abs_error: float  # of logits
    changed_tokens: float  # share of greedy tokens that differ, ties aside
    max_neighbour_effect: float  # logits of a row in a batch, also in used slots, against alone
    neighbour_changed_tokens: float  # share of greedy tokens that neighbours change, ties aside
    network_changed_tokens: float  # share of greedy tokens that PyTorch's float32 would not choose

    def to_dict(self) -> dict[str, float]:
        """Rounded to what is meaningful, so that equal exports give equal manifests."""
        return {
            "max_abs_error": float(f"{self.max_abs_error:.2e}"),
            "changed_tokens": round(self.changed_tokens, 4),
            "max_neighbour_effect": float(f"{self.max_neighbour_effect:.2e}"),
            "neighbour_changed_tokens": round(self.neighbour_changed_tokens, 4),
            "network_changed_tokens": round(self.network_changed_tokens, 4),
        }


@dataclass(frozen=True, slots=True)
class ParityLimits:
    """The largest allowed difference of a precision; infinite if it is only measured."""

    max_abs_error: float
    changed_tokens: float
    max_neighbour_effect: float
    network_changed_tokens: float

    def check(self, parity: DecoderParity, rounding: Callable[[], float] = lambda: 0.0) -> None:
        """Raise `ExportError` naming what is further off, also where it is not a number.

        `rounding` gives the largest error of the network's own logits, and is called where they
        are over the limit: a steep network's may be.
        """
        for name in (field.name for field in fields(self)):
            value, limit = getattr(parity, name), getattr(self, name)
            if name == "max_abs_error" and value > limit:
                limit = max(limit, ROUNDINGS * rounding())
            if not value <= limit:
                raise ExportError(
                    "cached decoding differs from recomputing from scratch: "
                    f"{name} is {value:.2e}, the limit is {limit:.2g}"
                )


def open_graph(
    model: onnx.ModelProto,
    max_tokens: int,
    num_slots: int,
    prefill: onnx.ModelProto | None = None,
) -> OnnxDecoder:
    """The server's decoder over a graph held in memory, and that for prompts beside it.

    A run can give the logits of as many tokens of one row as are compared.
    """
    return OnnxDecoder(
        open_session(model),
        num_slots=num_slots,
        max_tokens=max_tokens,
        max_rows=max(num_slots, NUM_STEPS),
        prefill=open_session(prefill) if prefill else None,
    )


def measure_parity(
    network: AnyDecoder,
    model: onnx.ModelProto,
    *,
    is_exact: bool,
    prefill: onnx.ModelProto | None = None,
    prompt_tokens: Sequence[int] = PROMPT_TOKENS,
    num_steps: int = 0,
) -> DecoderParity:
    """Compare cached decoding with recomputing: by `network` for an exact graph, else by itself.

    Without a number of steps there are as many as for a network of its size.
    """
    most, num_steps = network.config.max_positions, num_steps or num_steps_of(network)
    longest = max(1, most // 3, most - num_steps)
    prompts = random_rows(network.config.vocab_size, prompt_tokens, longest)
    longest = max(map(len, prompts))
    decoder = open_graph(model, min(most, longest + num_steps), len(prompts) + 2, prefill)
    recompute = None
    if not is_exact:
        recompute = by_whole_row(decoder) if prefill is None else by_prefill(decoder)
    chunks = (max(CHUNK_TOKENS, longest // MAX_CHUNKS),)
    by_network = _with_network(network)
    return compare_decoding(decoder, prompts, by_network, recompute, chunks, num_steps)


def is_large(network: torch.nn.Module) -> bool:
    """Whether each step takes so long that fewer are compared."""
    return sum(each.numel() for each in network.parameters()) >= LARGE


def num_steps_of(network: torch.nn.Module) -> int:
    """Greedy tokens of each row that are compared."""
    return NUM_STEPS_OF_LARGE if is_large(network) else NUM_STEPS


def logits_rounding(network: AnyDecoder) -> float:
    """The largest error of PyTorch's own logits in float32."""
    longest = min(network.config.max_positions, max(PROMPT_TOKENS) + num_steps_of(network))
    row_1S = torch.tensor(random_rows(network.config.vocab_size, [longest], longest))
    return rounding_of(lambda: network(row_1S))


def compare_decoding(
    decoder: Rows,
    prompts: Sequence[Row],
    network: Recompute,
    recompute: Recompute | None = None,
    chunks: Sequence[int] = (),
    num_steps: int = NUM_STEPS,
) -> DecoderParity:
    """Compare with `recompute`, or where there is none, with the network; prompts grow longer.

    The last prompt is also computed in pieces of each size in `chunks`, in a slot of its own.
    """
    together = Greedy(decoder, prompts, first_slot=0, num_steps=num_steps)
    rows = list(zip(prompts, together.rows, strict=True))
    by_network = [network(len(prompt), row) for prompt, row in rows]
    references = [recompute(len(prompt), row) for prompt, row in rows] if recompute else by_network
    runs = [together]
    runs.append(Greedy(decoder, prompts, first_slot=1, forced=together.rows))  # used slots
    last = prompts[-1:], together.rows[-1:]
    runs += [Greedy(decoder, last[0], 2, chunk=chunk, forced=last[1]) for chunk in chunks]
    alone = [Greedy(decoder, [prompt], 0, forced=[row]).logits[0] for prompt, row in rows]
    pairs = [
        (logits, expected)
        for run in runs
        for logits, expected in zip(run.logits, references[-len(run.logits) :], strict=True)
    ]
    batched = [pair for run in runs[:2] for pair in zip(run.logits, alone, strict=True)]
    return DecoderParity(
        max_abs_error=_largest_difference(pairs),
        changed_tokens=_changed(pairs),
        max_neighbour_effect=_largest_difference(batched),
        neighbour_changed_tokens=_changed(batched),
        network_changed_tokens=_changed(list(zip(together.logits, by_network, strict=True))),
    )


class Greedy:
    """Rows continued from the cache, with the logits `[steps, V]` that each token was taken from.

    `forced` rows are fed instead of the model's own choice, so that runs can be compared.
    """

    def __init__(
        self,
        decoder: Rows,
        prompts: Sequence[Row],
        first_slot: int,
        *,
        num_steps: int = NUM_STEPS,
        chunk: int | None = None,
        forced: Sequence[Row] | None = None,
    ) -> None:
        self.rows = [list(prompt) for prompt in prompts]
        steps: list[np.ndarray] = []
        room = decoder.max_tokens - max(map(len, prompts))
        num_steps = len(forced[0]) - len(prompts[0]) if forced else min(num_steps, room)
        for step in range(num_steps):
            if step:
                new = [row[-1:] for row in self.rows]
                past = [len(row) - 1 for row in self.rows]
            else:
                new, past = self._prefill(decoder, prompts, first_slot, chunk)
            logits = decoder.run(first_slot, [np.array(ids) for ids in new], past)
            logits_BV = StepLogits.of(logits).whole().copy()
            steps.append(logits_BV)
            for index, row in enumerate(self.rows):
                chosen = int(logits_BV[index].argmax())
                row.append(forced[index][len(row)] if forced else chosen)
        self.logits = list(np.stack(steps, axis=1))

    @staticmethod
    def _prefill(
        decoder: Rows, prompts: Sequence[Row], first_slot: int, chunk: int | None
    ) -> tuple[list[Row], list[int]]:
        """Compute all but the last chunk; what is left to do, and how much is done."""
        if chunk is None:
            return [list(prompt) for prompt in prompts], [0] * len(prompts)
        (prompt,) = prompts
        done = 0
        while len(prompt) - done > chunk:
            decoder.run(first_slot, [np.array(prompt[done : done + chunk])], [done])
            done += chunk
        return [prompt[done:]], [done]


def _with_network(network: AnyDecoder) -> Recompute:
    def recompute(num_prompt_tokens: int, row: Row) -> np.ndarray:
        with torch.inference_mode():
            logits_SV = network(torch.tensor([row]))[0].float().numpy()
        return np.asarray(logits_SV[num_prompt_tokens - 1 : len(row) - 1])

    return recompute


def by_whole_row(decoder: OnnxDecoder) -> Recompute:
    """Logits of all steps by one run over the row, in the last slot."""
    slot = decoder.num_slots - 1

    def recompute(num_prompt_tokens: int, row: Row) -> np.ndarray:
        num_steps = len(row) - num_prompt_tokens
        return decoder.run(slot, [np.array(row[:-1])], [0], num_steps).whole().copy()

    return recompute


def by_prefill(decoder: Rows) -> Recompute:
    """Logits of each step by a run over all that is before it, in the last slot."""
    slot = decoder.num_slots - 1

    def recompute(num_prompt_tokens: int, row: Row) -> np.ndarray:
        ends = range(num_prompt_tokens, len(row))
        runs = (decoder.run(slot, [np.array(row[:end])], [0]) for end in ends)
        return np.concatenate([StepLogits.of(logits).whole().copy() for logits in runs])

    return recompute


Pairs = Sequence[tuple[np.ndarray, np.ndarray]]  # logits [steps, V] of one row, twice


def _largest_difference(pairs: Pairs) -> float:
    # NumPy's maximum of what is not a number is not a number; Python's depends on the order.
    return float(np.max([np.abs(one - other).max() for one, other in pairs]))


def _changed(pairs: Pairs) -> float:
    """Share of steps at which two runs choose otherwise, and not for a tie."""
    chosen_logits = np.concatenate([one for one, _ in pairs])
    references = np.concatenate([other for _, other in pairs])
    chosen = chosen_logits.argmax(axis=1)
    rows = np.arange(len(chosen))
    lost = references.max(axis=1) - references[rows, chosen]
    return float((lost > TIE).mean())


def random_rows(vocab_size: int, lengths: Sequence[int], longest: int) -> list[Row]:
    generator = np.random.default_rng(0)
    return [generator.integers(vocab_size, size=min(n, longest)).tolist() for n in lengths]
