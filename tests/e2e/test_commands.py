"""`attendant models`, `classify`, `embed` and `serve`, as typed into a terminal."""

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from commands.main import app
from models.checkpoints.checkpoint import Checkpoint
from service.errors import InvalidArgument
from tests.e2e.calls import TEXTS
from tests.e2e.graphs import add_sub, write_graph
from tests.e2e.server import ATTENDANT, PLAIN, START_LIMIT_S, ServerProcess, eventually
from tests.fakes.certificates import Authority
from tests.fakes.tiny import torch_outputs_of_texts


def run(server: ServerProcess, *arguments: str, stdin: str = "") -> Result:
    """Inside this process, which is quick; errors that `main` prints need `run_process`."""
    command = [*arguments, "--address", server.address]
    return CliRunner().invoke(app, command, env=PLAIN, input=stdin, catch_exceptions=False)


def run_json(server: ServerProcess, *arguments: str) -> Any:
    result = run(server, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def run_process(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - our own command
        [ATTENDANT, *arguments],
        capture_output=True,
        text=True,
        timeout=START_LIMIT_S,
        env=os.environ | PLAIN,
        check=False,
    )


def test_console_script_lists_its_commands() -> None:
    result = run_process("--help")
    assert result.returncode == 0
    for command in ("train", "import", "export", "serve", "models", "classify", "embed"):
        assert command in result.stdout


def test_models_are_listed_as_a_table(server: ServerProcess) -> None:
    lines = run(server, "models").stdout.splitlines()
    (spam,) = (line for line in lines if "tiny-spam" in line)
    for expected in ("text-classification", "fp32", "64", "ham, spam", "random weights"):
        assert expected in spam
    (embedder,) = (line for line in lines if "tiny-embed" in line)
    assert "32 values, mean of last, normalised" in embedder
    assert any("add-sub" in line and "tensors" in line for line in lines)


def test_models_are_listed_as_json(server: ServerProcess) -> None:
    models = {model["name"]: model for model in run_json(server, "models")["models"]}
    assert models["tiny-spam"]["labels"] == ["ham", "spam"]
    assert models["tiny-embed"]["embedding_size"] == 32
    assert models["add-sub"]["max_batch_size"] == 64
    assert models["slow"]["max_batch_size"] == 0, "fields that are zero are printed too"


def test_classify_prints_a_row_per_text(server: ServerProcess, spam: Checkpoint) -> None:
    result = run(server, "classify", "tiny-spam", *TEXTS[:3])
    assert result.exit_code == 0
    logits = torch_outputs_of_texts(spam, TEXTS[:3])
    for text, row in zip(TEXTS, logits, strict=False):
        (line,) = (line for line in result.stdout.splitlines() if text in line)
        label = spam.labels[row.argmax()]
        share = float(np.exp(row.max()) / np.exp(row).sum())
        assert f"{label} {share:.4f}" in line
    assert "tiny-spam version 1" in result.stdout


def test_classify_reads_lines_from_stdin(server: ServerProcess) -> None:
    result = run(server, "classify", "tiny-spam", "-", "--json", stdin="free prize\nlunch\n")
    assert len(json.loads(result.stdout)["results"]) == 2


@contextlib.contextmanager
def asking(
    server: ServerProcess, *arguments: str
) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes], IO[bytes], IO[bytes]]]:
    """A command's process, and its stdin, stdout and stderr."""
    pipe = subprocess.PIPE
    with subprocess.Popen(  # noqa: S603 - our own command
        [ATTENDANT, *arguments, "--address", server.address],
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        env=os.environ | PLAIN,
    ) as process:
        streams = (process.stdin, process.stdout, process.stderr)
        stdin, stdout, stderr = (stream for stream in streams if stream)
        yield process, stdin, stdout, stderr


def test_a_closed_pipe_ends_a_command_without_a_word(server: ServerProcess) -> None:
    """As `head -1` does, of 2,000 lines."""
    with asking(server, "classify", "tiny-spam", "-", "--ndjson") as (process, stdin, out, errors):
        threading.Thread(target=_write, args=(stdin, b"free prize\n" * 2_000)).start()
        assert json.loads(out.readline())["line"] == 1
        out.close()
        assert process.wait(START_LIMIT_S) == 1
        assert errors.read().strip() == b""


def _write(stream: IO[bytes], content: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):
        stream.write(content)
        stream.close()


