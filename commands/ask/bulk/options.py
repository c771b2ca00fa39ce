"""The flags of commands that read texts from a file and write results into one."""

import inspect
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.text import Text

from commands.ask.client.client import Client
from commands.ask.options import Server
from commands.errors import FAILURE, INTERRUPTED, errors
from service.errors import SettingError

if TYPE_CHECKING:  # numpy, which a job needs and the flags do not
    from commands.ask.bulk.job import Job
    from commands.ask.bulk.sources import Source
    from commands.ask.bulk.state import Reached
    from commands.ask.bulk.work import Asking

PANEL = "Files"
RAY = "ray"


def _option(name: str, text: str, *spelt: str, **more: Any) -> Any:
    variable = f"ATTENDANT_BULK_{name}"
    return typer.Option(*spelt, help=text, envvar=variable, rich_help_panel=PANEL, **more)


class Files(NamedTuple):
    """The flags of a job of files."""

    input: Path | None = None
    output: Path | None = None
    field: str = "text"
    in_flight: int = 4
    window_lines: int = 2_048
    patience_s: float = 600.0
    restart: bool = False
    foreground: bool = False
    engine: tuple[str, str] | None = None
    repository: Path = Path("model_repository")
    actors: int = 0
    actor_cpus: int = 2


NO_FILES = Files()
OptionalTexts = Annotated[
    list[str] | None,
    typer.Argument(
        help="One or more texts; '-' reads texts from stdin, one per line, and skips empty lines. "
        "With --output, a file of texts."
    ),
]


def takes_files(command: Callable[..., None]) -> Callable[..., None]:
    """A command that takes the flags of a job in place of its parameter `files`."""

    def flags(
        input: Annotated[  # noqa: A002 - the flag's name
            Path | None,
            _option(
                "INPUT",
                "File of texts, .txt, .jsonl, .csv, .tsv or .parquet, answered into --output.",
            ),
        ] = None,
        output: Annotated[
            Path | None,
            _option(
                "OUTPUT",
                "File of results, .npy, .jsonl or .parquet. It is there when the job "
                "is done; one that was interrupted goes on by the same command.",
            ),
        ] = None,
        field: Annotated[
            str,
            _option(
                "FIELD", "The field, or column, of the text in .jsonl, .csv, .tsv and .parquet."
            ),
        ] = NO_FILES.field,
        in_flight: Annotated[
            int, _option("IN_FLIGHT", "Requests in flight, of 64 texts each.", min=1, max=64)
        ] = NO_FILES.in_flight,
        window_lines: Annotated[
            int,
            _option(
                "WINDOW_LINES",
                "Lines that are put in the order of their lengths, and written "
                "together; an interrupted job repeats less than two windows.",
                min=64,
                max=65_536,
            ),
        ] = NO_FILES.window_lines,
        patience_s: Annotated[
            float,
            _option(
                "PATIENCE_S",
                "Seconds for which a request is repeated while the server is "
                "full or away; then the job ends, and goes on by the same command.",
                min=0,
            ),
        ] = NO_FILES.patience_s,
        restart: Annotated[
            bool, _option("RESTART", "Begin anew, and replace what is there.")
        ] = False,
        foreground: Annotated[
            bool,
            _option(
                "FOREGROUND",
                "Send requests as other clients do, in place of background "
                "requests, which run only while no other request waits. The last digits of "
                "results then depend on what else is served.",
            ),
        ] = False,
        engine: Annotated[
            tuple[str, str] | None,
            _option(
                "ENGINE",
                "What computes in place of a server: 'ray' and the address of a Ray "
                "cluster, or 'ray auto'. The extra `ray` installs it.",
                metavar="ray ADDRESS",
            ),
        ] = None,
        repository: Annotated[
            Path,
            _option(
                "MODEL_REPOSITORY",
                "With --engine, the folder of models, at the same path on every node.",
                "--model-repository",
                "--repository",
            ),
        ] = NO_FILES.repository,
        actors: Annotated[
            int,
            _option(
                "ACTORS",
                "With --engine, the most sessions at once; 0 is one for every "
                "--actor-cpus processors of the cluster.",
                min=0,
                max=4_096,
            ),
        ] = NO_FILES.actors,
        actor_cpus: Annotated[
            int,
            _option(
                "ACTOR_CPUS", "With --engine, the processors of each session.", min=1, max=1_024
            ),
        ] = NO_FILES.actor_cpus,
    ) -> None: ...

    own = [p for p in inspect.signature(command).parameters.values() if p.name != "files"]
    added = inspect.signature(flags).parameters

    def run(**values: Any) -> None:
        files = Files(**{name: values.pop(name) for name in added})
        command(**values, files=files)

    parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in (*own, *added.values())]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def given(texts: list[str] | None) -> list[str]:
    """The texts that are arguments. Raises `SettingError` if there are none."""
    if not texts:
        raise SettingError(
            "no texts are given, expected texts, '-' for the lines of stdin, or --input FILE and "
            "--output FILE"
        )
    return texts


