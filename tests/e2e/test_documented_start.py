"""What README and the first pages tell a newcomer to type, done as printed with the default models.

The models are those that `make test` built, so that nothing is downloaded or trained; ports are
free ones in place of those printed.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.e2e.conftest import ROOT
from tests.e2e.server import ATTENDANT, PLAIN, STOP_LIMIT_S, eventually, free_ports

README = (ROOT / "README.md").read_text(encoding="utf-8")
FIRST_STEPS = (ROOT / "docs/tutorial/first-steps.md").read_text(encoding="utf-8")
FROM_PYTHON = (ROOT / "docs/how-to/call-from-python.md").read_text(encoding="utf-8")
PRINTED_PORTS = {"8000": "ATTENDANT_HTTP_PORT", "8001": "ATTENDANT_GRPC_PORT"}
LIMIT_S = 60.0
EMBEDDING_SIZE = 384
CLIENTS = {"openai", "huggingface_hub"}  # which may be missing where tests run


def lines_to_the_first_answer() -> list[str]:
    """The four lines of README's first block."""
    block = re.search(r"^```\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert block, "README begins with commands"
    return block[1].splitlines()


def indented_blocks(text: str, first_word: str) -> list[str]:
    """Blocks of code that begin with a word, without their indentation."""
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", text, re.MULTILINE)
    plain = [re.sub(r"^    ", "", block, flags=re.MULTILINE).strip("\n") for block in blocks]
    return [block for block in plain if block.split()[0] == first_word]


@pytest.fixture(scope="module")
def ports() -> Iterator[dict[str, str]]:
    """Variables of a server that `make serve` started, as the second line of README says."""
    question = ["make", "--question", ".venv/train.stamp"]
    if subprocess.run(question, cwd=ROOT, check=False).returncode:  # noqa: S603
        pytest.skip("`make serve` would install packages first")
    if not all((ROOT / "model_repository" / name).exists() for name in ("minilm", "spam", "gpt")):
        pytest.fail("a default model is missing: run `make models`")
    http, grpc, metrics = map(str, free_ports(3))
    variables = {"ATTENDANT_HTTP_PORT": http, "ATTENDANT_GRPC_PORT": grpc}
    process = subprocess.Popen(  # noqa: S602 - a line of README
        lines_to_the_first_answer()[1],
        shell=True,
        cwd=ROOT,
        env=os.environ | PLAIN | variables | {"ATTENDANT_METRICS_PORT": metrics},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        health = ["curl", "--silent", "--fail", f"localhost:{http}/health"]

        def is_ready() -> bool:
            assert process.poll() is None, "`make serve` ended"
            return subprocess.run(health, capture_output=True, check=False).returncode == 0  # noqa: S603

        eventually(is_ready, "the server is ready", LIMIT_S)
        yield variables
    finally:
        os.killpg(process.pid, signal.SIGINT)  # Ctrl-C
        process.wait(STOP_LIMIT_S)


def with_free_ports(text: str, ports: dict[str, str]) -> str:
    """A printed text with the ports of the server that runs here."""
    for port, name in PRINTED_PORTS.items():
        text = text.replace(f"localhost:{port}", f"localhost:{ports[name]}")
    return text


def run(line: str, folder: Path, ports: dict[str, str]) -> str:
    """What a printed command writes, typed with the project's commands on the PATH."""
    path = f"{ATTENDANT.parent}{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(  # noqa: S602 - a line of a page
        with_free_ports(line, ports),
        shell=True,
        cwd=folder,
        env=os.environ | PLAIN | ports | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_readme_begins_with_four_lines_to_the_first_answer() -> None:
    clone, serve, ask, look = lines_to_the_first_answer()
    assert clone == "git clone ADDRESS attendant && cd attendant"
    assert serve.partition("#")[0].strip() == "make serve"
    assert ask.startswith("curl localhost:8000/")
    assert look.startswith("#")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_first_answer_comes_as_printed(ports: dict[str, str], tmp_path: Path) -> None:
    *_, ask, look = lines_to_the_first_answer()
    (vector,) = json.loads(run(ask, tmp_path, ports))["data"]
    assert len(vector["embedding"]) == EMBEDDING_SIZE
    (page,) = re.findall(r"http://localhost:8000", look)
    assert "<title>" in run(f"curl --silent {page}/", tmp_path, ports)


FIRST_COMMANDS = [
    line
    for block in indented_blocks(FIRST_STEPS, "attendant")
    for line in re.sub(r"\\\n\s*", " ", block).splitlines()
]


@pytest.mark.parametrize("line", FIRST_COMMANDS)
def test_a_command_of_the_first_steps_is_answered(
    line: str, ports: dict[str, str], tmp_path: Path
) -> None:
    for name in ("messages.txt", "texts.txt"):
        (tmp_path / name).write_text("claim your prize\nsee you at eight\n")
    assert run(line, tmp_path, ports) or (tmp_path / "vectors.npy").exists()


def script_of(words: str) -> str:
    """The blocks of a section in their order, as a reader types them one after the other."""
    section = next(part for part in FROM_PYTHON.split("\n## ") if part.startswith(words))
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", section, re.MULTILINE)
    return "".join(re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in blocks)


@pytest.mark.parametrize("section", re.findall(r"^## (By .*)$", FROM_PYTHON, re.MULTILINE))
def test_python_of_a_section_is_answered(
    section: str, ports: dict[str, str], tmp_path: Path
) -> None:
    script = script_of(section)
    modules = set(re.findall(r"^(?:import|from) (\w+)", script, re.MULTILINE))
    if missing := {name for name in modules & CLIENTS if find_spec(name) is None}:
        pytest.skip(f"{', '.join(missing)} is not installed")
    (tmp_path / "script.py").write_text(with_free_ports(script, ports))
    assert run(f"{sys.executable} script.py", tmp_path, ports).strip()
