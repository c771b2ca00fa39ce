"""Signals to a command that trains: it saves where it is, and the same command continues."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from commands.train.running import stop_requests
from models.checkpoints.checkpoint import load_checkpoint
from models.data.datasets import Dataset
from models.training.state import state_path

ENVIRONMENT = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "200"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_acts_as_usual(number: signal.Signals) -> None:
    """What is usual is set here: a shell's background jobs start with SIGINT ignored."""
    before = signal.signal(number, signal.default_int_handler)
    try:
        with stop_requests() as should_stop:
            assert not should_stop()
            os.kill(os.getpid(), number)
            assert should_stop()
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), number)
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize(
    ("kind", "number", "measured"),
    [
        ("train", signal.SIGINT, "epoch 1:"),
        ("pretrain", signal.SIGTERM, "step 2:"),
    ],
)
def test_an_interrupted_command_exits_130_and_the_same_command_continues(
    kind: str,
    number: signal.Signals,
    measured: str,
    commands: dict[str, list[str]],
    run: Callable[..., Result],
    tmp_path: Path,
) -> None:
    """A real process, sent a signal once it has measured for the first time.

    Each command has a signal of its own: both take them by `stop_requests`, as the test above says.
    """
    output, arguments = tmp_path / "output", commands[kind]
    with subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-m", "commands", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        assert process.stderr is not None
        first = next(line for line in process.stderr if line.startswith(measured))
        assert "validation loss" in first
        process.send_signal(number)
        rest = process.stderr.read()
    assert process.returncode == 130
    assert "the same command continues from there" in rest
    assert state_path(output).exists()
    assert not output.exists()

    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert "training continues after step" in result.output
    assert not state_path(output).exists()
    assert load_checkpoint(output).labels == (("ham", "spam") if kind == "train" else ())


@pytest.fixture
def commands(
    messages: Dataset, as_tsv: Callable[[Dataset], str], base: Path, tmp_path: Path
) -> dict[str, list[str]]:
    """Short enough to be resumed here, long enough not to end before the signal comes."""
    data, corpus = tmp_path / "messages.tsv", tmp_path / "mats.txt"
    data.write_text(as_tsv(messages))
    corpus.write_text("\f".join(f"the cat number {i} sat on mat {i % 7}.\n" for i in range(99)))
    tuning = ("--epochs", "20", "--patience", "20", "--batch-size", "2")
    speaking = (
        *("--num-layers", "2", "--hidden-size", "32", "--num-heads", "2", "--context", "32"),
        *("--vocab-size", "300", "--steps", "150", "--batch-size", "2", "--evaluate-every", "2"),
        *("--sample-tokens", "6"),
    )
    both = ("--output", str(tmp_path / "output"), "--precision", "off")
    return {
        "train": ["train", str(data), "--from", str(base), *both, *tuning],
        "pretrain": ["pretrain", "gpt", "--corpus", str(corpus), *both, *speaking],
    }
