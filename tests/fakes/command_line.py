"""Commands as a user meets them, inside this process."""

import asyncio

from typer.testing import CliRunner, Result

from commands.main import app
from tests.fakes.serving import Served, within_patience

PLAIN = {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}


async def run(
    served: Served, *arguments: str, stdin: str | bytes = "", address: str = ""
) -> Result:
    """What a command of a running server did, over gRPC unless the address is another's.

    It blocks, so it runs on another thread.
    """
    command = [*arguments, "--address", address or served.address]
    invoke = CliRunner().invoke
    return await within_patience(
        asyncio.to_thread(invoke, app, command, env=PLAIN, input=stdin, catch_exceptions=False)
    )
