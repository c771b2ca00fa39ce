"""What `attendant serve FOLDER` takes: memory of the process tree, seconds of each step, tokens.

    python -m loadtests.measure folders --size 1b --precision int8

The first start imports and exports the folder into an empty cache, the second finds the export
there. Peak memory is of all processes together until the server is ready and has answered: private,
and resident with pages of mapped files. Prompts are random tokens, each another. The folder is
random, of that size, or one of yours.
"""

import json
import re
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Literal

import numpy as np

from loadtests.load.process_tree import Peak, processor_seconds, watching
from loadtests.load.random_folders import write_folder
from loadtests.load.server import SERVE
from loadtests.load.turns import spread
from loadtests.measure.records import (
    Column,
    Figure,
    Measure,
    Options,
    Rounds,
    Turn,
    Way,
    by_columns,
    option,
)

NAME = "measured"
LEAST_WORDS = 300  # of a vocabulary whose tokens are drawn, without the first ones
FIRST, SECOND = "first start", "second start"
STEP = re.compile(rf"{NAME}: (?P<step>.*) \((?:about )?\d+ s (?:left|so far)\)")
COUNT = re.compile(r":? \d[\d, ]*(?: of \d[\d,]*)?(?P<unit> \S.*)?$")
STEPS, STEP_PREFIX = "Seconds of the steps of a first start", "step "
END_S = 60.0
LINES_OF_ERROR = 20  # that a server said last


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderOptions(Options):
    """The folder, and how it is served."""

    rounds: int = option(1, "Rounds that count.", min=1)
    warm_up: int = option(0, "Rounds before them.", min=0)
    size: Literal["tiny", "1b", "8b"] = option("1b", "Size of the random folder.")
    folder: Path | None = option(None, "Folder to serve in place of a random one.")
    random: Path = option(
        Path("build/loadtests/folders"), "Where random folders are kept; 8b takes 16 GB."
    )
    precision: str = option("auto", "Precision of the export.")
    prompt_tokens: int = option(128, "Tokens of a prompt.", min=1)
    tokens: int = option(32, "Tokens that are generated.", min=2)
    rows: int = option(8, "Prompts of the request with several.", min=1)
    flag: list[str] = option([], "Flag for the server, e.g. --flag=--max-context-tokens=512.")


def ways(options: FolderOptions, stack: ExitStack) -> dict[str, Way]:
    """A first and a second start over one cache."""
    folder = options.folder or write_folder(options.random, options.size)
    cache = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="measured-folders-")))
    return {
        FIRST: partial(_start, folder, cache, options, is_first=True),
        SECOND: partial(_start, folder, cache, options, is_first=False),
    }


def _start(folder: Path, cache: Path, options: FolderOptions, *, is_first: bool) -> Turn:
    if is_first:
        shutil.rmtree(cache, ignore_errors=True)
    line = [*SERVE, f"{NAME}={folder}", "--folder-cache", str(cache), "--log-level", "warning"]
    line += ["--grpc-port", "0", "--http-port", "0", "--metrics-port", "0"]
    line += [f"--precision={options.precision}", *options.flag]
    started_s = time.monotonic()
    with _running(line) as server, watching(server.pid) as peak:
        assert server.stdout is not None, "it was asked for"
        assert server.stderr is not None, "the same"
        steps: dict[str, float] = {}
        said: deque[str] = deque(maxlen=LINES_OF_ERROR)
        arguments = (server.stderr, steps, said)
        reader = threading.Thread(target=_read_steps, args=arguments, daemon=True)
        reader.start()
        url = _url_of(server.stdout)
        if not url:
            reader.join(END_S)
            raise RuntimeError("the server ended before it was ready:\n" + "".join(said))
        ready_s = time.monotonic() - started_s
        answered = _answered(url, options)
        computed_s = processor_seconds(server.pid)
    return {
        "seconds": ready_s,
        "processor_s": computed_s,
        **_memory(peak),
        **answered,
        "disk_mib": sum(path.stat().st_size for path in cache.rglob("*") if path.is_file()) / 2**20,
        **{f"{STEP_PREFIX}{step}": seconds for step, seconds in steps.items()},
    }