def test_an_interrupted_command_ends_its_document(server: ServerProcess) -> None:
    """With the answers to what has come, while it waits for more."""
    with asking(server, "classify", "tiny-spam", "-", "--json") as (process, stdin, out, errors):
        stdin.write(b"free prize\n")
        stdin.flush()
        beginning = out.read(20)
        process.send_signal(signal.SIGINT)
        assert process.wait(START_LIMIT_S) != 0
        (result,) = json.loads(beginning + out.read())["results"]
        assert result["line"] == 1
        assert b"Traceback" not in errors.read()


def test_progress_is_shown_on_a_terminal(server: ServerProcess, tmp_path: Path) -> None:
    """With a rate and the time left of a file whose size is known; answers stay apart from it."""
    lines = tmp_path / "lines.txt"
    lines.write_text("free prize\n" * 2_000)
    ours, theirs = pty.openpty()
    with lines.open("rb") as stdin:
        process = subprocess.Popen(  # noqa: S603 - our own command
            [ATTENDANT, "classify", "tiny-spam", "-", "--ndjson", "--address", server.address],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=theirs,
            env=os.environ | {"TERM": "xterm", "COLUMNS": "100"},
        )
    os.close(theirs)
    shown = b""
    with process, contextlib.suppress(OSError):  # EIO: they have closed it
        threading.Thread(target=_count_lines, args=(process, found := list[int]())).start()
        while block := os.read(ours, 65_536):
            shown += block
    os.close(ours)
    assert process.returncode == 0
    assert found == [2_000]
    assert re.search(r"\d+ lines .*\d+/s.*\d:\d\d:\d\d", shown.decode())
    assert "2,000 lines were answered" in shown.decode()


def _count_lines(process: subprocess.Popen[bytes], found: list[int]) -> None:
    assert process.stdout
    found.append(sum(b'"labels"' in line for line in process.stdout))


def test_top_k_limits_the_labels(server: ServerProcess) -> None:
    best = run_json(server, "classify", "tiny-spam", "free", "--top-k", "1")["results"][0]
    every = run_json(server, "classify", "tiny-spam", "free")["results"][0]
    assert len(every["labels"]) == 2
    assert best["labels"] == every["labels"][:1]


def test_embed_prints_vectors_and_cosines(server: ServerProcess, embed: Checkpoint) -> None:
    result = run(server, "embed", "tiny-embed", *TEXTS[:2])
    assert result.exit_code == 0
    vectors = torch_outputs_of_texts(embed, TEXTS[:2])
    (line,) = (line for line in result.stdout.splitlines() if TEXTS[0] in line)
    start = " ".join(f"{value:+.3f}" for value in vectors[0, :3])
    assert f"{start} … (32)" in line
    assert "1.000" in line
    assert f"{vectors[0] @ vectors[1]:.3f}" in line


def test_embed_prints_json(server: ServerProcess, embed: Checkpoint) -> None:
    (result,) = run_json(server, "embed", "tiny-embed", TEXTS[3])["results"]
    wanted = torch_outputs_of_texts(embed, TEXTS[3:4])[0]
    np.testing.assert_allclose(result["values"], wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("classify", "nobody", "a"), "NOT_FOUND: Request for unknown model: 'nobody'"),
        (("classify", "tiny-embed", "a"), "FAILED_PRECONDITION: model 'tiny-embed' does embedding"),
        (("classify", "tiny-spam", "a", "--top-k", "3"), "the model has 2 labels"),
        (("embed", "tiny-embed", "free " * 99), "has 101 tokens, the model takes at most 64"),
    ],
)
def test_what_the_server_refuses_is_printed_with_its_status(
    arguments: tuple[str, ...], expected: str, server: ServerProcess
) -> None:
    result = run_process(*arguments, "--address", server.address)
    assert result.returncode == 1
    assert expected in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


def test_server_that_is_not_there_is_a_clear_error() -> None:
    """Port 1 of this machine has no listener."""
    result = run_process("models", "--address", "127.0.0.1:1", "--timeout-s", "5")
    assert result.returncode == 1
    text = " ".join(result.stderr.split())
    assert "UNAVAILABLE: no server answers at 127.0.0.1:1: start one by 'attendant serve', " in text
    assert "--address" in text
    assert "Traceback" not in text


@pytest.mark.parametrize("command", ["models", "healthcheck"])
def test_a_handshake_that_fails_is_one_line(
    command: str, server: ServerProcess, tmp_path: Path
) -> None:
    """TLS against a plain port, of which gRPC's core would log a line of its own."""
    authority = str(Authority(tmp_path, "authority").cert)
    flags = "--address", server.address, "--tls-ca", authority, "--timeout-s", "5"
    result = run_process(command, *flags)
    (line,) = (result.stdout + result.stderr).splitlines()
    assert (result.returncode, "UNAVAILABLE" in line) == (1, True)


