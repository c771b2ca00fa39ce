"""Reports on the training of a language model: a picture and a JSON file.

Knows nothing about training.
"""

from typing import Any

from matplotlib.figure import Figure

from commands.train.progress import spoken
from commands.train.reports import json_of, png_of
from models.data.corpus import Corpus
from models.networks.kinds import kind_of
from models.recipes.pretrain import Pretrained
from models.training.pretrain_settings import PretrainSettings
from models.training.state import Measurement, Progress

ACCURACY = "accuracy"  # the end of the names of figures that are accuracies


def pretrain_reports_of(
    pretrained: Pretrained, corpus: Corpus, settings: PretrainSettings
) -> dict[str, bytes]:
    """The report files by name."""
    return {
        "training.json": pretraining_json(pretrained, corpus, settings),
        "loss.png": pretraining_picture(pretrained.progress),
    }


def tokens_per_s(pretrained: Pretrained, settings: PretrainSettings) -> float:
    """Training tokens per second, without the time for measurements."""
    per_step = settings.windows_per_step * pretrained.objective.tokens_per_window
    return len(pretrained.progress.step_losses) * per_step / pretrained.progress.seconds


def pretraining_json(pretrained: Pretrained, corpus: Corpus, settings: PretrainSettings) -> bytes:
    progress, best = pretrained.progress, pretrained.progress.best
    assert best is not None, "the last step is measured"
    held_out_file = corpus.validation_file
    values = {
        "data": {
            "files": [file.to_dict() for file in corpus.files],
            "validation_file": held_out_file.to_dict() if held_out_file else None,
            "train_documents": len(corpus.train),
            "train_tokens": pretrained.objective.num_train_tokens,
            "validation_documents": len(corpus.validation),
            "validation_tokens": pretrained.objective.num_validation_tokens,
        },
        "settings": settings.to_dict(),
        **kind_of(pretrained.checkpoint.model).sections(pretrained.checkpoint.model),
        "bfloat16": pretrained.bfloat16,
        "best_step": best.step,
        "measurements": [measured(m) for m in progress.measurements],
        "training_s": round(progress.seconds, 1),
        "tokens_per_s": round(tokens_per_s(pretrained, settings)),
        "step_losses": progress.step_losses,
    }
    return json_of(values)


def measured(measurement: Measurement) -> dict[str, Any]:
    return {
        "step": measurement.step,
        "train_loss": measurement.train_loss,
        "validation_loss": measurement.validation_loss,
        "sample": measurement.sample,
        **measurement.figures,
    }


def pretraining_picture(progress: Progress) -> bytes:
    """The training loss of every step, and every measurement; accuracies on a second axis."""
    figure = Figure(figsize=(7.0, 4.6), layout="constrained")
    axes = figure.subplots()
    steps = [measurement.step for measurement in progress.measurements]
    losses = progress.step_losses
    axes.plot(range(1, len(losses) + 1), losses, alpha=0.35, label="training, per step")
    axes.plot(steps, [m.train_loss for m in progress.measurements], "o-", label="training, mean")
    validation: Any = [measurement.validation_loss for measurement in progress.measurements]
    axes.plot(steps, validation, "s-", label="validation")
    if progress.best is not None:
        axes.axvline(progress.best.step, linestyle=":", label="best")
    axes.set(xlabel="step", ylabel="cross entropy, nats")
    shares = [name for name in progress.measurements[0].figures if name.endswith(ACCURACY)]
    if shares:
        right = axes.twinx()
        for name in shares:
            values = [measurement.figures[name] for measurement in progress.measurements]
            right.plot(steps, values, "^--", label=spoken(name), color=f"C{4 + shares.index(name)}")
        right.set(ylabel="accuracy on held-out text", ylim=(0.0, 1.0))
    figure.legend(loc="outside lower center", ncols=3)
    return png_of(figure)
