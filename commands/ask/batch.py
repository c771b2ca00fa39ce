"""`attendant batch`: the requests of a file in OpenAI's batch form, answered into another."""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from commands.ask.asked import Asked
from commands.errors import INTERRUPTED, errors
from service.errors import SettingError


def batch(
    asked: Asked,
    file: Annotated[
        Path,
        typer.Argument(
            help="File of requests, .jsonl: lines with custom_id, method, url and body, as "
            "OpenAI's batches have them."
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            envvar="ATTENDANT_BATCH_OUTPUT",
            help="File of results, .jsonl. It is there when the job is done; one that was "
            "interrupted goes on by the same command.",
        ),
    ],
    in_flight: Annotated[
        int,
        typer.Option(envvar="ATTENDANT_BATCH_IN_FLIGHT", help="Requests in flight.", min=1, max=64),
    ] = 16,
    patience_s: Annotated[
        float,
        typer.Option(
            envvar="ATTENDANT_BATCH_PATIENCE_S",
            help="Seconds for which a request is repeated while the server is full or away.",
            min=0,
        ),
    ] = 600.0,
    restart: Annotated[
        bool,
        typer.Option(
            envvar="ATTENDANT_BATCH_RESTART", help="Begin anew, and replace what is there."
        ),
    ] = False,
) -> None:
    from commands.ask.bulk.answering import report
    from commands.ask.bulk.batch_lines import batch_job
    from commands.ask.bulk.job import run_job
    from commands.ask.client.http_transport import HttpTransport

    if not asked.server.address.startswith(("http://", "https://")):
        raise SettingError(
            f"--address is '{asked.server.address}', expected http://HOST:PORT of the server's "
            "HTTP port, which has the paths of the lines"
        )
    job = batch_job(file, output, in_flight, patience_s)
    transport = HttpTransport(*asked.server)
    began_s = time.monotonic()
    try:
        before, reached = run_job(job, job.work.ask(transport), restarts=restart)
    except KeyboardInterrupt:
        errors.print(Text("interrupted: the same command goes on from here", "dim"))
        raise typer.Exit(INTERRUPTED) from None
    finally:
        transport.close()
    report(job.output, before, reached, time.monotonic() - began_s)