def test_an_answer_that_comes_too_late_names_the_limit(server: ServerProcess) -> None:
    flags = "--timeout-s", "0.001"
    result = run_process("classify", "tiny-spam", "a", "--address", server.address, *flags)
    assert result.returncode == 1
    limit = f"DEADLINE_EXCEEDED: {server.address} gave no answer within 0.001 s"
    assert limit in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


def test_a_start_with_a_model_that_failed_is_not_called_ready(tmp_path: Path) -> None:
    """The log names the model and the way out in place of 'ready in ... s'."""
    write_graph(add_sub(), tmp_path, "add-sub")
    write_graph(add_sub(), tmp_path, "broken")
    next((tmp_path / "broken").rglob("model.onnx")).write_bytes(b"no graph")
    with ServerProcess(tmp_path) as server:
        eventually(lambda: "not ready" in server.log(), "the log says that it is not ready")
        log = " ".join(server.log().split())
    assert "the server is not ready: 'broken' is not served, and the log says why: mend or" in log
    assert "--no-strict-readiness" in log
    assert "ready in " not in log


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("score", "tiny-spam", "query"), "Missing argument"),
        (("classify", "tiny-spam", "a", "--top-k", "-1"), "'--top-k'"),
        (("embed", "tiny-embed", "a", "--timeout-s", "soon"), "'--timeout-s'"),
        (("embed", "tiny-embed", "a", "--colour"), "--colour"),
    ],
)
def test_wrong_flag_is_named(arguments: tuple[str, ...], expected: str) -> None:
    result = CliRunner().invoke(app, arguments, env=PLAIN)
    assert result.exit_code == 2
    assert expected in result.stderr


@pytest.mark.parametrize(
    ("flag", "value"),
    [("--grpc-port", "70000"), ("--log-level", "loud"), ("--num-threads", "many")],
)
def test_wrong_flag_of_serve_is_named(flag: str, value: str, tmp_path: Path) -> None:
    """In a process of its own: were it not refused, it would serve for ever."""
    result = run_process("serve", "--model-repository", tmp_path, flag, value)
    assert result.returncode == 2
    assert flag in result.stderr or value in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("flags", "expected", "exit_code"),
    [
        (("--model-repository", "nowhere"), "model repository nowhere is not a folder", 1),
        (("--device", "tpu"), "--device is 'tpu', expected auto, cpu or cuda", 2),
    ],
)
def test_setting_that_cannot_be_is_a_clear_error(
    flags: tuple[str, ...], expected: str, exit_code: int
) -> None:
    """The only line: it is found before a port is open."""
    ports = ("--grpc-port", "0", "--http-port=-1", "--metrics-port", "0")
    result = run_process("serve", *ports, *flags)
    assert result.returncode == exit_code
    assert result.stderr.startswith(f"attendant: error: {expected}")
    assert result.stderr.count("\n") == 1


def test_serve_can_try_its_models(repository: Path) -> None:
    """One real request to each text model, printed before the addresses."""
    with ServerProcess(repository, "--try-models") as server:
        assert server.metric("nv_inference_count", "tiny-spam") == 1
        assert server.metric("nv_inference_count", "tiny-embed") == 1


def test_infer_asks_any_model_with_tensors(server: ServerProcess, spam: Checkpoint) -> None:
    """Numbers and texts, as a table and as JSON."""
    two = ("--input", f"INPUT0={[[*range(16)]]}", "--input", f"INPUT1={[[1] * 16]}")
    found = run_json(server, "infer", "add-sub", *two)
    assert found["OUTPUT0"] == [[*range(1, 17)]]
    texts = f"text={json.dumps([[text] for text in TEXTS])}"
    found = run_json(server, "infer", "tiny-spam", "--input", texts)
    assert [row[0] in spam.labels for row in found["label"]] == [True] * len(TEXTS)
    assert "OUTPUT1" in run(server, "infer", "add-sub", *two).stdout


@pytest.mark.parametrize(
    ("given", "expected"),
    {
        "INPUT0": "--input is 'INPUT0', expected NAME=JSON: there is no '='",
        "INPUT0=[1,": "--input is 'INPUT0=[1,', expected NAME=JSON: ",
        "IN=[[1]]": "--input is 'IN', expected one of ['INPUT0', 'INPUT1']",
        "INPUT0=[[1], [2, 3]]": "--input 'INPUT0' is no ",
    }.items(),
)
def test_inputs_that_are_no_tensors_are_refused(
    server: ServerProcess, given: str, expected: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        run(server, "infer", "add-sub", "--input", given)
    assert expected in str(caught.value)
