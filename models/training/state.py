"""The state of a training run, in one file from which it continues exactly.

Knows nothing about the loop. The file holds weights, optimizer, random state and history; it says
which settings and data it belongs to, and is refused by any other run.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor, nn

from models.data.datasets import AnySplits
from models.errors import CheckpointError
from models.writing import replace_file

STATE_SUFFIX = ".resume.pt"
STATE_FORMAT = "attendant-training-state-3"
READ_FORMATS = ("attendant-training-state-2", STATE_FORMAT)  # 2 had three kinds of history
FRESH = "fresh weights"  # the origin of a run that begins with nothing


@dataclass(frozen=True, slots=True)
class Measurement:
    """A measurement of a model after some steps, on held-out data."""

    number: int  # of the measurements, counted from 1; of the epochs, where each is measured
    step: int
    train_loss: float  # mean since the measurement before
    validation_loss: float | None  # None where only figures are computed
    figures: dict[str, float]  # by name
    sample: str = ""  # of what the model says

    def is_better_than(self, other: "Measurement", score: str = "") -> bool:
        """Compare a figure where one is named, then the validation loss, which every row moves.

        Without losses, the later one is better.
        """
        if self.validation_loss is None or other.validation_loss is None:
            return self.number > other.number
        if score and self.figures[score] != other.figures[score]:
            return self.figures[score] > other.figures[score]
        return self.validation_loss < other.validation_loss


@dataclass(slots=True)
class Progress:
    """The history of a run; the number of losses is the number of finished steps."""

    step_losses: list[float] = field(default_factory=list)
    measurements: list[Measurement] = field(default_factory=list)
    best_number: int = 0  # of the best measurement; 0 before the first
    seconds: float = 0.0  # spent on steps, in this session and those before
    cpu_seconds: float = 0.0  # of all threads

    @property
    def best(self) -> Measurement | None:
        return self.measurements[self.best_number - 1] if self.best_number else None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], measure_every: int) -> "Progress":
        """A saved history; in format 2 an epoch does not say after which step it ended."""
        if "best_number" not in values:
            return _of_format_2(values, measure_every)
        measurements = [Measurement(**each) for each in values["measurements"]]
        return cls(**{**values, "measurements": measurements})


def _of_format_2(values: Mapping[str, Any], measure_every: int) -> Progress:
    """History of format 2: epochs with scores, epochs with an accuracy, or measurements."""
    progress = Progress(values["step_losses"], seconds=values["seconds"])
    progress.cpu_seconds = values.get("cpu_seconds", 0.0)
    for number, record in enumerate(values.get("epochs") or values.get("measurements", ()), 1):
        measurement = Measurement(
            number=number,
            step=record.get("step", number * measure_every),
            train_loss=record["train_loss"],
            validation_loss=record.get("validation_loss"),
            figures=record.get("figures") or record.get("scores") or record["test"],
            sample=record.get("sample", ""),
        )
        progress.measurements.append(measurement)
        if progress.best is None or measurement.is_better_than(progress.best):
            progress.best_number = number
    progress.best_number = values.get("best_epoch", progress.best_number)
    return progress


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """The identity of the run that a state belongs to."""

    settings: Mapping[str, Any]
    origin: str
    data: str  # digest of all texts and labels

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def check_same(self, other: Mapping[str, Any], path: Path) -> None:
        """Raise CheckpointError naming what differs."""
        stored = other["settings"]
        differing = [
            f"{name} {stored.get(name)!r} and not {value!r}"
            for name, value in self.settings.items()
            # A setting that is newer than the state is off in it.
            if stored.get(name) != value and (name in stored or value)
        ]
        if other["origin"] != self.origin:
            differing.append(f"the checkpoint {other['origin']!r} and not {self.origin!r}")
        if other["data"] != self.data:
            differing.append("other data")
        if differing:
            raise CheckpointError(
                f"{path} belongs to a run with {'; '.join(differing)}; repeat that command to "
                "continue it, or start over with --no-resume"
            )


def digest_of(splits: AnySplits) -> str:
    digest = hashlib.sha256()
    for part in (splits.train, splits.validation, splits.test):
        for example in part.examples if part else ():
            digest.update(repr(example.content).encode())
        digest.update(b"\x00")
    return digest.hexdigest()


@dataclass(slots=True)
class RunState:
    """All that a run changes, but for torch's random state, which is saved with it."""

    identity: RunIdentity
    model: nn.Module
    optimizer: torch.optim.Optimizer
    best_weights: dict[str, Tensor] = field(default_factory=dict)

    def save(self, path: Path, progress: Progress) -> None:
        state = {
            "identity": self.identity.to_dict(),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "best_weights": self.best_weights,
            "progress": progress.to_dict(),
            "random": torch.get_rng_state(),
        }
        write_state(path, state)

    def restore(self, path: Path) -> Mapping[str, Any]:
        """Continue from the file and return its progress; CheckpointError if of another run."""
        state = read_state(path)
        self.identity.check_same(state["identity"], path)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.best_weights = state["best_weights"]
        torch.set_rng_state(state["random"])
        progress: Mapping[str, Any] = state["progress"]
        return progress


def state_path(output: Path) -> Path:
    """A path beside the output folder, which stays absent until the run is complete."""
    return output.with_name(output.name + STATE_SUFFIX)


def write_state(path: Path, values: Mapping[str, Any]) -> None:
    """Replace the file at once: a crash while writing leaves the earlier state.

    Raises OutputError.
    """
    kept = "; it continues from the state that was saved before" if path.exists() else ""
    replace_file(path, _size_of(values), lambda file: _save(values, file), kept)


def _save(values: Mapping[str, Any], file: BinaryIO) -> None:
    try:
        torch.save({"format": STATE_FORMAT, **values}, file)
    except RuntimeError as error:  # what torch makes of a write that failed
        if isinstance(error.__context__, OSError):
            raise error.__context__ from error
        raise


def _size_of(values: object) -> int:
    """Bytes of all tensors in nested mappings."""
    if isinstance(values, Tensor):
        return values.nbytes
    return sum(map(_size_of, values.values())) if isinstance(values, Mapping) else 0


def read_state(path: Path) -> dict[str, Any]:
    try:
        values = torch.load(path, weights_only=True)
    except Exception as error:  # pickle, zip and torch each raise their own
        raise CheckpointError(
            f"{path} is not a readable training state; start over with --no-resume"
        ) from error
    if not isinstance(values, dict) or values.get("format") not in READ_FORMATS:
        raise CheckpointError(f"{path} is not a {STATE_FORMAT}; start over with --no-resume")
    return values


def copy_weights(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in state.items()}
