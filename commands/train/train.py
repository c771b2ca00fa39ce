"""`attendant train` and `import`: arguments in, messages and exit codes out.

Imports no PyTorch until a command runs, so that the command line works without it and can say what
to install.
"""

from commands.train import options
from commands.train.messages import DEFAULTS, messages, parse_validation
from models.training.settings import TrainingSettings


def train(
    data: options.Data,
    from_: options.From,
    output: options.TrainOutput,
    task: options.TrainTask = "text-classification",
    validation: options.Validation = str(DEFAULTS.validation_fraction),
    test_fraction: options.TestFraction = DEFAULTS.test_fraction,
    test_file: options.TestFile = None,
    epochs: options.Epochs = DEFAULTS.epochs,
    batch_size: options.BatchSize = DEFAULTS.batch_size,
    learning_rate: options.LearningRate = None,
    warmup_fraction: options.WarmupFraction = DEFAULTS.warmup_fraction,
    clip_norm: options.ClipNorm = DEFAULTS.clip_norm,
    weight_decay: options.WeightDecay = DEFAULTS.weight_decay,
    patience: options.Patience = DEFAULTS.patience,
    max_tokens: options.MaxTokens = DEFAULTS.max_tokens,
    freeze_encoder: options.FreezeEncoder = DEFAULTS.freeze_encoder,
    precision: options.Precision = DEFAULTS.precision,
    seed: options.Seed = DEFAULTS.seed,
    resume: options.Resume = True,
) -> None:
    """Fine-tune a checkpoint to classify texts or tokens, or to answer questions."""
    with messages("train"):
        fraction, validation_file = parse_validation(validation)
        settings = TrainingSettings(
            validation_fraction=fraction,
            test_fraction=test_fraction,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=DEFAULTS.learning_rate if learning_rate is None else learning_rate,
            warmup_fraction=warmup_fraction,
            clip_norm=clip_norm,
            weight_decay=weight_decay,
            patience=patience,
            max_tokens=max_tokens,
            freeze_encoder=freeze_encoder,
            precision=precision,
            seed=seed,
        )
        from commands.train.train_runs import DataFiles
        from commands.train.train_runs import train as train_for

        files = DataFiles(data, validation_file, test_file)
        has_rate = learning_rate is not None
        train_for(task, files, from_, output, settings, resume=resume, has_rate=has_rate)


def import_checkpoint(
    source: options.Source,
    output: options.ImportOutput,
    task: options.Task = "auto",
    pooling: options.Pooling = None,
    layers: options.Layers = None,
    normalize: options.Normalize = None,
    origin: options.Origin = None,
) -> None:
    """Convert a Hugging Face checkpoint to Attendant's format."""
    with messages("import"):
        from commands.train.train_runs import import_model

        import_model(
            source,
            output,
            task=task,
            pooling=pooling,
            layers=layers,
            normalize=normalize,
            origin=origin,
        )
