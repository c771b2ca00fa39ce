"""Run the public example clients, unmodified, against a server of generated models.

Usage: `python -m tests.conformance.run_examples FOLDER [--python CLIENT_PYTHON] [--json FILE]`,
where FOLDER is `src/python/examples` of a clone of github.com/triton-inference-server/client, and
CLIENT_PYTHON an interpreter with `tritonclient[all]`, `pillow` and `attrdict`. Nothing of the
clone is part of this repository. Ends with 1 if an example that applies fails.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.conformance.models import write_examples
from tests.e2e.server import ServerProcess

LIMIT_S = 60.0  # for one example
DELAY_S = 0.1  # of the model that public tests make slow
SIDE = 64  # pixels
TOLD = 300  # characters of what a failed example said


@dataclass(frozen=True, slots=True)
class Example:
    """A script and what it is given; `{url}` and `{image}` are filled in."""

    script: str
    arguments: tuple[str, ...] = ("-u", "{url}")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one run."""

    example: str
    result: str  # pass, fail or not applicable
    reason: str = ""


_IMAGE = ("-m", "densenet_onnx", "-s", "INCEPTION", "-c", "3", "-u", "{url}", "{image}")
EXAMPLES = (
    Example("simple_grpc_infer_client.py"),
    Example("simple_grpc_infer_client.py", ("-u", "{url}", "-C", "gzip")),
    Example("simple_grpc_infer_client.py", ("-u", "{url}", "-C", "deflate")),
    Example("simple_grpc_infer_client.py", ("-u", "{url}", "-t", "10")),
    Example("simple_grpc_async_infer_client.py"),
    Example("simple_grpc_aio_infer_client.py"),
    Example("simple_grpc_string_infer_client.py"),
    Example("simple_grpc_custom_args_client.py"),
    Example("simple_grpc_keepalive_client.py"),
    Example("simple_grpc_health_metadata.py"),
    Example("simple_grpc_shm_client.py"),
    Example("simple_grpc_shm_string_client.py"),
    Example("reuse_infer_objects_client.py", ("-i", "grpc", "-u", "{url}")),
    Example("grpc_client.py"),
    Example("grpc_explicit_int_content_client.py"),
    Example("grpc_explicit_int8_content_client.py"),
    Example("grpc_explicit_byte_content_client.py"),
    Example("grpc_image_client.py", _IMAGE),
    Example("grpc_image_client.py", ("-a", *_IMAGE)),
    Example("grpc_image_client.py", ("--streaming", *_IMAGE)),
    Example("image_client.py", ("-i", "grpc", *_IMAGE)),
    Example("image_client.py", ("-i", "grpc", "-a", *_IMAGE)),
    Example("image_client.py", ("-i", "grpc", "-a", "--streaming", *_IMAGE)),
    Example("simple_grpc_model_control.py"),  # last: it unloads `simple`
)
NOT_APPLICABLE = {
    "simple_grpc_sequence_stream_infer_client.py": "needs a stateful model",
    "simple_grpc_sequence_sync_infer_client.py": "needs a stateful model",
    "simple_grpc_aio_sequence_stream_infer_client.py": "needs a stateful model",
    "simple_grpc_custom_repeat.py": "needs a decoupled model that is no graph",
    "simple_grpc_cudashm_client.py": "needs a GPU's shared memory",
    "ensemble_image_client.py": "needs an ensemble",
    "memory_growth_test.py": "takes no address",
}


def run_examples(folder: Path, python: str) -> list[Outcome]:
    with tempfile.TemporaryDirectory() as name, _server(Path(name)) as server:
        image = Path(name) / "image.ppm"
        image.write_bytes(
            b"P6 %d %d 255\n" % (SIDE, SIDE) + bytes(range(256)) * (SIDE * SIDE // 256) * 3
        )
        known = {"url": server.address, "image": str(image)}
        ran = [_run(folder, python, example, known) for example in EXAMPLES]
    return ran + [
        Outcome(script, "not applicable", reason) for script, reason in NOT_APPLICABLE.items()
    ]


@contextmanager
def _server(folder: Path) -> Iterator[ServerProcess]:
    repository = folder / "repository"
    write_examples(repository, DELAY_S)
    flags = ("--server-name", "triton", "--model-control-mode", "explicit", "--load-models", "*")
    with ServerProcess(repository, *flags, "--allow-client-shm") as server:
        yield server


def _run(folder: Path, python: str, example: Example, known: dict[str, str]) -> Outcome:
    arguments = [argument.format(**known) for argument in example.arguments]
    shown = " ".join((example.script, *(a for a in example.arguments if a not in ("-u", "{url}"))))
    if not (folder / example.script).exists():
        return Outcome(shown, "fail", "the folder has no such script")
    try:
        ended = subprocess.run(  # noqa: S603 - the user named the folder and the interpreter
            [python, folder / example.script, *arguments],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Outcome(shown, "fail", f"did not end in {LIMIT_S:.0f} s")
    if ended.returncode == 0:
        return Outcome(shown, "pass")
    return Outcome(shown, "fail", (ended.stdout + ended.stderr).strip()[-TOLD:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--json", type=Path, help="where to write the outcomes")
    asked = parser.parse_args()
    outcomes = run_examples(asked.folder, asked.python)
    table = Table("example", "result", "reason")
    for outcome in outcomes:
        table.add_row(outcome.example, outcome.result, outcome.reason)
    Console().print(table)
    if asked.json:
        asked.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    return int(any(outcome.result == "fail" for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
