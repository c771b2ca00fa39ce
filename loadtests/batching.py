"""What does the server cost, and what does batching by length gain? One run, interleaved.

    python -m loadtests.batching --model minilm --texts sentences.txt

Four ways to compute the same texts, round after round, A B C D A B C D ...:

    bare      the ONNX Runtime session alone, fed batches made beforehand: texts sorted by
              length, the batch size tried out for the best. No server can beat it.
    server    through gRPC, batches formed by the server's own policy
    first     through gRPC, batches of whatever waits, padded to the longest
    single    through gRPC, batching off

Ratios are taken within a round, so a machine that changes speed changes both sides.
Server and client share the machine's processors; bare has them alone.
"""

import asyncio
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, TypeAlias

import grpc
import numpy as np
import typer
from google.protobuf import text_format
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc

from loadtests.server import serving
from service.collate import pad_rows
from service.datatypes import to_raw
from service.loading import Openers, load_model
from service.model_files import ModelSource
from service.request import Arrays, Item, Request, Timings
from service.settings import Settings

BARE_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)
# A run that costs nothing but its overhead is worth any padding.
ENDLESS_OVERHEAD = "1000000000"
Way: TypeAlias = Callable[[], float]  # runs all texts once, returns seconds


def main(
    texts: Annotated[Path, typer.Option(help="One text per line.")],
    model: Annotated[str, typer.Option(help="A text model of the repository.")] = "minilm",
    repository: Annotated[Path, typer.Option(help="Where the model is.")] = Path(
        "model_repository"
    ),
    concurrency: Annotated[int, typer.Option(min=1, help="Requests in flight.")] = 32,
    rounds: Annotated[int, typer.Option(min=1, help="Counted rounds after one to warm up.")] = 5,
    limit: Annotated[int, typer.Option(min=1, help="Texts taken from the file.")] = 872,
    precision: Annotated[str, typer.Option(help="As the server's, on both sides.")] = "auto",
    flag: Annotated[
        list[str] | None, typer.Option(help="Flag for the server, e.g. --flag=--can-spin.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure bare, server, first-come and single side by side."""
    lines = [line for line in texts.read_text(encoding="utf-8").splitlines() if line][:limit]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        write_variants(repository / model, Path(folder))
        flags = ["--precision", precision, *(flag or [])]
        port = stack.enter_context(serving(Path(folder), flags)).port
        settings = Settings(model_repository=repository, precision=precision)
        ways: dict[str, Way] = {"bare": _bare(model, settings, lines)}
        ways |= {name: _through_grpc(port, name, lines, concurrency) for name in VARIANTS}
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        with Progress(console=Console(stderr=True)) as progress:
            task = progress.add_task("rounds", total=(rounds + 1) * len(ways))
            for count in range(rounds + 1):
                for name, run in ways.items():
                    duration_s = run()
                    if count:
                        seconds[name].append(duration_s)
                    progress.advance(task)
    _report(seconds, len(lines), as_json)


VARIANTS: dict[str, Callable[[model_config_pb2.ModelConfig], None]] = {
    "server": lambda _: None,
    "first": lambda config: config.parameters["batch_overhead_tokens"].MergeFrom(
        model_config_pb2.ModelParameter(string_value=ENDLESS_OVERHEAD)
    ),
    "single": lambda config: setattr(config, "max_batch_size", 1),
}


def write_variants(model: Path, folder: Path) -> None:
    """Every variant of the model, as a repository."""
    for name, change in VARIANTS.items():
        config = text_format.Parse(
            (model / "config.pbtxt").read_text(), model_config_pb2.ModelConfig()
        )
        config.name = name
        change(config)
        shutil.copytree(model, folder / name)
        (folder / name / "config.pbtxt").write_text(text_format.MessageToString(config))


def _bare(model: str, settings: Settings, lines: Sequence[str]) -> Way:
    """The session that the server opens too."""
    loaded = load_model(ModelSource.of(settings.model_repository, model), settings, Openers())
    session, manifest = loaded.versions[-1].sessions[0], loaded.versions[-1].manifest
    tokenizer = loaded.versions[-1].tokenizer
    assert manifest is not None, "a text model"
    assert tokenizer is not None, "of an encoder"
    outputs = [spec.name for spec in session.signature.outputs]
    pad = pad_rows(manifest.pad_token_id, [spec.name for spec in session.signature.inputs])
    request = Request(Timings(0.0))
    items = [
        Item(request, {"input_ids": row.input_ids, "token_type_ids": row.token_type_ids}, 1, size)
        for row in tokenizer.encode(lines, can_truncate=True)
        for size in [row.num_tokens]
    ]
    items.sort(key=lambda item: item.num_tokens)

    def run(batches: Sequence[Arrays]) -> float:
        started_s = time.perf_counter()
        for batch in batches:
            session.run(batch, outputs)
        return time.perf_counter() - started_s

    made = [
        [pad(items[start : start + size]) for start in range(0, len(items), size)]
        for size in BARE_BATCH_SIZES
    ]
    best = min(made, key=lambda batches: min(run(batches) for _ in range(2)))
    return lambda: run(best)


def _through_grpc(port: int, name: str, lines: Sequence[str], concurrency: int) -> Way:
    requests = [
        service_pb2.ModelInferRequest(
            model_name=name,
            inputs=[{"name": "text", "datatype": "BYTES", "shape": [1, 1]}],
            raw_input_contents=[to_raw(np.array([line.encode()], object))],
            parameters={"truncate": service_pb2.InferParameter(bool_param=True)},
        )
        for line in lines
    ]
    return lambda: asyncio.run(_closed_loop(port, requests, concurrency))


async def _closed_loop(
    port: int, requests: Sequence[service_pb2.ModelInferRequest], concurrency: int
) -> float:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        waiting = iter(requests)

        async def client() -> None:
            for request in waiting:
                await stub.ModelInfer(request, timeout=60)

        started_s = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(concurrency)))
        return time.perf_counter() - started_s


def _report(seconds: dict[str, list[float]], num_texts: int, as_json: bool) -> None:
    rows = {}
    for name, durations in seconds.items():
        ratios = [bare / own for bare, own in zip(seconds["bare"], durations, strict=True)]
        rows[name] = {
            "texts_per_s": num_texts / statistics.median(durations),
            "over_bare": statistics.median(ratios),
            "lowest": min(ratios),
            "highest": max(ratios),
        }
    if as_json:
        print(json.dumps(rows, indent=2))  # noqa: T201
        return
    table = Table("way", "texts/s (median)", "over bare (median)", "lowest", "highest")
    for name, row in rows.items():
        table.add_row(
            name,
            f"{row['texts_per_s']:.0f}",
            *(f"{row[key]:.3f}" for key in ("over_bare", "lowest", "highest")),
        )
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
