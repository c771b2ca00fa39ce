"""Reports of an engine to its observers: each step that ran, and each sequence that ended."""

from collections.abc import Sequence as Many
from typing import Protocol

from service.generation.scheduler import StepPlan
from service.generation.sequence import RanStep, Sequence
from service.generation.stream import SequenceUpdate


class EngineObserver(Protocol):
    """Who counts. Called on the engine thread."""

    def step_ran(self, step: RanStep) -> None: ...

    def sequence_ended(self, sequence: Sequence) -> None: ...


def ran_step(
    plan: StepPlan,
    updates: Many[SequenceUpdate],
    *,
    run_s: float,
    step_s: float,
    num_moved_rows: int,
    num_agreed: int,
) -> RanStep:
    """A step, and what it made of its sequences."""
    told = [update for update in updates if update.token_ids]
    return RanStep(
        phase=plan.phase,
        num_rows=len(plan.sequences),
        num_tokens=plan.num_tokens,
        run_s=run_s,
        other_s=step_s - run_s,
        num_moved_rows=num_moved_rows,
        num_drafted=plan.num_drafted,
        num_agreed=num_agreed,
        time_to_first_token_s=tuple(
            update.sequence.timings.time_to_first_token_s for update in told if not update.since_s
        ),
        inter_token_s=tuple(gap_s for update in told for gap_s in update.gaps_s),
    )
