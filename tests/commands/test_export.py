"""`attendant export`: what it prints, writes and answers, as a user meets it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from commands.export import export
from service.contract.manifest import Manifest
from tests.export.conftest import contents
from tests.fakes.processor import on_processors_of_blocks
from tests.fakes.tiny_gpt import liked_text, tiny_gpt

ATTENDANT = Path(sys.executable).with_name("attendant")
WIDE = {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
LIMIT_S = 300.0  # two processes at once, on cores that others share
app = typer.Typer()
app.command()(export)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env=WIDE)


@contextmanager
def started(*arguments: str | Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """The console script as a process of its own, which ends with the block."""
    process = subprocess.Popen(  # noqa: S603 - our own command
        [ATTENDANT, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | WIDE | environment,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    path = tmp_path / "labelled.tsv"
    path.write_text("ham\tlunch tomorrow\nspam\tfree prize now\n", encoding="utf-8")
    return path


@pytest.mark.timeout(2 * LIMIT_S)
def test_two_processes_give_the_same_bytes(
    checkpoint_folder: Path, tmp_path: Path, labelled: Path
) -> None:
    """int8 with labelled data, into two folders, under two hash seeds: every file is equal.

    The labelled texts are in the manifest, which everyone may read, only where it was asked for.
    """
    folders = [tmp_path / "one", tmp_path / "two"]
    options = ("--name", "spam", "--precision", "int8", "--max-accuracy-drop", "1")
    commands = [
        (checkpoint_folder, *options, "--labelled-data", labelled, "--repository", folder)
        for folder in folders
    ]
    with (
        started("export", *commands[0], PYTHONHASHSEED="1") as first,
        started("export", *commands[1], PYTHONHASHSEED="2") as second,
    ):
        for process in (first, second):
            printed, complaint = process.communicate(timeout=LIMIT_S)
            assert process.returncode == 0, complaint
            assert "max abs error" in printed
            assert "exported" in printed
    one, two = map(contents, folders)
    assert len(one) == 7
    assert one == two
    manifest = Manifest.from_json((folders[0] / "spam/1/manifest.json").read_text())
    assert manifest.precision == "int8"
    assert manifest.accuracy["texts"] == 2
    labelled_texts = {"lunch tomorrow", "free prize now"}
    assert not labelled_texts & {example.text for example in manifest.examples}
    shown = run(*commands[0][:-1], tmp_path / "shown", "--labelled-examples")
    assert shown.exit_code == 0, shown.output
    manifest = Manifest.from_json((tmp_path / "shown/spam/1/manifest.json").read_text())
    assert {example.text for example in manifest.examples} == labelled_texts


def test_success_prints_the_folder_and_what_was_measured(
    checkpoint_folder: Path, tmp_path: Path
) -> None:
    examples = tmp_path / "texts.txt"
    examples.write_text("claim your prize\nsee you at eight\n", encoding="utf-8")
    options = ("--name", "spam", "--version", "5", "--max-batch-size", "3", "--example", "Hello")
    attention = ("--examples", examples, "--attention", "MultiHeadAttention")
    result = run(checkpoint_folder, *options, *attention, "--repository", tmp_path)
    assert result.exit_code == 0, result.output
    for expected in ("spam/5", "fp32", "MultiHeadAttention", "max abs error"):
        assert expected in result.output
    manifest = Manifest.from_json((tmp_path / "spam/5/manifest.json").read_text())
    assert manifest.example == "Hello"
    texts = [example.text for example in manifest.examples]
    assert texts == ["Hello", "claim your prize", "see you at eight"]
    assert "max_batch_size: 3" in (tmp_path / "spam/config.pbtxt").read_text()


def test_decoder_s_export_prints_parity_and_perplexity(
    decoder_folder: Path, tmp_path: Path
) -> None:
    """Weights of 8 bits, measured on 2 windows of 96 tokens."""
    held_out, repository = tmp_path / "held_out.txt", tmp_path / "r"
    held_out.write_text(liked_text(tiny_gpt(), 2), encoding="utf-8")
    options = ("--name", "tale", "--precision", "int8-weights", "--held-out", held_out)
    result = run(decoder_folder, *options, "--repository", repository)
    assert result.exit_code == 0, result.output
    manifest = Manifest.from_json((repository / "tale/1/manifest.json").read_text())
    assert manifest.perplexity["tokens"] == 192
    rows = [line.strip("│ ").split(" │ ") for line in result.output.splitlines() if "│" in line]
    printed = {name.strip(): value.strip() for name, value in rows}
    assert printed["precision"] == "int8-weights"
    num_bytes = (repository / "tale/1/model.onnx").stat().st_size
    assert printed["MiB"] == f"{num_bytes / 2**20:.1f}"
    assert printed["GroupQueryAttention"] == "2"
    assert printed["max neighbour effect"] == "0.0"
    for key, value in manifest.perplexity.items():
        assert printed[f"perplexity, {key}"] == str(value)
    assert "max_batch_size" not in (repository / "tale/config.pbtxt").read_text()


@pytest.mark.parametrize("rank", [0, 6])
def test_a_graph_with_adapters_is_printed_where_it_is_written(
    decoder_folder: Path, tmp_path: Path, rank: int
) -> None:
    """Its file, its size without the weights that both graphs share, and what it takes."""
    options = ("--name", "tale", "--precision", "fp32", "--lora-rank", str(rank))
    targets = ("--lora-slots", "3", "--lora-targets", "query,contract")
    result = run(decoder_folder, *options, *targets, "--repository", tmp_path)
    assert result.exit_code == 0, result.output
    path = tmp_path / "tale/1/model.adapters.onnx"
    assert path.is_file() == bool(rank)
    assert ("graph with adapters" in result.output) == bool(rank)
    if not rank:
        return
    rows = [line.strip("│ ").split(" │ ") for line in result.output.splitlines() if "│" in line]
    printed = {name.strip(): value.strip() for name, value in rows}
    assert printed["graph with adapters"] == path.name
    assert printed["MiB more for it"] == f"{path.stat().st_size / 2**20:.1f}"
    caption = " ".join(result.output.rpartition("┘")[2].split())
    assert caption == (
        "with adapters: at most 3 in a step, of rank 6 at most, for query, contract; "
        "add them with attendant import-adapter"
    )


@on_processors_of_blocks
def test_decoder_s_perplexity_over_the_limit_is_an_error(
    decoder_folder: Path, tmp_path: Path
) -> None:
    """4 bits cost it some per cent on 2 windows; the limit is 0.1."""
    held_out, repository = tmp_path / "held_out.txt", tmp_path / "r"
    held_out.write_text(liked_text(tiny_gpt(), 2), encoding="utf-8")
    options = ("--name", "tale", "--precision", "int4-weights", "--held-out", held_out)
    limit = ("--max-perplexity-rise", "0.001")
    result = run(decoder_folder, *options, *limit, "--repository", repository)
    assert result.exit_code == 1
    assert "perplexity rises by " in result.stderr
    assert "the limit is 0.1%" in result.stderr
    assert not repository.exists()


def test_held_out_text_without_a_window_is_an_error(decoder_folder: Path, tmp_path: Path) -> None:
    """An empty file too: giving a file requests a measurement."""
    held_out, repository = tmp_path / "held_out.txt", tmp_path / "r"
    held_out.touch()
    options = ("--name", "tale", "--held-out", held_out, "--repository", repository)
    result = run(decoder_folder, *options)
    assert result.exit_code == 1
    assert "the held-out text has 0 tokens, expected at least 96" in result.stderr
    held_out.unlink()
    result = run(decoder_folder, *options)
    assert result.exit_code == 1
    assert f"--held-out {held_out} cannot be read: No such file or directory" in result.stderr
    held_out.write_bytes(b"\xff" * 200)
    result = run(decoder_folder, *options)
    assert result.exit_code == 1
    assert f"--held-out {held_out}: byte 0 is no UTF-8 text: invalid start byte" in result.stderr
    assert not repository.exists()


def test_data_that_the_task_has_no_use_for_is_an_error(
    decoder_folder: Path, checkpoint_folder: Path, labelled: Path, tmp_path: Path
) -> None:
    """Labelled texts of a decoder, plain text of a classifier: nothing would be measured."""
    options = ("--name", "any", "--repository", tmp_path / "r")
    result = run(decoder_folder, *options, "--labelled-data", labelled)
    assert result.exit_code == 1
    assert "labelled.tsv is for classifiers" in result.stderr
    result = run(checkpoint_folder, *options, "--held-out", labelled)
    assert result.exit_code == 1
    assert "labelled.tsv is for decoders" in result.stderr
    assert not (tmp_path / "r").exists()


def test_checkpoint_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    result = run(tmp_path / "nowhere", "--name", "spam", "--repository", tmp_path / "r")
    assert result.exit_code == 1
    assert "error:" in result.stderr
    assert "nowhere" in result.stderr
    assert "Traceback" not in result.output
    assert contents(tmp_path) == {}


def test_name_with_a_slash_is_an_error(checkpoint_folder: Path, tmp_path: Path) -> None:
    result = run(checkpoint_folder, "--name", "a/b", "--repository", tmp_path)
    assert result.exit_code == 1
    assert "name is 'a/b', expected a folder name" in result.stderr
    assert contents(tmp_path) == {}


def test_label_that_the_model_does_not_know_is_an_error(
    checkpoint_folder: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data.tsv"
    data.write_text("eggs\tbreakfast\n", encoding="utf-8")
    result = run(
        checkpoint_folder, "--name", "spam", "--repository", tmp_path / "r", "--labelled-data", data
    )
    assert result.exit_code == 1
    assert "labelled data has labels ['eggs'], the model knows ('ham', 'spam')" in result.stderr
    assert not (tmp_path / "r").exists()


def test_labelled_data_that_is_not_there_is_an_error(
    checkpoint_folder: Path, tmp_path: Path
) -> None:
    data = tmp_path / "none.tsv"
    result = run(
        checkpoint_folder, "--name", "spam", "--repository", tmp_path / "r", "--labelled-data", data
    )
    assert result.exit_code == 1
    assert "none.tsv" in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--precision", "int4", "'fp32', 'fp16', 'bf16', 'int8', 'int8-weights', 'int4-weights'"),
        ("--version", "0", "greater than or equal to 1"),
        ("--max-batch-size", "0", "greater than or equal to 1"),
        ("--attention", "Flash", "'auto', 'Attention', 'MultiHeadAttention'"),
        ("--max-accuracy-drop", "2", "less than or equal to 1"),
        ("--max-perplexity-rise", "-1", "greater than or equal to 0"),
    ],
)
def test_wrong_option_is_an_error_with_what_was_expected(
    option: str, value: str, expected: str, tmp_path: Path
) -> None:
    result = run("somewhere", "--name", "spam", option, value)
    assert result.exit_code == 2
    assert option in result.stderr
    assert expected in " ".join(result.stderr.split())


def test_the_repository_s_variable_is_that_of_the_server(
    checkpoint_folder: Path, tmp_path: Path
) -> None:
    arguments = [str(checkpoint_folder), "--name", "spam", "--precision", "fp32"]
    environment = WIDE | {"ATTENDANT_MODEL_REPOSITORY": str(tmp_path / "r")}
    result = CliRunner().invoke(app, arguments, env=environment)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "r/spam/1/model.onnx").is_file()


def test_without_torch_it_says_what_to_install(checkpoint_folder: Path, tmp_path: Path) -> None:
    """An installation that only serves has the command, but not what it needs."""
    script = (
        "import sys; sys.modules['torch'] = None; "
        "from commands.main import main; sys.argv[0] = 'attendant'; main()"
    )
    command: list[str | Path] = [
        sys.executable,
        "-c",
        script,
        "export",
        checkpoint_folder,
        "--name",
        "spam",
    ]
    result = subprocess.run(  # noqa: S603 - our own command
        [*command, "--repository", tmp_path],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=os.environ | WIDE,
        check=False,
    )
    assert result.returncode != 0
    assert "attendant export needs PyTorch: pip install 'attendant[cpu,train]'" in result.stderr
    assert "Traceback" not in result.stderr
    assert contents(tmp_path) == {}
