"""Run a decoder over the blocks of a paged cache: packed tokens in, logits out.

Knows blocks and tokens, nothing of sequences or requests. One thread only. The graph is that of
`export/graphs/paged_decoder.py`: its attention reads and writes the blocks where they are, in a
device's memory, and a copy of a block stays there. ONNX Runtime has the operator for CUDA only;
tests evaluate the graph with the operator in NumPy. Unverified on CUDA: docs/how-to/cuda.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from service.contract.tensors import Signature
from service.errors import LoadError
from service.generation.choosing.step_logits import StepLogits
from service.generation.decoders.decoder_interface import PagedDecoder
from service.generation.decoders.logits_memory import BoundLogits, LogitsMemory
from service.generation.decoders.opening import CacheLimits, needing_memory
from service.generation.decoders.shape import DecoderShape, Form, cache_names
from service.generation.decoders.step_graphs import (
    AttentionBounds,
    bounds_of,
    recorded_rows,
    widened,
)
from service.generation.steps.packed_scheduler import PackedInputs
from service.runtime.binding import Bound, Inputs
from service.runtime.device_memory import DeviceMemory
from service.runtime.session import NO_GRAPH, OnnxSession, SessionOptions

INPUTS = (
    "input_ids",
    "position_ids",
    "cumulative_sequence_length",
    "past_seqlens",
    "block_table",
    "logit_positions",
)
BOUNDS = "attention_metadata"  # int32 [3], read on the host; older graphs have none
BLOCKS = Form("a decoder over blocks", INPUTS, BOUNDS, ("-1", "-1", "heads", "head size"))
# The least size with which every head size has the operator's fastest kernel; see its sources.
BLOCK_TOKENS = 256


class Runnable(Protocol):
    """A run that is bound, as `service/runtime/binding.py` makes it."""

    def bind(self, inputs: Mapping[str, Bound], outputs: Mapping[str, Bound]) -> None: ...

    def run(self) -> None: ...


class Graph(Protocol):
    """An open graph, as `OnnxSession` is one."""

    @property
    def signature(self) -> Signature: ...

    @property
    def inputs_on_host(self) -> frozenset[str]: ...

    def bind(
        self,
        inputs: Mapping[str, Bound],
        outputs: Mapping[str, Bound],
        graph_id: int | None = None,
    ) -> Runnable: ...


def open_paged_decoder(
    path: Path, options: SessionOptions, limits: CacheLimits, *, records_steps: bool = False
) -> "OnnxPagedDecoder":
    """Load a graph, with as many blocks as the memory holds.

    `records_steps` as CUDA graphs. Raises `LoadError` where the longest sequence has no room.
    """
    if records_steps:
        recording = (*options.tuning.cuda_options, ("enable_cuda_graph", "1"))
        options = replace(options, tuning=replace(options.tuning, cuda_options=recording))
    session = OnnxSession(path, options)
    block_bytes = DecoderShape.of(session.signature, BLOCKS).num_bytes(BLOCK_TOKENS)
    num_blocks = limits.max_bytes // block_bytes - records_steps  # one is the padding's
    num_needed = -(-limits.max_tokens // BLOCK_TOKENS)
    if num_blocks < num_needed:
        raise LoadError(
            f"kv_cache_bytes is {limits.max_bytes}, but one sequence of {limits.max_tokens} "
            f"tokens takes {(num_needed + records_steps) * block_bytes}, in blocks of "
            f"{BLOCK_TOKENS} tokens: raise it, or lower max_context_tokens"
        )
    with needing_memory(path, options, (num_blocks + records_steps) * block_bytes):
        return OnnxPagedDecoder(
            session,
            DeviceMemory(options.device, options.device_id),
            num_blocks=num_blocks,
            block_size=BLOCK_TOKENS,
            max_rows=limits.max_rows,
            max_tokens=limits.max_tokens,
            records_steps=records_steps,
        )


class OnnxPagedDecoder(PagedDecoder):
    """An exported decoder and its blocks `[blocks, block size, Hkv, Dh]`, two tensors per layer."""

    def __init__(
        self,
        session: Graph,
        memory: DeviceMemory,
        *,
        num_blocks: int,
        block_size: int,
        max_rows: int,
        max_tokens: int,
        records_steps: bool = False,
    ) -> None:
        """Raises `LoadError` for another kind of graph, and `OutOfMemory`."""
        self.shape = DecoderShape.of(session.signature, BLOCKS)
        if records_steps and not self.shape.takes_option:
            raise LoadError(
                f"cuda_graphs is on, but the graph does not take {BOUNDS}, without which its steps "
                "cannot be recorded: export it again, or turn cuda_graphs off"
            )
        self.vocab_size = self.shape.vocab_size
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.max_rows = max_rows
        self.max_tokens = max_tokens
        self._session = session
        self._memory = memory
        self._records_steps = records_steps
        self._on_host = session.inputs_on_host
        self._num_row_blocks = -(-max_tokens // block_size)
        # One more is the padding's of recorded steps, which no table of a sequence names.
        shape = (num_blocks + records_steps, block_size, self.shape.num_kv_heads)
        sizes = (*shape, self.shape.head_size)
        names = cache_names(self.shape.num_layers)
        self._buffers = [memory.zeros(sizes, self.shape.cache_type) for _ in names]
        self._pasts = dict(zip([past for past, _ in names], self._buffers, strict=True))
        self._presents = dict(zip([present for _, present in names], self._buffers, strict=True))
        self._logits = LogitsMemory(
            memory, max_rows, self.shape.vocab_size, self.shape.num_candidates
        )
        self._free: Runnable | None = None  # the blocks are bound once, the rest with each run
        self._recorded: dict[int, _Run] = {}  # by the number of rows
        # Of decoding steps, by the number of rows: they come again and again. At most `max_rows`.
        self._of_steps: dict[int, tuple[Inputs, BoundLogits]] = {}

    def copy(self, source: int, target: int, num_tokens: int) -> None:
        """Copy the first tokens of a block to another block, on the device."""
        self._memory.copy_rows(self._buffers, source, target, slice(0, num_tokens), axis=1)

    def run(self, inputs: PackedInputs) -> StepLogits:
        """Logits [wanted, V], float32; overwritten by the next run. Raises `ModelFailed`."""
        num_wanted = len(inputs.logit_positions)
        num_rows = recorded_rows(inputs) if self._records_steps else None
        if num_rows is None:
            # A run computes the logits of one token at least: no graph has to take none.
            positions = inputs.logit_positions if num_wanted else np.zeros(1, np.int64)
            run = self._bind(replace(inputs, logit_positions=positions))
            run.fill(replace(inputs, logit_positions=positions), bounds_of(inputs))
        else:
            inputs = widened(inputs, num_rows, self.num_blocks)
            run = self._recorded.get(num_rows) or self._record(num_rows, inputs)
            run.fill(inputs, AttentionBounds(1, self.max_tokens, 0))
        run.inputs.send()
        run.binding.run()
        return run.logits.read().take(slice(num_wanted))

    def _bind(self, inputs: PackedInputs) -> "_Run":
        num_rows = len(inputs.past_seqlens)
        is_step = len(inputs.input_ids) == num_rows == len(inputs.logit_positions)
        kept = self._of_steps.get(num_rows) if is_step else None
        small, logits = kept or self._small(inputs)
        if is_step:
            self._of_steps[num_rows] = small, logits
        if self._free is None:
            self._free = self._session.bind(
                {**small.bound, **self._pasts},
                {**logits.outputs, **self._presents},
                NO_GRAPH if self._records_steps else None,
            )
        else:
            self._free.bind(small.bound, logits.outputs)
        return _Run(self._free, small, logits)

    def _record(self, num_rows: int, inputs: PackedInputs) -> "_Run":
        """A run of that many rows, at addresses of its own; the number is the recording's."""
        small, logits = self._small(inputs)
        bound = {**small.bound, **self._pasts}, {**logits.outputs, **self._presents}
        run = self._recorded[num_rows] = _Run(self._session.bind(*bound, num_rows), small, logits)
        return run

    def _small(self, inputs: PackedInputs) -> tuple[Inputs, BoundLogits]:
        arrays: dict[str, Any] = {name: np.zeros_like(getattr(inputs, name)) for name in INPUTS}
        arrays["block_table"] = np.zeros((len(inputs.past_seqlens), self._num_row_blocks), np.int32)
        if self.shape.takes_option:
            arrays[BOUNDS] = np.zeros(3, np.int32)
        on_host = self._on_host & {BOUNDS}
        return self._memory.inputs(arrays, on_host), self._logits.bind(len(inputs.logit_positions))


@dataclass(frozen=True, slots=True)
class _Run:
    """A bound run, and the small inputs that are written before it."""

    binding: Runnable
    inputs: Inputs
    logits: BoundLogits

    def fill(self, inputs: PackedInputs, bounds: AttentionBounds) -> None:
        arrays = self.inputs.arrays
        for name in INPUTS:
            if name != "block_table":
                arrays[name][:] = getattr(inputs, name)
        # Behind a row's blocks stands any block: the operator reads as far as the row's tokens are.
        table = arrays["block_table"]
        table[:] = 0
        num_blocks = inputs.block_table.shape[1]
        np.maximum(inputs.block_table, 0, out=table[:, :num_blocks])
        if BOUNDS in arrays:
            arrays[BOUNDS][:] = (bounds.new_tokens, bounds.tokens, bounds.least_tokens)
