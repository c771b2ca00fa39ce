"""The job of a command that reads texts from a file and writes results into one."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text

from commands.ask.asked import Asked
from commands.ask.files import Files
from commands.errors import FAILURE, INTERRUPTED, errors
from service.errors import SettingError

if TYPE_CHECKING:  # numpy, which a job needs and the flags do not
    from commands.ask.bulk.job import Job
    from commands.ask.bulk.sources import Source
    from commands.ask.bulk.state import Reached
    from commands.ask.bulk.work import Asking

RAY = "ray"


def answer_file(path: Path, asked: Asked, *, has_queries: bool = False) -> None:
    """Answer the texts of a file by requests like this one, and report it."""
    from commands.ask.bulk.job import run_job
    from commands.ask.bulk.sources import Source

    files = asked.files
    assert files is not None, "it was checked"
    assert files.output is not None, "the same"
    source = Source(path, files.field, has_queries)
    source.check()
    call = asked.call(background=not files.foreground)
    if files.engine is not None:
        _answer_on_cluster(source, files, call, has_queries=has_queries)
        return
    with asked.client() as client:
        job = _job_of(client, source, files, call, has_queries=has_queries)
        began_s = time.monotonic()
        try:
            before, reached = run_job(job, job.work.ask(client), restarts=files.restart)
        except KeyboardInterrupt:
            errors.print(Text("interrupted: the same command goes on from here", "dim"))
            raise typer.Exit(INTERRUPTED) from None
    report(files.output, before, reached, time.monotonic() - began_s)


def report(output: Path, before: "Reached", reached: "Reached", took_s: float) -> None:
    """Print the counts of a job that is done. Raises `typer.Exit` where a line was refused."""
    from commands.ask.bulk.job import summary

    errors.print(Text(summary(output, before, reached, took_s), "dim"), soft_wrap=True)
    if reached.num_refused:
        raise typer.Exit(FAILURE)


def _answer_on_cluster(source: "Source", files: Files, call: Any, *, has_queries: bool) -> None:
    """Raises `SettingError`, and what the job raises."""
    assert files.engine is not None, "it was checked"
    assert files.output is not None, "the same"
    kind, address = files.engine
    if kind != RAY:
        raise SettingError(f"--engine is '{kind}', expected '{RAY}' and the address of a cluster")
    if files.output.suffix.lower() != ".parquet":
        raise SettingError(
            f"--output '{files.output}' is no .parquet file, expected one: a cluster writes its "
            "parts as Parquet"
        )
    if files.foreground:
        raise SettingError("--foreground is for a server, expected none beside --engine")
    from commands.ask.bulk.in_process import InProcess
    from commands.ask.bulk.ray_job import run_on_ray

    repository = files.repository.absolute()
    with InProcess(repository, call.model) as local:
        job = _job_of(local, source, files, call, has_queries=has_queries)
    began_s = time.monotonic()
    before, reached = run_on_ray(
        job, address, repository, files.actors, files.actor_cpus, restarts=files.restart
    )
    report(job.output, before, reached, time.monotonic() - began_s)


def _job_of(
    client: "Asking", source: "Source", files: Files, call: Any, *, has_queries: bool
) -> "Job":
    """A job for the version of the model that the client has."""
    from commands.ask.bulk.job import Job
    from commands.ask.bulk.sources import Source
    from commands.ask.bulk.work import check_form, served_model, work_of

    assert files.output is not None, "it was checked"
    model = served_model(client, call.model, call.version)
    work = work_of(call, model, has_queries=has_queries)
    check_form(work.rows, files.output.suffix.lower())
    named = {"model": model.name, "version": model.version, "precision": model.precision}
    return Job(
        Source(source.path.absolute(), source.field, source.has_queries),
        files.output.absolute(),
        work,
        named,
        files.window_lines,
        files.in_flight,
        files.patience_s,
    )
