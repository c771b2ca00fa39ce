"""Train a Vision Transformer from nothing: from images and settings to a checkpoint.

Knows nothing about terminals, signals or report files: a listener hears what happens and
`should_stop` is asked after every step. The loop is that of fine-tuning, `models/trainer.py`.
"""

from collections.abc import Callable
from pathlib import Path

import torch

from models.checkpoint import NO_TOKENIZER, Checkpoint
from models.datasets import Splits
from models.evaluation import Evaluation
from models.finetune import Finetuned
from models.trainer import Listener, SilentListener, Trainer, classification
from models.training_state import RunIdentity, digest_of
from models.vision.images import ImageRows, LabelledImages
from models.vision.settings import VisionSettings
from models.vision.vit import VisionTransformer, ViTConfig

FRESH = "fresh weights"


def train_vit(
    splits: Splits[LabelledImages],
    settings: VisionSettings,
    *,
    state_file: Path | None = None,
    resume: bool = True,
    listener: Listener | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Finetuned[Evaluation]:
    """Train a fresh classifier of images; the global random state stays as it was.

    With a `state_file` the run can be stopped and continued: raises TrainingInterruptedError after
    saving once `should_stop` says so, and CheckpointError if the file belongs to another run.
    """
    assert splits.test is not None, "the figures are of images that training never sees"
    labels, config = splits.train.labels(), config_of(splits.train, settings)

    def rows_of(images: LabelledImages, max_shift: int = 0) -> ImageRows:
        targets = tuple(labels.index(image.label) for image in images.examples)
        return ImageRows(images.pixels(), targets, config.mean, config.std, max_shift)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        objective = classification(labels)
        trainer = Trainer(
            model=(model := VisionTransformer(config, len(labels))),
            train=rows_of(splits.train, settings.max_shift),
            validation=rows_of(splits.validation),
            objective=objective,
            settings=settings.of_training(),
            identity=RunIdentity(settings.to_dict(), FRESH, digest_of(splits)),
            listener=listener or SilentListener(),
        )
        if state_file is not None and resume and state_file.exists():
            trainer.restore(state_file)
        best = trainer.run(state_file, should_stop)
    found = objective.judge(model, rows_of(splits.test))
    parts = {"validation": best, "test": found}
    checkpoint = Checkpoint(
        model=model,
        task="image-classification",
        labels=labels,
        tokenizer=NO_TOKENIZER,
        max_tokens=config.max_positions,
        origin=f"trained on {splits.train.name}{_polarity(splits.train)}",
        metrics={
            f"{part}_{name}": value
            for part, evaluation in parts.items()
            for name, value in evaluation.scores().items()
        },
    )
    return Finetuned(checkpoint, found, "test", trainer.progress, trainer.bfloat16)


def split_images(images: LabelledImages, settings: VisionSettings) -> Splits[LabelledImages]:
    fractions = [settings.validation_fraction, settings.test_fraction]
    return Splits(*images.split(fractions, settings.seed))


def _polarity(images: LabelledImages) -> str:
    """What a model of drawings should be shown, as those of the other kind look alike to people."""
    kind = images.polarity()
    return f", {kind}" if kind else ""


def config_of(images: LabelledImages, settings: VisionSettings) -> ViTConfig:
    """The sizes that the settings give, for images like these."""
    channels, height, width = images.examples[0].pixels.shape
    mean, std = images.mean_and_std()
    return ViTConfig(
        height=height,
        width=width,
        channels=channels,
        patch_size=settings.patch_size,
        hidden_size=settings.hidden_size,
        num_layers=settings.num_layers,
        num_heads=settings.num_heads,
        intermediate_size=4 * settings.hidden_size,
        dropout=settings.dropout,
        mean=mean,
        std=std,
    )
