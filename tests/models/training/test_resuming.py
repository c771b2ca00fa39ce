"""What holds of every training: it repeats, and resumes bit for bit, or refuses another's state."""

from functools import cache
from pathlib import Path

import pytest
import torch

from models.errors import CheckpointError, TrainingInterruptedError
from models.training.trainer import Listener
from tests.models.runs import RUNS, Ended, Run, stop_after

every_run = pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)


@cache
def whole(run: Run, precision: str = "") -> Ended:
    """The run without a stop, made once; not to be changed."""
    return run.train({"precision": precision} if precision else {})


class Steps(Listener):
    """Counts the steps of one session, and what was done before."""

    def __init__(self) -> None:
        self.done = self.count = 0

    def started(self, total_steps: int, done_steps: int) -> None:
        self.done = done_steps

    def stepped(self, loss: float, advance: int = 1) -> None:
        self.count += advance


@every_run
def test_the_same_seed_gives_the_same_weights_and_another_does_not(run: Run) -> None:
    expected = whole(run)
    torch.rand(3)  # whatever the global random state is
    state = torch.get_rng_state()
    again, other = run.train(), run.train({"seed": 1})
    assert torch.equal(state, torch.get_rng_state()), "it stays as it was"
    assert again.is_same(expected)
    assert not other.is_same(again)


@pytest.mark.parametrize(
    ("run", "precision"),
    [
        *(pytest.param(run, "", id=run.name) for run in RUNS),
        *(pytest.param(run, "on", id=f"{run.name}, bfloat16") for run in RUNS if run.is_cast),
    ],
)
@pytest.mark.parametrize("place", ["at once", "at an end", "between", "at the last step"])
def test_a_resumed_run_ends_as_an_uninterrupted_one(
    run: Run, precision: str, place: str, tmp_path: Path
) -> None:
    """Stopped within the first epoch, at its end, in the middle and after the very last step."""
    steps = {
        "at once": 1,
        "at an end": run.measure_every,
        "between": run.measure_every + 2,
        "at the last step": run.steps,
    }[place]
    changes = {"precision": precision} if precision else {}
    state_file = tmp_path / "run.resume.pt"
    with pytest.raises(TrainingInterruptedError, match=f"after step {steps}{run.where}"):
        run.train(changes, state_file=state_file, should_stop=stop_after(steps))
    heard = Steps()
    resumed = run.train(changes, state_file=state_file, listener=heard)
    assert resumed.is_same(whole(run, precision))
    assert (heard.done, heard.count) == (steps, run.steps - steps)


@every_run
def test_a_run_stopped_again_and_again_ends_the_same(run: Run, tmp_path: Path) -> None:
    for _ in range(run.steps):
        with pytest.raises(TrainingInterruptedError):
            run.train(state_file=tmp_path / "state", should_stop=lambda: True)
    assert run.train(state_file=tmp_path / "state").is_same(whole(run))


@every_run
def test_a_run_that_was_at_its_end_does_no_step_again(run: Run, tmp_path: Path) -> None:
    run.train(state_file=tmp_path / "state")
    heard = Steps()
    assert run.train(state_file=tmp_path / "state", listener=heard).is_same(whole(run))
    assert (heard.done, heard.count) == (run.steps, 0)


@every_run
def test_a_state_of_another_run_is_refused_with_the_difference(run: Run, tmp_path: Path) -> None:
    changes, difference = run.other
    state_file = tmp_path / "state"
    with pytest.raises(TrainingInterruptedError):
        run.train(state_file=state_file, should_stop=lambda: True)
    with pytest.raises(CheckpointError, match=f"{difference}; repeat that command to continue it"):
        run.train(changes, state_file=state_file)
    with pytest.raises(CheckpointError, match="with other data; repeat that command"):
        run.train(has_other_data=True, state_file=state_file)
    with pytest.raises(CheckpointError, match=f"{difference}; other data; repeat"):
        run.train(changes, has_other_data=True, state_file=state_file)
    heard = Steps()
    started_over = run.train(state_file=state_file, resume=False, listener=heard)
    assert heard.done == 0
    assert started_over.is_same(whole(run))


def test_a_damaged_state_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"half a file")
    with pytest.raises(CheckpointError, match="not a readable training state; start over with"):
        RUNS[0].train(state_file=tmp_path / "state")


def test_a_state_of_an_older_format_is_refused(tmp_path: Path) -> None:
    """Format 1 had an epoch's accuracy and macro F1 where there are figures by name."""
    state_file = tmp_path / "state"
    RUNS[0].train(state_file=state_file)
    state = torch.load(state_file)
    torch.save({**state, "format": "attendant-training-state-1"}, state_file)
    with pytest.raises(CheckpointError, match=r"is not a .*-state-3; start over with --no-resume"):
        RUNS[0].train(state_file=state_file)
