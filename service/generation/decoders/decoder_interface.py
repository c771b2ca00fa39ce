"""Decoders as the engine sees them: over slots, or over the blocks of a paged cache.

One thread only. A decoder knows tokens and where they are kept, nothing of sequences or requests;
the layout of its cache says which steps it takes, and so which scheduler plans them.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from service.generation.adapter_places import AdapterPlaces
from service.generation.cache.kv_cache import KVCache
from service.generation.cache.paged_cache import PagedCache
from service.generation.cache.prefix_store import PrefixMemory, PrefixStore
from service.generation.choosing.step_logits import StepLogits
from service.generation.decoders.adapter_buffers import AdapterBuffers
from service.generation.steps.packed_scheduler import PackedInputs, PackedScheduler
from service.generation.steps.scheduler import Scheduler, SchedulerLimits
from service.generation.steps.slot_scheduler import SlotScheduler


class Decoder(ABC):
    """A model with a cache, as the engine sees it."""

    max_tokens: int  # of one sequence
    vocab_size: int
    adapters: AdapterBuffers | None = None  # places for adapters; None: its graph takes none

    @property
    @abstractmethod
    def cache_size(self) -> str:
        """The size of its cache, for people."""

    @abstractmethod
    def bounds(self, limits: SchedulerLimits) -> SchedulerLimits:
        """Limits of steps that its graph takes."""

    @abstractmethod
    def open(self, limits: SchedulerLimits) -> tuple[Scheduler[Any], KVCache | PagedCache]:
        """A scheduler of its steps, and the accounting of its cache."""

    @abstractmethod
    def probe(self) -> None:
        """Compute one token, which the cache is not marked as having. Raises `ModelFailed`."""


class SlotDecoder(Decoder):
    """A decoder whose sequences have a slot each: one row of every buffer of its cache."""

    num_slots: int
    max_logits_per_row: int = 1  # tokens of one row whose logits a run can give; 1: only the last's
    pads_prompts: bool = True  # rows of several tokens cost as much as the longest of their run
    has_states: bool = False  # of all tokens of a slot: it is copied whole, and nothing is undone

    @abstractmethod
    def copy(self, source: int, target: int, num_tokens: int, start: int = 0) -> None:
        """Copy a slot's keys and values of tokens `start` to `num_tokens` to another slot.

        The target has those before `start` already.
        """

    def prefix_memory(self, max_bytes: int) -> PrefixMemory | None:
        """Memory for pieces of its slots, in the host's.

        None where they cannot be copied there, or the bytes hold not one.
        """
        del max_bytes
        return None

    @abstractmethod
    def run(
        self,
        first_slot: int,
        rows: Sequence[np.ndarray],
        num_past: Sequence[int],
        num_logits: int = 1,
        places: Sequence[int] = (),
    ) -> np.ndarray | StepLogits:
        """Compute the next tokens of neighbouring slots; see `OnnxDecoder.run`."""

    @property
    def cache_size(self) -> str:
        return f"{self.num_slots} slots of {self.max_tokens} tokens"

    def bounds(self, limits: SchedulerLimits) -> SchedulerLimits:
        most = self.max_logits_per_row - 1  # 0 where a graph gives the last logits only
        return replace(
            limits,
            max_draft_tokens=0 if self.has_states else min(limits.max_draft_tokens, most),
            pads_prompts=self.pads_prompts,
            max_scored_tokens=most and self.max_logits_per_row,
        )

    def open(self, limits: SchedulerLimits) -> tuple[Scheduler[Any], KVCache]:
        is_on = limits.can_reuse_prefixes
        memory = self.prefix_memory(limits.max_prefix_bytes) if is_on else None
        store = PrefixStore(memory) if memory else None
        size = self.num_slots, self.max_tokens
        slots = KVCache(*size, self.copy, can_save=is_on, store=store, copies_whole=self.has_states)
        buffers = self.adapters
        adapters = AdapterPlaces(buffers.shape.num_places, buffers.write) if buffers else None
        return SlotScheduler(limits, slots, adapters), slots

    def probe(self) -> None:
        StepLogits.of(self.run(0, [np.zeros(1, np.int64)], [0])).whole()


class PagedDecoder(Decoder):
    """A decoder whose sequences have blocks of the cache, anywhere in it."""

    num_blocks: int
    block_size: int
    max_rows: int

    @abstractmethod
    def copy(self, source: int, target: int, num_tokens: int) -> None:
        """Copy the first tokens of a block to another block."""

    @abstractmethod
    def run(self, inputs: PackedInputs) -> np.ndarray | StepLogits:
        """Logits [wanted, V], float32; the result may be overwritten by the next run."""

    @property
    def cache_size(self) -> str:
        return f"{self.num_blocks} blocks of {self.block_size} tokens"

    def bounds(self, limits: SchedulerLimits) -> SchedulerLimits:
        return replace(limits, max_scored_tokens=self.max_rows)

    def open(self, limits: SchedulerLimits) -> tuple[Scheduler[Any], PagedCache]:
        blocks = PagedCache(
            self.num_blocks,
            self.block_size,
            self.max_tokens,
            self.max_rows,
            self.copy,
            can_reuse=limits.can_reuse_prefixes,
        )
        return PackedScheduler(limits, blocks), blocks

    def probe(self) -> None:
        inputs = PackedInputs.of([np.zeros(1, np.int64)], [0], np.zeros((1, 1), np.int32))
        StepLogits.of(self.run(inputs)).whole()