def input_of(files: Files, texts: list[str] | None, *, is_json: bool) -> Path | None:
    """The file of texts; None where texts are given, or stdin. Raises `SettingError`."""
    if files.output is None:
        if files.input is not None:
            raise SettingError(
                "--input is given without --output, expected both: results of a file go into a file"
            )
        if files.engine is not None:
            raise SettingError("--engine is given without --output, expected --input and --output")
        return None
    if is_json:
        raise SettingError(
            "--json and --ndjson are for answers on stdout, expected none of them beside --output"
        )
    from commands.ask.bulk.forms import FORMATS

    if files.output.suffix.lower() not in FORMATS:
        raise SettingError(
            f"--output '{files.output}' ends with '{files.output.suffix}', expected one of "
            f"{', '.join(FORMATS)}: the ending says how results are written"
        )
    if not files.output.absolute().parent.is_dir():
        raise SettingError(f"--output '{files.output}' is in a folder that does not exist")
    if files.input is not None:
        if texts:
            raise SettingError("texts and --input are both given, expected one of them")
        return files.input
    if texts is not None and len(texts) == 1 and Path(texts[0]).is_file():
        return Path(texts[0])
    given = f"'{texts[0]}' is no file" if texts else "no file is given"
    raise SettingError(f"--output is given, and {given}: expected --input FILE")


def answer_file(
    path: Path,
    files: Files,
    server: Server,
    request: Any,
    *,
    has_queries: bool = False,
) -> None:
    """Answer the texts of a file by requests like this one, and report it."""
    from commands.ask.bulk.job import run_job
    from commands.ask.bulk.sources import Source

    assert files.output is not None, "it was checked"
    source = Source(path, files.field, has_queries)
    source.check()
    request.background = not files.foreground
    if files.engine is not None:
        _answer_on_cluster(source, files, request, has_queries=has_queries)
        return
    with Client(*server) as client:
        job = _job_of(client, source, files, request, has_queries=has_queries)
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


def _answer_on_cluster(source: "Source", files: Files, request: Any, *, has_queries: bool) -> None:
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
    with InProcess(repository, request.model) as local:
        job = _job_of(local, source, files, request, has_queries=has_queries)
    began_s = time.monotonic()
    before, reached = run_on_ray(
        job, address, repository, files.actors, files.actor_cpus, restarts=files.restart
    )
    report(job.output, before, reached, time.monotonic() - began_s)


def _job_of(
    client: "Asking", source: "Source", files: Files, request: Any, *, has_queries: bool
) -> "Job":
    """A job for the version of the model that the client has."""
    from commands.ask.bulk.job import Job
    from commands.ask.bulk.sources import Source
    from commands.ask.bulk.work import check_form, served_model, work_of

    assert files.output is not None, "it was checked"
    model = served_model(client, request.model, request.version)
    work = work_of(request, model, has_queries=has_queries)
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
