"""What an earlier version wrote still loads: training states and checkpoints in `tests/saved`.

The files are never written again: these tests are to find a change after which they can no longer
be read. Figures were computed on another processor, which rounds in its own way, so they are
compared with a tolerance.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import tests
from models.checkpoints.checkpoint import Checkpoint, load_checkpoint
from models.training.trainer import Listener
from tests.models.runs import RUNS, Run

SAVED = Path(tests.__file__).parent / "saved"
EXPECTED: dict[str, Any] = json.loads((SAVED / "expected.json").read_text())


def answer(checkpoint: Checkpoint) -> Tensor:
    """What the network gives for one fixed row, or image."""
    ids = torch.tensor([[2, 4, 6, 7, 3]])
    mask = torch.ones_like(ids)
    arguments: tuple[Tensor, ...] = ids, mask
    if checkpoint.task == "image-classification":
        arguments = (torch.linspace(-1, 1, 64).reshape(1, 1, 8, 8),)
    elif hasattr(checkpoint.config, "start_token_id"):  # reads one sequence, writes another
        arguments = ids, mask, torch.tensor([[2, 5, 9]])
    elif checkpoint.task == "text-generation":
        arguments = (ids,)
    with torch.inference_mode():
        output: Tensor = checkpoint.model(*arguments)
    return output


KEPT = [run for run in RUNS if run.name in EXPECTED["states"]]


@pytest.mark.parametrize("run", KEPT, ids=lambda run: run.name)
def test_a_state_that_was_saved_before_continues_to_the_same_end(run: Run, tmp_path: Path) -> None:
    """Losses to 1e-4, and the norm of all weights to 1e-3."""
    expected, state_file = EXPECTED["states"][run.name], tmp_path / "state"
    shutil.copy(SAVED / "states" / f"{run.name}.resume.pt", state_file)
    steps: list[float] = []
    ended = run.train(state_file=state_file, listener=Counter(steps))
    assert len(steps) == run.steps - expected["step"], "it began again"
    assert ended.losses == pytest.approx(expected["losses"], rel=1e-4)
    squares = [weight.double().square().sum() for weight in ended.weights.values()]
    assert torch.stack(squares).sum().sqrt().item() == pytest.approx(
        expected["norm_of_weights"], rel=1e-3
    )


class Counter(Listener):
    """Keeps the loss of each step."""

    def __init__(self, steps: list[float]) -> None:
        self._steps = steps

    def stepped(self, loss: float, advance: int = 1) -> None:
        self._steps.append(loss)


@pytest.mark.parametrize("kind", EXPECTED["checkpoints"])
def test_a_checkpoint_that_was_saved_before_answers_as_it_did(kind: str) -> None:
    """Its first 12 values, to 1e-4."""
    values = answer(load_checkpoint(SAVED / "checkpoints" / kind)).flatten().tolist()[:12]
    assert values == pytest.approx(EXPECTED["checkpoints"][kind], abs=1e-4)
