"""The run of `attendant seq2seq`, after its arguments are parsed.

Knows nothing about flags or exit codes (`commands/train/seq2seq.py` does). It imports PyTorch, so
the command line imports it only when it runs.
"""

from dataclasses import replace
from pathlib import Path

from rich.console import Console

from commands.train.progress import TrainingBar, pairs_line
from commands.train.reports import json_of
from commands.train.running import run_training, save_trained
from commands.train.seq2seq_reports import (
    accuracy_table,
    alignment_of,
    attention_picture,
    curves_picture,
    figures_of,
    reports_of,
)
from models.checkpoints.checkpoint import Checkpoint, check_replaceable, save_checkpoint
from models.errors import CheckpointError, SettingError
from models.networks.kinds import kind_of
from models.recipes.seq2seq import Trained, train
from models.recipes.seq2seq_settings import ALL, ATTENTIONS, Seq2SeqSettings
from models.recipes.seq2seq_systems import NETWORKS, network_for, prepare
from models.training.state import state_path
from models.writing import replace_bytes

COMPARISON_FILES = ("comparison.json", "curves.png", "attention.png")


def train_seq2seq(task: str, output: Path, settings: Seq2SeqSettings, *, resume: bool) -> None:
    """Train on a task or a file; write checkpoint and reports to `output`."""
    if settings.attention == ALL:
        network = network_for(task, settings)
        if network != "lstm":
            raise SettingError(
                "attention", ALL, f"left out: the {network} has attention of its own"
            )
        compare_attentions(task, output, settings, resume=resume)
        return
    check_replaceable(output)  # now, rather than after the training
    trained = _train(task, settings, output, resume=resume)
    save_trained(checkpoint_of(trained), output, reports_of(trained))
    Console().print(accuracy_table(f"{output}: {trained.pairs.name}", {"": trained}))


def compare_attentions(
    task: str, output: Path, settings: Seq2SeqSettings, *, resume: bool
) -> dict[str, Trained]:
    """Train the same network with each attention and without; write a folder for each."""
    _check_comparison(output)
    results: dict[str, Trained] = {}
    for attention in ATTENTIONS:
        Console(stderr=True).print(f"attention: {attention}")
        form = "luong" if attention == "none" else settings.form
        chosen = replace(settings, attention=attention, form=form)
        results[attention] = _train(task, chosen, output / attention, resume=resume)
    for attention, trained in results.items():
        save_checkpoint(checkpoint_of(trained), output / attention, reports_of(trained))
    name = results["none"].pairs.name
    pictures = {key: found for key, result in results.items() if (found := alignment_of(result))}
    figures = {attention: figures_of(trained) for attention, trained in results.items()}
    contents = (
        json_of({"data": name, "attentions": figures}),
        curves_picture(name, results),
        attention_picture(pictures),
    )
    for filename, content in zip(COMPARISON_FILES, contents, strict=True):
        replace_bytes(output / filename, content)
    for attention in ATTENTIONS:
        state_path(output / attention).unlink(missing_ok=True)
    Console().print(accuracy_table(f"{output}: {name}", results))
    return results


def checkpoint_of(trained: Trained) -> Checkpoint:
    network = trained.network
    return Checkpoint(
        model=network,
        task=kind_of(network).task,
        labels=(),
        tokenizer=trained.tokenizer,
        max_tokens=network.config.max_positions,  # type: ignore[union-attr, arg-type]
        origin=f"trained on {trained.pairs.name}",
        metrics={"test_symbols": trained.test.symbols, "test_exact": trained.test.exact},
    )


def _train(task: str, settings: Seq2SeqSettings, output: Path, *, resume: bool) -> Trained:
    pairs, completed = prepare(task, settings)
    training = NETWORKS[completed.network].load()
    bar = TrainingBar(line=pairs_line)
    return run_training(
        lambda session: train(pairs, training, completed, session), bar, output, resume=resume
    )


def _check_comparison(output: Path) -> None:
    """Raise CheckpointError for a folder with files that are not part of a comparison."""
    if output.exists() and not output.is_dir():
        raise CheckpointError(f"{output} is a file, but must be a folder or not exist")
    states = {state_path(output / attention).name for attention in ATTENTIONS}
    allowed = {*ATTENTIONS, *COMPARISON_FILES, *states}
    foreign = sorted({path.name for path in output.glob("*")} - allowed)
    if foreign:
        raise CheckpointError(
            f"{output} holds {', '.join(foreign[:3])}, which is not part of a comparison; choose a "
            "folder that is new, empty or holds a comparison"
        )
    for attention in ATTENTIONS:
        check_replaceable(output / attention)
