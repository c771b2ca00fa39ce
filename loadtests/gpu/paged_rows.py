"""A decoder over blocks, used as if each sequence had a slot: with blocks of its own, in order.

So that what is compared over slots is compared over blocks in the same way. What was verified on
CUDA is in docs/cuda.md.
"""

from collections.abc import Sequence

import numpy as np

from service.generation.choosing.step_logits import StepLogits
from service.generation.decoders.decoder_interface import PackedInputs, PagedDecoder


class PagedRows:
    """Sequences of a paged decoder by number, each with room for `max_tokens`."""

    def __init__(self, decoder: PagedDecoder, max_tokens: int) -> None:
        self._decoder = decoder
        self._blocks_per_row = -(-max_tokens // decoder.block_size)
        self.max_tokens = max_tokens

    @property
    def num_slots(self) -> int:
        return min(self._decoder.num_blocks // self._blocks_per_row, self._decoder.max_rows)

    @property
    def vocab_size(self) -> int:
        return self._decoder.vocab_size

    def run(
        self, first_slot: int, rows: Sequence[np.ndarray], num_past: Sequence[int]
    ) -> np.ndarray | StepLogits:
        """Logits [B, V] of each row's last token; see `OnnxDecoder.run`."""
        assert first_slot + len(rows) <= self.num_slots, "there are no blocks for them"
        slots = np.arange(first_slot, first_slot + len(rows), dtype=np.int32)
        blocks = np.arange(self._blocks_per_row, dtype=np.int32)
        ends = np.cumsum([len(row) for row in rows], dtype=np.int32)
        positions = [
            np.arange(past, past + len(row)) for row, past in zip(rows, num_past, strict=True)
        ]
        inputs = PackedInputs(
            input_ids=np.concatenate(rows).astype(np.int64),
            position_ids=np.concatenate(positions).astype(np.int64),
            cumulative_sequence_length=np.concatenate([np.zeros(1, np.int32), ends]),
            past_seqlens=np.array(num_past, np.int32),
            block_table=slots[:, None] * self._blocks_per_row + blocks,
            logit_positions=ends.astype(np.int64) - 1,
        )
        return self._decoder.run(inputs)
