"""A disk that is full, or a file that may not grow: one line, and nothing is left behind."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from models.checkpoints.checkpoint import Checkpoint, save_checkpoint
from models.data.datasets import Dataset
from models.errors import OutputError
from models.writing import amount, replace_bytes, writing

LIMIT_BYTES = 8_192  # more than config.json has, less than any weights here
# Runs real commands, each in a fork where no file may grow beyond the limit: a write fails as on a
# full disk. The libraries are imported once, which takes most of a command's time.
SERVER = f"""
import json, os, resource, sys
import commands.folders.importing, commands.train.seq2seq_runs, commands.train.train_runs
import commands.train.vision_runs, commands.train.words_runs, export.exporter
from commands.main import main

for line in sys.stdin:
    read, write = os.pipe()
    if os.fork() == 0:
        os.dup2(write, 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.close(write)
        resource.setrlimit(resource.RLIMIT_FSIZE, ({LIMIT_BYTES},) * 2)
        sys.argv = ["attendant", *json.loads(line)]
        main()
        sys.exit()
    os.close(write)
    with open(read) as stderr:
        text = stderr.read()
    code = os.waitstatus_to_exitcode(os.wait()[1])
    print(json.dumps([code, text]), flush=True)
"""
ENVIRONMENT = {
    "NO_COLOR": "1",
    "TERM": "dumb",
    "COLUMNS": "500",
    # Under the limit, Python would write the beginning of a module's bytecode, and fail on it.
    "PYTHONDONTWRITEBYTECODE": "1",
}


class Ended(NamedTuple):
    """How a command ended."""

    returncode: int
    stderr: str


Run = Callable[..., Ended]


@pytest.fixture(scope="module")
def run_limited() -> Iterator[Run]:
    with subprocess.Popen(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", SERVER],
        env=os.environ | ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:

        def run(*arguments: str | Path) -> Ended:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write(json.dumps([str(argument) for argument in arguments]) + "\n")
            server.stdin.flush()
            return Ended(*json.loads(server.stdout.readline()))

        yield run


def check_one_line(ended: Ended, target: Path) -> None:
    assert ended.returncode == 1, ended.stderr
    assert "Traceback" not in ended.stderr
    line = ended.stderr.strip().splitlines()[-1]
    assert line.startswith("attendant: error: "), line
    assert f"{target} cannot be written: File too large: " in line, line


@pytest.fixture
def output(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out" / "model"


def test_train_ends_with_one_line_and_leaves_no_state(
    run_limited: Run,
    messages: Dataset,
    as_tsv: Callable[[Dataset], str],
    base: Path,
    tmp_path: Path,
    output: Path,
) -> None:
    (tmp_path / "messages.tsv").write_text(as_tsv(messages))
    ended = run_limited(
        *("train", tmp_path / "messages.tsv", "--from", base, "--output", output),
        *("--epochs", "1", "--batch-size", "8", "--precision", "off"),
    )
    check_one_line(ended, output.with_name("model.resume.pt"))
    assert list(output.parent.iterdir()) == []


def test_import_ends_with_one_line_and_leaves_no_folder(
    run_limited: Run, base: Path, output: Path
) -> None:
    ended = run_limited("import", base, output)
    check_one_line(ended, output)
    assert list(output.parent.iterdir()) == []


def test_an_older_checkpoint_stays_where_there_is_no_room_for_the_new_one(
    run_limited: Run, base: Path
) -> None:
    before = {path.name: path.read_bytes() for path in base.iterdir()}
    ended = run_limited("import", base, base, "--pooling", "cls")
    check_one_line(ended, base)
    assert {path.name: path.read_bytes() for path in base.iterdir()} == before


def test_every_trainer_ends_with_one_line(run_limited: Run, tmp_path: Path, output: Path) -> None:
    """Word vectors, image classifiers and pairs write what they trained in the same way."""
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat and the dog ran to the cat\n\n" * 50)
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{i} {i + 1}\t{i + 1} {i}\n" for i in range(100)))
    np.savez(
        tmp_path / "images.npz",
        images=np.random.default_rng(0).integers(0, 255, (40, 8, 8), np.uint8),
        labels=np.arange(40) % 2,
    )
    commands: dict[str, list[str | Path]] = {
        "words train": ["words", "train", text, "--min-count", "1", "--epochs", "1"],
        "vision": ["vision", "--data", tmp_path / "images.npz", "--epochs", "1"],
        "seq2seq": ["seq2seq", pairs, "--epochs", "1"],
    }
    for name, arguments in commands.items():
        ended = run_limited(*arguments, "--output", output)
        target = output if name.startswith("words") else output.with_name("model.resume.pt")
        check_one_line(ended, target)
        assert list(output.parent.iterdir()) == [], name


def test_export_ends_with_one_line_and_leaves_no_version(
    run_limited: Run, classifier_checkpoint: Checkpoint, tmp_path: Path
) -> None:
    save_checkpoint(classifier_checkpoint, tmp_path / "classifier")
    repository = tmp_path / "models"
    ended = run_limited(
        *("export", tmp_path / "classifier", "--name", "spam", "--precision", "fp32"),
        *("--repository", repository),
    )
    check_one_line(ended, repository / "spam" / "1")
    assert not repository.exists() or list(repository.iterdir()) == []


def test_a_full_disk_is_told_with_what_is_needed_and_what_is_free(tmp_path: Path) -> None:
    """/dev/full refuses every write as a full disk does."""
    with (
        pytest.raises(OutputError) as caught,
        writing(tmp_path / "model", 10**18),
        open("/dev/full", "wb", buffering=0) as file,
    ):
        file.write(b"weights")
    message = str(caught.value)
    assert message.startswith(
        f"{tmp_path}/model cannot be written: No space left on device: 1000000.0 TB are needed, "
    )
    assert f" are free in {tmp_path} and " in message
    assert message.endswith(" missing; make room and repeat the command")


def test_a_write_that_fails_leaves_the_earlier_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "state"
    replace_bytes(path, b"first")
    (path.parent / "state.part").mkdir()
    with pytest.raises(OutputError, match="state cannot be written: Is a directory"):
        replace_bytes(path, b"second")
    assert path.read_bytes() == b"first"


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1_000, "1.0 kB"), (2.5e9, "2.5 GB")],
)
def test_an_amount_has_the_unit_that_fits(num_bytes: float, text: str) -> None:
    assert amount(num_bytes) == text
