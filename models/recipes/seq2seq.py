"""Train a sequence-to-sequence network on pairs, and measure how well it does.

Knows nothing about kinds of networks, terminals or files of reports. The decoder is given the
target up to each token and learns the next (teacher forcing); accuracy is of what it says by
itself, always taking the likeliest token.

The loop itself is in `models/training/trainer.py`.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, S source, T target tokens, V vocabulary

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from models.data.batches import EpochBatches, sorted_batches
from models.data.pairs import Pair, PairSplits
from models.data.tokens import SpecialTokens, TokenizedPairs, longest
from models.recipes.seq2seq_settings import Seq2SeqSettings
from models.training.optimizer import build_optimizer, learning_rate_at
from models.training.state import FRESH, Progress, RunIdentity
from models.training.trainer import Judgement, Schedule, Session, Trainer, seeded

TESTED_TOGETHER = 256  # rows
MEASURED_PAIRS = 2_000  # most of those trained on: saying many again would outlast the training


class Seq2Seq(Protocol):
    """The interface of a network for training and measuring; it is an `nn.Module` too."""

    config: Any  # has the fields of `SpecialTokens`, vocab_size and max_positions

    def __call__(self, source_BS: Tensor, mask_BS: Tensor, target_BT: Tensor) -> Tensor:
        """Logits [B, T, V] of what follows each token of a target that begins with the start."""
        ...

    def greedy(
        self, source_BS: Tensor, mask_BS: Tensor, num_steps: int
    ) -> tuple[Tensor, Tensor | None]:
        """Tokens [B, T], padding after the end, and attention [B, T, S] if the network has it."""
        ...


@dataclass(frozen=True, slots=True)
class Training:
    """The recipe of one kind of network.

    `build` is given the settings, the tokenizer and the longest row that it must take.
    """

    tokenizer: Callable[[Sequence[Pair], Seq2SeqSettings], Tokenizer]
    build: Callable[[Seq2SeqSettings, Tokenizer, int], nn.Module]
    rate_at: Callable[[int, int, Seq2SeqSettings], float] = learning_rate_at
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    label_smoothing: float = 0.0  # share of the target that is spread over all tokens
    # Threads that a step is computed on; by default as many as PyTorch would take.
    num_threads: Callable[[Seq2SeqSettings], int] = lambda _: torch.get_num_threads()


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Measurements of a network's own output."""

    symbols: float  # share of targets' tokens, their ends aside, that stand where they should
    exact: float  # share of targets that are right as a whole, with their ends


@dataclass(frozen=True, slots=True)
class Trained:
    """The network after its last epoch, and how the run went."""

    network: nn.Module
    tokenizer: Tokenizer
    settings: Seq2SeqSettings
    pairs: PairSplits
    progress: Progress  # an epoch's figures are those of `Accuracy`, on the pairs that are tested
    train: Accuracy
    test: Accuracy


def train(
    pairs: PairSplits,
    training: Training,
    settings: Seq2SeqSettings,
    session: Session | None = None,
) -> Trained:
    """Train a fresh network; the global random state stays as it was.

    Raises TrainingInterruptedError and CheckpointError, see `Session`.
    """
    tokenizer = training.tokenizer(pairs.train, settings)
    max_positions = longest(tokenizer, [*pairs.train, *pairs.test], pairs.name)
    identity = RunIdentity(settings.to_dict(), FRESH, _digest_of(pairs))
    with seeded(settings.seed), _threads(training.num_threads(settings)):
        network = training.build(settings, tokenizer, max_positions)
        tokens: SpecialTokens = network.config  # type: ignore[assignment]
        learnt, tested, measured = (
            TokenizedPairs(part, tokenizer, tokens, pairs.name)
            for part in (pairs.train, pairs.test, pairs.train[:MEASURED_PAIRS])
        )
        objective = PairObjective(learnt, tested, training, settings)
        steps_per_epoch = objective.order.per_epoch
        total_steps = settings.epochs * steps_per_epoch
        schedule = Schedule(
            steps=total_steps,
            measure_every=steps_per_epoch,
            rate_at=lambda step: training.rate_at(step, total_steps, settings),
            clip_norm=settings.clip_norm,
            keeps_best=False,
        )
        optimizer = build_optimizer(network, settings, training.betas, training.epsilon)
        trainer = Trainer(network, optimizer, objective, schedule, identity)
        progress = trainer.run(session or Session())
    test = Accuracy(**progress.measurements[-1].figures)
    train_accuracy = accuracy(network, measured)
    return Trained(network, tokenizer, settings, pairs, progress, train_accuracy, test)


class PairObjective:
    """The objective of writing the target of each pair; a step learns from one batch."""

    def __init__(
        self,
        train: TokenizedPairs,
        test: TokenizedPairs,
        training: Training,
        settings: Seq2SeqSettings,
    ) -> None:
        self.order = EpochBatches(train.lengths(), settings.batch_size, settings.seed)
        self._train = train
        self._test = test
        self._smoothing = training.label_smoothing

    def batches(self, step: int) -> list[list[int]]:
        return [self.order[step]]

    def loss(self, model: nn.Module, batch: list[int]) -> Tensor:
        pairs = self._train.batch(batch)
        logits_BTV = model(pairs.source, pairs.mask, pairs.before)
        pad_token_id: int = model.config.pad_token_id  # type: ignore[union-attr, assignment]
        return target_loss(logits_BTV, pairs.target, pad_token_id, self._smoothing)

    def judge(self, model: nn.Module) -> Judgement:
        return Judgement(asdict(accuracy(model, self._test)))


def accuracy(model: nn.Module, pairs: TokenizedPairs) -> Accuracy:
    """Figures of greedy outputs, each token following the network's own earlier ones."""
    num_right = num_symbols = num_exact = 0
    network: Seq2Seq = model  # type: ignore[assignment]
    for indices in sorted_batches(pairs.lengths(), TESTED_TOGETHER):
        batch = pairs.batch(indices)
        with torch.inference_mode():
            said_BT, _ = network.greedy(batch.source, batch.mask, batch.target.shape[1])
        is_right = said_BT == batch.target
        is_symbol = batch.target != network.config.pad_token_id
        is_symbol &= batch.target != network.config.end_token_id
        num_right += int((is_right & is_symbol).sum())
        num_symbols += int(is_symbol.sum())
        num_exact += int(is_right.all(dim=1).sum())
    return Accuracy(num_right / num_symbols, num_exact / len(pairs))


def target_loss(
    logits_BTV: Tensor, target_BT: Tensor, pad_token_id: int, smoothing: float = 0.0
) -> Tensor:
    """Mean cross entropy of the targets' tokens, padding aside.

    With smoothing, what is to be learnt is not all on the target's token but that share spread
    evenly over the vocabulary (Szegedy et al. 2015, section 7).
    """
    return F.cross_entropy(
        logits_BTV.flatten(0, 1),
        target_BT.flatten(),
        ignore_index=pad_token_id,
        label_smoothing=smoothing,
    )


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Set PyTorch's number of threads inside the block, and restore it after."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _digest_of(pairs: PairSplits) -> str:
    return hashlib.sha256(repr((pairs.train, pairs.test)).encode()).hexdigest()
