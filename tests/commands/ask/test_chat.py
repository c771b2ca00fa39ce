"""`attendant chat`: a conversation in a pipe, and in a terminal, where Ctrl-C stops an answer."""

import asyncio
import os
import pty
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.fakes.chats import rendered, write_chat_model
from tests.fakes.command_line import PLAIN, run
from tests.fakes.http import port_of
from tests.fakes.serving import Served, eventually, serving, within_patience, write_models
from tests.fakes.sessions import PATIENCE_S, greedy_text

pytestmark = pytest.mark.asyncio(loop_scope="module")
ROOT = Path(__file__).parents[3]
GREEDY = ("--temperature", "0", "--max-tokens", "4")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def talking(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    repository = tmp_path_factory.mktemp("model_repository")
    write_models(repository)
    write_chat_model(repository)
    async with serving(repository, http_port=0) as running:
        yield running


def said(*messages: tuple[str, str]) -> str:
    return greedy_text(rendered(*messages), 4)


@pytest.mark.parametrize("has_http", [False, True])
async def test_a_conversation_is_kept_from_turn_to_turn(talking: Served, has_http: bool) -> None:
    address = f"http://127.0.0.1:{port_of(talking)}" if has_http else ""
    first = said(("user", "a"))
    second = said(("user", "a"), ("assistant", first), ("user", "b"))
    result = await run(talking, "chat", "talks", *GREEDY, stdin="a\n\nb\n", address=address)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"{first}\n{second}\n"


async def test_an_answer_that_is_cut_says_by_which_flag(talking: Served) -> None:
    """What is longer than `--max-tokens` ends so; the server's default is 128."""
    result = await run(talking, "chat", "talks", *GREEDY, stdin="a\n")
    assert result.stderr.startswith("the answer was cut: --max-tokens says how long one may be")
    stop = ("--stop", said(("user", "a"))[1:3])
    result = await run(talking, "chat", "talks", *GREEDY, *stop, stdin="a\n")
    assert "was cut" not in result.stderr
    assert "tokens in" in result.stderr


async def test_clear_begins_again_and_keeps_the_system_and_quit_ends(talking: Served) -> None:
    lines = "a\n/clear\na\n/quit\nb\n"
    result = await run(talking, "chat", "talks", *GREEDY, "--system", "s", stdin=lines)
    assert result.stdout == f"{said(('system', 's'), ('user', 'a'))}\n" * 2


async def test_bytes_that_no_text_has_are_refused_before_anything_is_sent(talking: Served) -> None:
    with pytest.raises(UnicodeEncodeError):
        await run(talking, "chat", "talks", "--system", "\udcff", stdin="")


async def test_an_unknown_command_is_not_sent(talking: Served) -> None:
    result = await run(talking, "chat", "talks", *GREEDY, stdin="/nix\n")
    assert result.stdout == ""
    assert "'/nix' is not known; /clear begins a new conversation" in result.stderr


@pytest.mark.parametrize(
    ("model", "text"),
    [("tale", "model 'tale' has no chat template"), ("nix", "unknown model: 'nix'")],
)
async def test_a_model_that_cannot_talk_is_refused_at_once(
    talking: Served, model: str, text: str
) -> None:
    result = await run(talking, "chat", model, stdin="a\n")
    assert result.exit_code == 1
    assert text in result.stderr


async def test_a_conversation_that_is_too_long_is_an_error_in_a_pipe(talking: Served) -> None:
    result = await run(talking, "chat", "talks", stdin="a" * 70 + "\n")
    assert result.exit_code == 1
    assert "the prompt has 79 tokens" in result.stderr


async def test_ctrl_c_stops_an_answer_and_not_the_program(talking: Served) -> None:
    """The first answer never comes; the second is that of a conversation without it."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "commands", "chat", "talks", *GREEDY]
    environment = {**os.environ, **PLAIN, "PYTHONPATH": f"{ROOT}:{ROOT / 'protos'}"}
    decoder = talking.decoders["talks"]
    decoder.hold()
    screen = Screen(ours)
    process = await asyncio.create_subprocess_exec(
        *command,
        "--address",
        talking.address,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=ROOT,
        env=environment,
    )
    os.close(theirs)
    try:
        await screen.until("> ")
        os.write(ours, b"never\n")
        await eventually(lambda: talking.num_running("talks") == 1)
        process.send_signal(signal.SIGINT)
        await screen.until("> ")
        decoder.release()
        await eventually(lambda: talking.num_running("talks") == 0)
        os.write(ours, b"a\n")
        await screen.until(said(("user", "a")))
        await screen.until("> ")
        await interrupted(process, screen)
        os.write(ours, b"/quit\n")
        assert await within_patience(process.wait()) == 0
    finally:
        decoder.release()
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(ours)


async def interrupted(process: asyncio.subprocess.Process, screen: "Screen") -> None:
    """Ctrl-C at the prompt, until there is a new one.

    The prompt is shown a moment before Python's readline notices signals; one of that moment counts
    with the next key.
    """
    shown = asyncio.create_task(screen.until("> "))
    while not shown.done():
        process.send_signal(signal.SIGINT)
        await asyncio.wait([shown], timeout=1)
    await shown


class Screen:
    """What a terminal shows, read from the other end."""

    def __init__(self, end: int) -> None:
        self._end = end
        self._shown = b""

    async def until(self, text: str) -> None:
        """Read on until a text comes, and no further."""
        try:
            await asyncio.wait_for(asyncio.to_thread(self._read, text.encode()), PATIENCE_S)
        except TimeoutError:
            raise AssertionError(f"{self._shown!r} is shown, and not {text!r}") from None

    def _read(self, text: bytes) -> None:
        while text not in self._shown:
            self._shown += os.read(self._end, 1_024)
        self._shown = self._shown.partition(text)[2]
