"""A shell completes the names of served models where a command takes a model."""

import asyncio
import os
import subprocess
import sys

import pytest

from tests.fakes.serving import Served, within_patience

pytestmark = pytest.mark.asyncio(loop_scope="module")
PROGRAM = "import sys; sys.argv = ['attendant']; from commands.__main__ import main; main()"
BASH = {"_ATTENDANT_COMPLETE": "complete_bash"}
ZSH = {"_ATTENDANT_COMPLETE": "complete_zsh"}


async def completed(line: str, **variables: str) -> str:
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    ended = await within_patience(
        asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", PROGRAM],
            env=os.environ | words | {"_TYPER_COMPLETE_ARGS": line} | variables,
            capture_output=True,
            text=True,
            check=False,
        )
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    printed: str = ended.stdout
    return printed


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("attendant embed ", ["mini"]),
        ("attendant infer s", ["simple", "spam", "strings"]),
        ("attendant classify x", []),
    ],
)
async def test_names_of_models_that_a_command_can_ask_are_completed(
    served: Served, line: str, names: list[str]
) -> None:
    """Of those of the command's task; by the address that the variable has."""
    assert (await completed(line, ATTENDANT_ADDRESS=served.address, **BASH)).split() == names


async def test_the_address_of_a_flag_is_asked_and_zsh_completes_too(served: Served) -> None:
    line = f"attendant embed --address {served.address} "
    assert await completed(line, **ZSH) == "_arguments '*: :((\"mini\"))'\n"


@pytest.mark.parametrize("address", ["127.0.0.1:1", "no address"])
async def test_a_server_that_does_not_answer_has_no_names_and_no_error(address: str) -> None:
    assert await completed("attendant embed ", ATTENDANT_ADDRESS=address, **BASH) == "\n"
