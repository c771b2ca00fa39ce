"""Train a Vision Transformer from nothing: from images and settings to a checkpoint.

Knows nothing about terminals, signals or report files. What is learnt is what fine-tuning learns
of rows, `models/training/supervised.py`.
"""

from models.checkpoints.checkpoint import NO_TOKENIZER, Checkpoint
from models.data.datasets import Splits
from models.data.images import ImageRows, LabelledImages
from models.networks.vit import VisionTransformer, ViTConfig
from models.recipes.finetune import Finetuned
from models.recipes.vision_settings import VisionSettings
from models.training.evaluation import Evaluation
from models.training.optimizer import uses_bfloat16
from models.training.state import FRESH, RunIdentity, digest_of
from models.training.supervised import RowObjective, classification, metrics_of, train_rows
from models.training.trainer import Session, seeded


def train_vit(
    splits: Splits[LabelledImages], settings: VisionSettings, session: Session | None = None
) -> Finetuned[Evaluation]:
    """Train a fresh classifier of images; the global random state stays as it was.

    Raises TrainingInterruptedError and CheckpointError, see `Session`.
    """
    assert splits.test is not None, "the figures are of images that training never sees"
    labels, config = splits.train.labels(), config_of(splits.train, settings)

    def rows_of(images: LabelledImages, max_shift: int = 0) -> ImageRows:
        targets = tuple(labels.index(image.label) for image in images.examples)
        return ImageRows(images.pixels(), targets, config.mean, config.std, max_shift)

    criterion, training = classification(labels), settings.of_training()
    train = rows_of(splits.train, settings.max_shift)
    parts = {"validation": rows_of(splits.validation), "test": rows_of(splits.test)}
    with seeded(settings.seed):
        model = VisionTransformer(config, len(labels))
        progress = train_rows(
            model,
            RowObjective(train, parts["validation"], criterion, training),
            training,
            RunIdentity(settings.to_dict(), FRESH, digest_of(splits)),
            session or Session(),
        )
    evaluations = {name: criterion.judge(model, rows) for name, rows in parts.items()}
    checkpoint = Checkpoint(
        model=model,
        task="image-classification",
        labels=labels,
        tokenizer=NO_TOKENIZER,
        max_tokens=config.max_positions,
        origin=f"trained on {splits.train.name}{_polarity(splits.train)}",
        metrics=metrics_of(evaluations),
    )
    return Finetuned(checkpoint, evaluations, progress, uses_bfloat16(settings.precision))


def split_images(images: LabelledImages, settings: VisionSettings) -> Splits[LabelledImages]:
    fractions = [settings.validation_fraction, settings.test_fraction]
    return Splits(*images.split(fractions, settings.seed))


def _polarity(images: LabelledImages) -> str:
    """Whether drawings are light on dark, in words: inverted ones look the same to people."""
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
