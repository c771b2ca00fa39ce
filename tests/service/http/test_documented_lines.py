"""Every `curl` line of the documents, run as printed, by a server with models of these names."""

import asyncio
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.chats import write_chat_model
from tests.fakes.http import port_of
from tests.fakes.retrieval import three_manifest, three_session
from tests.fakes.serving import Served, serving
from tests.fakes.sessions import (
    FakeSessions,
    classifier_manifest,
    embedder_manifest,
    generator_manifest,
    text_session,
    write_model,
)
from tests.fakes.tasks import mask_session, write_fill_mask

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
]
ROOT = Path(__file__).parents[3]
PAGES = ("README.md", "docs/how-to/call-over-http.md", "docs/reference/http.md")
HOST = "localhost:8000"


@asynccontextmanager
async def documented_models(repository: Path, **settings: Any) -> AsyncIterator[Served]:
    write_model(repository, "spam", classifier_manifest())
    write_model(repository, "minilm", embedder_manifest(pooling="mean, normalised"))
    write_model(repository, "m3", three_manifest())
    write_model(repository, "gpt", generator_manifest())
    write_fill_mask(repository, "bert")
    write_chat_model(repository, "NAME")
    sessions = FakeSessions(
        spam=lambda: text_session("logits", 3),
        minilm=lambda: text_session("embedding", 4),
        m3=three_session,
        bert=mask_session,
    )
    async with serving(repository, sessions, **settings) as running:
        yield running


SERVE = documented_models


def curl_lines(page: str) -> list[str]:
    """The commands of a page's code blocks that ask the server, on one line each."""
    text = re.sub(r"\\\n\s*", " ", (ROOT / page).read_text(encoding="utf-8"))
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if line.startswith("curl ") and HOST in line]


LINES = [line for page in PAGES for line in curl_lines(page)]


async def test_there_are_lines_in_every_page() -> None:
    assert all(map(curl_lines, PAGES))


def run(line: str, folder: Path) -> subprocess.CompletedProcess[bytes]:
    """What became of a command, with the file that it wrote as its output if it wrote one."""
    program, *words = shlex.split(line, comments=True)
    command = [program, "--silent", "--show-error", "--fail-with-body", *words]
    ended = subprocess.run(command, cwd=folder, capture_output=True, check=False)  # noqa: S603
    for path in folder.iterdir():
        ended.stdout += path.read_bytes()
    return ended


@pytest.mark.parametrize("line", LINES)
async def test_a_documented_line_is_answered(served: Served, line: str, tmp_path: Path) -> None:
    local = line.replace(HOST, f"127.0.0.1:{port_of(served)}")
    ended = await asyncio.to_thread(run, local, tmp_path)
    assert ended.returncode == 0, (ended.stdout, ended.stderr)
    assert ended.stdout
    if "--output" in line:  # which is not text
        return
    for event in ended.stdout.decode().splitlines():
        text = event.removeprefix("data: ")
        if text and text != "[DONE]" and not text.startswith(":"):
            assert "error" not in json.loads(text)
