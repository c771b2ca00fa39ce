"""Learn from rows with targets: epochs of batches, each epoch judged on the validation rows.

Knows nothing about texts, images or terminals.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from torch import Tensor, nn
from torch.nn import functional as F

from models.data.batches import EpochBatches, LabelledRows, Rows
from models.training.evaluation import Evaluation, evaluate
from models.training.optimizer import build_optimizer, learning_rate_at, uses_bfloat16
from models.training.settings import TrainingSettings
from models.training.state import Progress, RunIdentity
from models.training.trainer import Judgement, Schedule, Session, Trainer


class Judged(Protocol):
    """A model's figures on the rows of an evaluation."""

    @property
    def loss(self) -> float: ...

    def scores(self) -> dict[str, float]:
        """The task's figures by name, each better the higher it is."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """All that a report contains."""
        ...


R = TypeVar("R", bound=Rows)
J = TypeVar("J", bound=Judged)


@dataclass(frozen=True, slots=True)
class Criterion(Generic[R, J]):
    """All in which learning from rows differs from task to task.

    `loss` is of a batch: of the network's float32 outputs and the targets. The best epoch has the
    highest `score`, or without one the lowest validation loss.
    """

    loss: Callable[[Tensor, Tensor], Tensor]
    judge: Callable[[nn.Module, R], J]
    score: str = ""


def classification(labels: Sequence[str]) -> Criterion[LabelledRows, Evaluation]:
    """The right one of some labels for each row."""
    return Criterion(F.cross_entropy, partial(evaluate, labels=labels))


class RowObjective(Generic[R, J]):
    """The objective of a criterion on rows; a step learns from one batch."""

    def __init__(
        self, train: R, validation: R, criterion: Criterion[R, J], settings: TrainingSettings
    ) -> None:
        self.train = train
        self.validation = validation
        self.criterion = criterion
        self.order = EpochBatches(train.lengths(), settings.batch_size, settings.seed)

    def batches(self, step: int) -> list[list[int]]:
        return [self.order[step]]

    def loss(self, model: nn.Module, batch: list[int]) -> Tensor:
        *inputs, targets = self.train.batch(batch)
        return self.criterion.loss(model(*inputs).float(), targets)

    def judge(self, model: nn.Module) -> Judgement:
        judged = self.criterion.judge(model, self.validation)
        return Judgement(judged.scores(), judged.loss)


def train_rows(
    model: nn.Module,
    objective: RowObjective[R, J],
    settings: TrainingSettings,
    identity: RunIdentity,
    session: Session,
    frozen: nn.Module | None = None,
    narrow: Callable[[], None] = lambda: None,
) -> Progress:
    """Train all but the `frozen` part of the model, in place.

    `narrow` may take further weights out of learning.
    """
    model.requires_grad_(True)
    narrow()
    if frozen is not None:
        frozen.requires_grad_(False)
    steps_per_epoch = objective.order.per_epoch
    total_steps = steps_per_epoch * settings.epochs
    schedule = Schedule(
        steps=total_steps,
        measure_every=steps_per_epoch,
        rate_at=lambda step: learning_rate_at(step, total_steps, settings),
        clip_norm=settings.clip_norm,
        bfloat16=uses_bfloat16(settings.precision),
        steps_per_epoch=steps_per_epoch,
        patience=settings.patience,
        score=objective.criterion.score,
    )
    optimizer = build_optimizer(model, settings)
    return Trainer(model, optimizer, objective, schedule, identity, frozen).run(session)


def metrics_of(evaluations: Mapping[str, Judged]) -> dict[str, float]:
    """The scores of each part, by its name and theirs."""
    return {
        f"{part}_{name}": value
        for part, judged in evaluations.items()
        for name, value in judged.scores().items()
    }
