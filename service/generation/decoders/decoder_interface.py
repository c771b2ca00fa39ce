"""Interfaces of decoders to the engine: over slots, or over the blocks of a paged cache.

One thread only. A decoder knows tokens and where they are kept, nothing of sequences or requests.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from service.generation.cache.prefix_store import PrefixMemory
from service.generation.choosing.step_logits import StepLogits
from service.generation.decoders.adapter_buffers import AdapterBuffers


class Decoder(Protocol):
    """A model with a cache, as the engine sees it."""

    @property
    def num_slots(self) -> int: ...

    @property
    def max_tokens(self) -> int: ...

    @property
    def vocab_size(self) -> int: ...

    def copy(self, source: int, target: int, num_tokens: int, start: int = 0) -> None:
        """Copy a slot's keys and values of tokens `start` to `num_tokens` to another slot.

        The target has those before `start` already.
        """
        ...

    def prefix_memory(self, max_bytes: int) -> PrefixMemory | None:
        """Memory for pieces of its slots, in the host's.

        None where they cannot be copied there, or the bytes hold not one.
        """
        ...

    @property
    def pads_prompts(self) -> bool:
        """Whether rows of several tokens cost as much as the longest of their run."""
        ...

    @property
    def adapters(self) -> AdapterBuffers | None:
        """The places for adapters; None where its graph takes none."""
        ...

    @property
    def max_logits_per_row(self) -> int:
        """For how many tokens of one row a run can give logits; 1 if only for the last."""
        ...

    def run(
        self,
        first_slot: int,
        rows: Sequence[np.ndarray],
        num_past: Sequence[int],
        num_logits: int = 1,
        places: Sequence[int] = (),
    ) -> np.ndarray | StepLogits:
        """Compute the next tokens of neighbouring slots; see `OnnxDecoder.run`."""
        ...


@dataclass(frozen=True, slots=True)
class PackedInputs:
    """A run over blocks, as ONNX Runtime's `PagedAttention` takes it."""

    input_ids: np.ndarray  # int64 [tokens]: of all rows, one after the other
    position_ids: np.ndarray  # int64 [tokens]
    cumulative_sequence_length: np.ndarray  # int32 [rows + 1]
    past_seqlens: np.ndarray  # int32 [rows]
    block_table: np.ndarray  # int32 [rows, most blocks of a row]; -1 behind a row's blocks
    logit_positions: np.ndarray  # int64 [wanted]: of tokens whose logits are wanted


@runtime_checkable
class PagedDecoder(Protocol):
    """A model with a cache in blocks, as the engine sees it."""

    @property
    def num_blocks(self) -> int: ...

    @property
    def block_size(self) -> int: ...

    @property
    def max_rows(self) -> int: ...

    @property
    def max_tokens(self) -> int: ...

    @property
    def vocab_size(self) -> int: ...

    def copy(self, source: int, target: int, num_tokens: int) -> None:
        """Copy the first tokens of a block to another block."""
        ...

    def run(self, inputs: PackedInputs) -> np.ndarray | StepLogits:
        """Logits [wanted, V], float32; the result may be overwritten by the next run."""
        ...
