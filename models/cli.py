"""`attendant train`, `pretrain` and `import`: arguments in, messages and exit codes out.

Imports no PyTorch until a command runs, so that the command line works without it and can say what
to install. Exit codes: 0 done, 1 the files do not allow it, 2 wrong usage or something missing,
130 interrupted.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from models import cli_options as options
from models.errors import ModelError, SettingError, TrainingInterruptedError
from models.flags import command_of, flags_of
from models.pretrain_kinds import PRETRAIN_KINDS, PretrainKind
from models.remarks import showing_remarks
from models.settings import TrainingSettings

DEFAULTS = TrainingSettings()
TRAINING_LIBRARIES = ("torch", "safetensors", "sklearn", "matplotlib", "huggingface_hub")
# The other flags are named after their field.
FLAGS = {"validation_fraction": "--validation", "pairs": "PAIRS", "word": "WORD"}
INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it


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
    """Fine-tune a checkpoint: to label texts or tokens, or to find answers."""
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
        from models.commands import DataFiles
        from models.commands import train as train_for

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
    """Turn a Hugging Face checkpoint into one of ours."""
    with messages("import"):
        from models.commands import import_model

        import_model(
            source,
            output,
            task=task,
            pooling=pooling,
            layers=layers,
            normalize=normalize,
            origin=origin,
        )


def pretrain_command(kind: PretrainKind) -> Callable[..., None]:
    """The command that trains one kind of model, with a flag for each of its settings."""

    def run(
        *,
        corpus: list[Path],
        output: Path,
        validation: str,
        tokenizer: Path | None,
        start: str | None,
        resume: bool,
        **values: Any,  # noqa: ANN401
    ) -> None:
        with messages("pretrain"):
            fraction, validation_file = parse_validation(validation)
            settings = kind.settings(validation_fraction=fraction, **values)
            from models.pretrain_command import CorpusFiles, pretrain_kind

            files = CorpusFiles(corpus, validation_file, tokenizer, start)
            pretrain_kind(kind, files, output, settings, resume=resume)

    run.__doc__ = f"Train {kind.what} on plain text: from nothing, or on from a checkpoint."
    flags = flags_of(kind.settings, "ATTENDANT_PRETRAIN", omit=["validation_fraction"])
    return command_of(run, [*options.PRETRAIN, *flags])


pretrain = typer.Typer(help="Train a language model on plain text.")
for _kind in PRETRAIN_KINDS:
    pretrain.command(_kind.name)(pretrain_command(_kind))


def parse_validation(value: str) -> tuple[float, Path | None]:
    """Read a fraction, or else a file; the fraction is then unused."""
    try:
        return float(value), None
    except ValueError:
        return DEFAULTS.validation_fraction, Path(value)


@contextmanager
def messages(command: str) -> Iterator[None]:
    """Turn our errors into one line and an exit code; all others are bugs and stay loud."""
    try:
        with showing_remarks(lambda remark: typer.echo(f"warning: {remark}", err=True)):
            yield
    except SettingError as error:
        flag = FLAGS.get(error.field, f"--{error.field.replace('_', '-')}")
        message = f"{error.value!r} is not allowed, it must be {error.limit}"
        raise typer.BadParameter(message, param_hint=flag) from error
    except TrainingInterruptedError as error:
        fail(f"interrupted {error}; the same command continues from there", INTERRUPTED)
    except ModelError as error:
        fail(f"attendant {command}: {error}", 1)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in TRAINING_LIBRARIES:
            raise
        missing = "PyTorch" if error.name == "torch" else error.name
        fail(f"attendant {command} needs {missing}: pip install 'attendant[cpu,train]'", 2)


def fail(message: str, exit_code: int) -> None:
    typer.echo(message, err=True)
    raise typer.Exit(exit_code)
