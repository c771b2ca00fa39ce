"""CUDA graphs of decoding steps: which row counts are recorded, and steps padded up to them.

A CUDA graph repeats what was recorded, in the same shapes and at the same addresses, without the
host's time per operator. So a step over blocks, one token of each row, is padded with rows that
belong to no sequence. They write into one block of their own, `scratch_block`, and nothing reads
what they compute. Other runs are not recorded. Pure; unverified on CUDA: docs/how-to/cuda.md.
"""

from dataclasses import dataclass

import numpy as np

from service.generation.steps.packed_scheduler import PackedInputs

FIRST_ROWS = 8  # and its doubles


@dataclass(frozen=True, slots=True)
class AttentionBounds:
    """The operator's bounds on a run; those of a recorded run hold for all that repeat it."""

    new_tokens: int  # at most, of a row
    tokens: int  # at most, of a row after the run
    least_tokens: int  # at least, of the longest row after the run; 0 where that is open


def recorded_rows(inputs: PackedInputs) -> int | None:
    """The row count that a run is padded to; None for one that is no decoding step."""
    num_rows = len(inputs.past_seqlens)
    if not len(inputs.input_ids) == num_rows == len(inputs.logit_positions):
        return None
    if (np.diff(inputs.cumulative_sequence_length) != 1).any():
        return None
    rows = FIRST_ROWS
    while rows < num_rows:
        rows *= 2
    return rows


def widened(inputs: PackedInputs, num_rows: int, scratch_block: int) -> PackedInputs:
    """A decoding step with further rows: token 0 behind no past, in the scratch block."""
    num_more = num_rows - len(inputs.past_seqlens)
    assert num_more >= 0, "the step has more rows"
    table = np.zeros((num_more, inputs.block_table.shape[1]), np.int32)
    table[:, :1] = scratch_block
    return PackedInputs(
        input_ids=_extended(inputs.input_ids, num_more),
        position_ids=_extended(inputs.position_ids, num_more),
        cumulative_sequence_length=np.arange(num_rows + 1, dtype=np.int32),
        past_seqlens=_extended(inputs.past_seqlens, num_more),
        block_table=np.concatenate([inputs.block_table, table]),
        logit_positions=np.arange(num_rows),
    )


def bounds_of(inputs: PackedInputs) -> AttentionBounds:
    """The bounds of this run alone."""
    num_new = np.diff(inputs.cumulative_sequence_length)
    longest = int((inputs.past_seqlens + num_new).max())
    return AttentionBounds(int(num_new.max()), longest, longest)


def _extended(array: np.ndarray, num_more: int) -> np.ndarray:
    return np.concatenate([array, np.zeros(num_more, array.dtype)])
