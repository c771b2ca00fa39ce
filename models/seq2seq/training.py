"""Train a sequence-to-sequence network on pairs, and measure how well it does.

Knows nothing about kinds of networks, terminals or files of reports. The decoder is given the
target up to each token and learns the next (teacher forcing); accuracy is of what it says by
itself, always taking the likeliest token.

Which pairs come next follows from the number of steps done, so that a run continues exactly from
its saved state, as in `models/trainer.py`.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, S source, T target tokens, V vocabulary

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from models.batches import epoch_batches, sorted_batches
from models.errors import TrainingInterruptedError
from models.optimizer import build_optimizer, learning_rate_at
from models.seq2seq.pairs import Pair, PairSplits
from models.seq2seq.settings import Seq2SeqSettings
from models.seq2seq.tokens import SpecialTokens, TokenizedPairs, longest
from models.training_state import RunIdentity, RunState

SAVE_INTERVAL_S = 60.0  # the most work that a crash may lose
TESTED_TOGETHER = 256  # rows
MEASURED_PAIRS = 2_000  # most of those trained on: saying many again would outlast the training


class Seq2Seq(Protocol):
    """What a network must do to be trained and measured here; it is an `nn.Module` too."""

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
    """How one kind of network is made and trained.

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
    """Of what a network says by itself."""

    symbols: float  # share of targets' tokens, their ends aside, that stand where they should
    exact: float  # share of targets that are right as a whole, with their ends


@dataclass(frozen=True, slots=True)
class Epoch:
    """One finished epoch, counted from 1."""

    epoch: int
    train_loss: float
    test: Accuracy


@dataclass(slots=True)
class Course:
    """What has happened so far; the number of losses is the number of steps done."""

    step_losses: list[float] = field(default_factory=list)
    epochs: list[Epoch] = field(default_factory=list)
    seconds: float = 0.0  # spent on steps, in this session and those before
    cpu_seconds: float = 0.0  # of all threads

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        epochs = [Epoch(**{**e, "test": Accuracy(**e["test"])}) for e in values["epochs"]]
        return cls(**{**values, "epochs": epochs})


class Listener(Protocol):
    """Hears how training goes."""

    def started(self, total_steps: int, done_steps: int) -> None: ...

    def stepped(self, loss: float) -> None: ...

    def tested(self, epoch: Epoch) -> None: ...


class SilentListener:
    """Hears nothing: the default."""

    def started(self, total_steps: int, done_steps: int) -> None:
        pass

    def stepped(self, loss: float) -> None:
        pass

    def tested(self, epoch: Epoch) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Trained:
    """The network after its last epoch, and how the run went."""

    network: nn.Module
    tokenizer: Tokenizer
    settings: Seq2SeqSettings
    pairs: PairSplits
    course: Course
    train: Accuracy
    test: Accuracy


