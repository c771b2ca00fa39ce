"""Where a training run stands, kept in one file from which it continues exactly.

Knows nothing about the loop. The file holds weights, optimizer, random state and history; it says
which settings and data it belongs to, and is refused by any other run.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol, Self

import torch
from torch import Tensor, nn

from models.datasets import AnySplits
from models.errors import CheckpointError
from models.writing import replace_file

STATE_SUFFIX = ".resume.pt"
STATE_FORMAT = "attendant-training-state-2"  # 1 had one figure per field, not by name


class History(Protocol):
    """What has happened so far, in numbers and strings."""

    def to_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """One finished epoch, counted from 1."""

    epoch: int
    train_loss: float
    validation_loss: float
    scores: dict[str, float]  # on the validation rows, by name

    def is_better_than(self, other: "EpochRecord", score: str = "") -> bool:
        """Compare a score where one is named, then the validation loss, which every row moves."""

        def key(record: EpochRecord) -> tuple[float, float]:
            return record.scores[score] if score else 0.0, -record.validation_loss

        return key(self) > key(other)


@dataclass(slots=True)
class Progress:
    """What has happened so far; the number of losses is the number of steps done."""

    step_losses: list[float] = field(default_factory=list)
    epochs: list[EpochRecord] = field(default_factory=list)
    best_epoch: int = 0  # counted from 1; 0 before the first evaluation
    seconds: float = 0.0  # spent training, in this session and those before

    @property
    def best(self) -> EpochRecord | None:
        return self.epochs[self.best_epoch - 1] if self.best_epoch else None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        return cls(**{**values, "epochs": [EpochRecord(**record) for record in values["epochs"]]})


@dataclass(frozen=True, slots=True)
class Measurement:
    """How a language model does after so many steps."""

    step: int
    train_loss: float  # mean since the measurement before
    validation_loss: float  # the same loss, of held-out text
    figures: dict[str, float]  # what else tells how well, by name
    sample: str  # of what it says


@dataclass(slots=True)
class PretrainProgress:
    """What has happened so far; the number of losses is the number of steps done."""

    step_losses: list[float] = field(default_factory=list)
    measurements: list[Measurement] = field(default_factory=list)
    seconds: float = 0.0  # spent on steps, in this session and those before

    @property
    def best(self) -> Measurement | None:
        """The earliest of those with the least validation loss."""
        return min(self.measurements, key=lambda m: m.validation_loss, default=None)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        measurements = [Measurement(**values) for values in values["measurements"]]
        return cls(**{**values, "measurements": measurements})


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """Which run a state belongs to."""

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
            if stored.get(name) != value
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

    def save(self, path: Path, progress: History) -> None:
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
    """Beside the output folder, which stays absent until the run is complete."""
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
    if not isinstance(values, dict) or values.get("format") != STATE_FORMAT:
        raise CheckpointError(f"{path} is not a {STATE_FORMAT}; start over with --no-resume")
    return values


def copy_weights(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in state.items()}
