"""The flags of commands that read texts from a file and write results into one."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from commands.ask.options import SEVERAL
from commands.flags import argument, flags_of
from service.errors import SettingError

PANEL = "Files"
OUTPUT_FORMATS = (".npy", ".jsonl", ".parquet")


def _says(default: Any, text: str, **about: Any) -> Any:
    return field(default=default, metadata={"help": text, "panel": PANEL, **about})


@dataclass(frozen=True)
class Files:
    """The flags of a job of files."""

    input: Path | None = _says(
        None, "File of texts, .txt, .jsonl, .csv, .tsv or .parquet, answered into --output."
    )
    output: Path | None = _says(
        None,
        "File of results, .npy, .jsonl or .parquet. It is there when the job is done; one that was "
        "interrupted goes on by the same command.",
    )
    field: str = _says(
        "text", "The field, or column, of the text in .jsonl, .csv, .tsv and .parquet."
    )
    in_flight: int = _says(4, "Requests in flight, of 64 texts each.", low=1, high=64)
    window_lines: int = _says(
        2_048,
        "Lines that are put in the order of their lengths, and written together; an interrupted "
        "job repeats less than two windows.",
        low=64,
        high=65_536,
    )
    patience_s: float = _says(
        600.0,
        "Seconds for which a request is repeated while the server is full or away; then the job "
        "ends, and goes on by the same command.",
        low=0,
    )
    restart: bool = _says(False, "Begin anew, and replace what is there.")
    foreground: bool = _says(
        False,
        "Send requests as other clients do, in place of background requests, which run only while "
        "no other request waits. The last digits of results then depend on what else is served.",
    )
    engine: tuple[str, str] | None = _says(
        None,
        "What computes in place of a server: 'ray' and the address of a Ray cluster, or 'ray "
        "auto'. The extra `ray` installs it.",
        metavar="ray ADDRESS",
    )
    repository: Path = _says(
        Path("model_repository"),
        "With --engine, the folder of models, at the same path on every node.",
        spelt=("--model-repository", "--repository"),
        variable="ATTENDANT_BULK_MODEL_REPOSITORY",
    )
    actors: int = _says(
        0,
        "With --engine, the most sessions at once; 0 is one for every --actor-cpus processors of "
        "the cluster.",
        low=0,
        high=4_096,
    )
    actor_cpus: int = _says(2, "With --engine, the processors of each session.", low=1, high=1_024)


FILE_FLAGS = flags_of(Files, "ATTENDANT_BULK", has_limits=True)
OPTIONAL_TEXTS = argument(
    "texts", list[str] | None, f"{SEVERAL} With --output, a file of texts.", is_optional=True
)


def given(texts: Sequence[str] | None) -> Sequence[str]:
    """The texts that are arguments. Raises `SettingError` if there are none."""
    if not texts:
        raise SettingError(
            "no texts are given, expected texts, '-' for the lines of stdin, or --input FILE and "
            "--output FILE"
        )
    return texts


def input_of(files: Files, texts: Sequence[str] | None, *, is_json: bool) -> Path | None:
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
    if files.output.suffix.lower() not in OUTPUT_FORMATS:
        raise SettingError(
            f"--output '{files.output}' ends with '{files.output.suffix}', expected one of "
            f"{', '.join(OUTPUT_FORMATS)}: the ending says how results are written"
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