def train(
    pairs: PairSplits,
    training: Training,
    settings: Seq2SeqSettings,
    *,
    state_file: Path | None = None,
    resume: bool = True,
    listener: Listener | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Trained:
    """Train a fresh network; the global random state stays as it was.

    With a `state_file` the run can be stopped and continued: raises TrainingInterruptedError after
    saving once `should_stop` says so, and CheckpointError if the file belongs to another run.
    """
    tokenizer = training.tokenizer(pairs.train, settings)
    max_positions = longest(tokenizer, [*pairs.train, *pairs.test], pairs.name)
    with torch.random.fork_rng(devices=[]), _threads(training.num_threads(settings)):
        torch.manual_seed(settings.seed)
        network = training.build(settings, tokenizer, max_positions)
        run = _Run(network, training, settings, pairs, tokenizer, listener or SilentListener())
        if state_file is not None and resume and state_file.exists():
            run.restore(state_file)
        run.to_the_end(state_file, should_stop)
    network.eval()
    seen = TokenizedPairs(pairs.train[:MEASURED_PAIRS], tokenizer, network.config, pairs.name)  # type: ignore[arg-type]
    train_accuracy = run.accuracy(seen)
    test_accuracy = run.course.epochs[-1].test
    return Trained(network, tokenizer, settings, pairs, run.course, train_accuracy, test_accuracy)


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


class _Run:
    """One network and its optimizer.

    Mutable, and all of it in the saved state: both of these, `course` and torch's random state.
    """

    def __init__(
        self,
        network: nn.Module,
        training: Training,
        settings: Seq2SeqSettings,
        pairs: PairSplits,
        tokenizer: Tokenizer,
        listener: Listener,
    ) -> None:
        self.course = Course()
        self._network = network
        self._training = training
        self._settings = settings
        self._listener = listener
        tokens: SpecialTokens = network.config  # type: ignore[assignment]
        self.train = TokenizedPairs(pairs.train, tokenizer, tokens, pairs.name)
        self.test = TokenizedPairs(pairs.test, tokenizer, tokens, pairs.name)
        self._pad_token_id = tokens.pad_token_id
        self._optimizer = build_optimizer(network, settings, training.betas, training.epsilon)
        identity = RunIdentity(settings.to_dict(), "fresh weights", _digest_of(pairs))
        self._state = RunState(identity, network, self._optimizer)

    def restore(self, state_file: Path) -> None:
        """Continue from the file; raise CheckpointError if it belongs to another run."""
        self.course = Course.from_dict(self._state.restore(state_file))

    def to_the_end(self, state_file: Path | None, should_stop: Callable[[], bool]) -> None:
        settings, course = self._settings, self.course
        lengths = self.train.lengths()
        steps_per_epoch = -(-len(lengths) // settings.batch_size)
        total_steps = settings.epochs * steps_per_epoch
        self._listener.started(total_steps, len(course.step_losses))
        saved_s = time.monotonic()
        while len(course.step_losses) < total_steps:
            epoch, done = divmod(len(course.step_losses), steps_per_epoch)
            for indices in epoch_batches(lengths, settings.batch_size, settings.seed, epoch)[done:]:
                self._timed_step(indices, total_steps)
                if len(course.step_losses) % steps_per_epoch == 0:
                    self._test(epoch + 1, course.step_losses[-steps_per_epoch:])
                if should_stop():
                    self._save(state_file)
                    raise TrainingInterruptedError(f"after step {len(course.step_losses)}")
                if time.monotonic() - saved_s > SAVE_INTERVAL_S:
                    self._save(state_file)
                    saved_s = time.monotonic()
        self._save(state_file)

    def accuracy(self, pairs: TokenizedPairs) -> Accuracy:
        """Of the likeliest tokens, each following those that the network said before."""
        num_right = num_symbols = num_exact = 0
        self._network.eval()
        network: Seq2Seq = self._network  # type: ignore[assignment]
        for indices in sorted_batches(pairs.lengths(), TESTED_TOGETHER):
            batch = pairs.batch(indices)
            with torch.inference_mode():
                said_BT, _ = network.greedy(batch.source, batch.mask, batch.target.shape[1])
            is_right = said_BT == batch.target
            is_symbol = batch.target != self._pad_token_id
            is_symbol &= batch.target != network.config.end_token_id
            num_right += int((is_right & is_symbol).sum())
            num_symbols += int(is_symbol.sum())
            num_exact += int(is_right.all(dim=1).sum())
        return Accuracy(num_right / num_symbols, num_exact / len(pairs))

    def _timed_step(self, indices: Sequence[int], total_steps: int) -> None:
        started_s, started_cpu_s = time.monotonic(), time.process_time()
        loss = self._step(indices, total_steps)
        self.course.seconds += time.monotonic() - started_s
        self.course.cpu_seconds += time.process_time() - started_cpu_s
        self.course.step_losses.append(loss)
        self._listener.stepped(loss)

    def _step(self, indices: Sequence[int], total_steps: int) -> float:
        settings, network = self._settings, self._network
        network.train()
        rate = self._training.rate_at(len(self.course.step_losses), total_steps, settings)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        batch = self.train.batch(indices)
        logits_BTV = network(batch.source, batch.mask, batch.before)
        smoothing = self._training.label_smoothing
        loss = target_loss(logits_BTV, batch.target, self._pad_token_id, smoothing)
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(network.parameters(), settings.clip_norm)
        self._optimizer.step()
        return loss.item()

    def _test(self, number: int, losses: Sequence[float]) -> None:
        epoch = Epoch(number, sum(losses) / len(losses), self.accuracy(self.test))
        self.course.epochs.append(epoch)
        self._listener.tested(epoch)

    def _save(self, state_file: Path | None) -> None:
        if state_file is not None:
            self._state.save(state_file, self.course)


def _digest_of(pairs: PairSplits) -> str:
    return hashlib.sha256(repr((pairs.train, pairs.test)).encode()).hexdigest()