def _memory(peak: Peak) -> Turn:
    return {
        "private_mib": peak.private_mib,
        "anonymous_mib": peak.anonymous_mib,
        "resident_mib": peak.resident_mib,
    }


@contextmanager
def _running(line: list[str]) -> Iterator["subprocess.Popen[str]"]:
    server = subprocess.Popen(  # noqa: S603 - our own command
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield server
    finally:
        server.terminate()
        try:
            server.wait(END_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _read_steps(lines: IO[str], steps: dict[str, float], said: deque[str]) -> None:
    """Seconds from each step's first line to the next one's; counted steps are one.

    The last lines are `said`.
    """
    current, since_s = "", time.monotonic()
    for line in lines:
        said.append(line)
        now_s = time.monotonic()
        if current:
            steps[current] = steps.get(current, 0.0) + now_s - since_s
        matched = STEP.match(line.strip())
        current, since_s = COUNT.sub("", matched["step"]) if matched else "", now_s


def _url_of(lines: IO[str]) -> str:
    """The address of HTTP, when the server is ready; empty where it ended before."""
    url = ""
    for line in lines:
        if line.startswith("HTTP "):
            url = line.split()[1]
        if line.startswith("gRPC "):
            return url
    return ""


def _answered(url: str, options: FolderOptions) -> Turn:
    """The seconds of a first token, and the tokens of each second, of one prompt and of several."""
    turn = {}
    for rows, suffix in ((1, ""), (options.rows, "_of_rows")):
        first_s, one_s, all_s = (
            _seconds_of(url, rows, count, options) for count in (1, 1, options.tokens)
        )
        turn[f"first_token_s{suffix}"] = first_s
        turn[f"tokens_per_s{suffix}"] = rows * (options.tokens - 1) / max(all_s - one_s, 1e-3)
    return turn


def _seconds_of(url: str, rows: int, num_tokens: int, options: FolderOptions) -> float:
    """Seconds that a request of several prompts takes, with `num_tokens` for each."""
    generator = np.random.default_rng()
    prompts = generator.integers(LEAST_WORDS // 3, LEAST_WORDS, (rows, options.prompt_tokens))
    body = {
        "model": NAME,
        "prompt": prompts.tolist(),
        "max_tokens": num_tokens,
        "temperature": 0,
        "ignore_eos": True,
    }
    request = urllib.request.Request(  # noqa: S310 - of a server on loopback
        f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    started_s = time.monotonic()
    with urllib.request.urlopen(request) as answer:  # noqa: S310 - the same
        answer.read()
    return time.monotonic() - started_s


BY_START = by_columns(
    Column("until it is ready", "seconds", "s"),
    Column("processor time", "processor_s", "s"),
    Column("private memory, at most", "private_mib", "MiB"),
    Column("anonymous", "anonymous_mib", "MiB"),
    Column("resident", "resident_mib", "MiB"),
    Column("on disk", "disk_mib", "MiB"),
    Column("first token", "first_token_s", "ms"),
    Column("tokens/s", "tokens_per_s"),
    Column("several prompts: first tokens", "first_token_s_of_rows", "ms"),
    Column("several prompts: tokens/s", "tokens_per_s_of_rows"),
)


def figures(rounds: Rounds) -> list[Figure]:
    """Figures of both starts, and the steps of the first."""
    names = dict.fromkeys(
        name for turn in rounds[FIRST] for name in turn if name.startswith(STEP_PREFIX)
    )
    return BY_START(rounds) + [
        Figure.of(
            FIRST,
            name.removeprefix(STEP_PREFIX),
            spread([turn.get(name, 0.0) for turn in rounds[FIRST]]),
            "s",
            table=STEPS,
        )
        for name in names
    ]


FOLDERS = Measure(
    "folders",
    "Memory and seconds of serving a folder, the first and the second time",
    "Start and memory",
    FolderOptions,
    ways,
    figures,
)
