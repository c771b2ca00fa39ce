"""What ways of holding a graph's weights save, in memory and in time.

    python -m loadtests.weights model_repository/minilm/1/model.onnx --rows 8 --tokens 128

Each way opens the graph twice in a process of its own, as a server does while a new version is
loaded beside the old one: how long the first took, what both added to resident memory, and how
long a run takes then. Rounds are interleaved.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import onnx
import onnxruntime
import typer
from onnx import numpy_helper
from rich.console import Console
from rich.progress import track
from rich.table import Table

from loadtests.graphs import ragged_batch
from loadtests.startup import resident_mib
from service.background import release_memory
from service.cpus import available_cpus

NUM_RUNS = 5
OPTIMISED, MAPPED = "optimised.onnx", "mapped.onnx"
Open = Callable[[Path, Path], Any]  # a graph, and where `prepare` wrote -> a session


def main(
    graph: Annotated[Path, typer.Argument(help="ONNX file of a text model.")],
    rows: Annotated[int, typer.Option(min=1, help="Rows of the run that is timed.")] = 8,
    tokens: Annotated[int, typer.Option(min=2, help="Tokens of its longest row.")] = 128,
    rounds: Annotated[int, typer.Option(min=1, help="Counted rounds after one to warm up.")] = 3,
    only: Annotated[list[str] | None, typer.Option(help="These ways; all by default.")] = None,
    way: Annotated[str, typer.Option(help="Measure this one here, and print JSON.")] = "",
    folder: Annotated[str, typer.Option(help="Where `prepare` has written.")] = "",
) -> None:
    """Compare ways."""
    if way:
        print(json.dumps(measure(WAYS[way], graph, Path(folder), rows, tokens)))  # noqa: T201
        return
    found: dict[str, list[dict[str, float]]] = {name: [] for name in only or WAYS}
    with tempfile.TemporaryDirectory() as written:
        prepare(graph, Path(written))
        options = "--rows", str(rows), "--tokens", str(tokens), "--folder", written
        for count in track(range(rounds + 1), "rounds", console=Console(stderr=True)):
            for name in found:
                command = sys.executable, "-m", "loadtests.weights", str(graph), "--way", name
                ran = subprocess.run([*command, *options], check=True, capture_output=True)  # noqa: S603
                if count:
                    found[name].append(json.loads(ran.stdout))
    table = Table("way", *next(iter(found.values()))[0])
    for name, rounds_of in found.items():
        medians = [statistics.median(each[key] for each in rounds_of) for key in rounds_of[0]]
        table.add_row(name, *(f"{median:.0f}" for median in medians))
    Console().print(table)


def measure(
    open_graph: Open, graph: Path, folder: Path, rows: int, tokens: int
) -> dict[str, float]:
    """What a way costs in this process, which has done nothing else."""
    batch = ragged_batch(rows, tokens)
    before_mib = resident_mib()
    started_s = time.perf_counter()
    first = open_graph(graph, folder)
    opened_s = time.perf_counter()
    first_mib = resident_mib()
    second = open_graph(graph, folder)
    second_mib = resident_mib()
    feed = {node.name: batch[node.name] for node in first.get_inputs()}
    first.run(None, feed)
    runs_s: list[float] = []
    for _ in range(NUM_RUNS):
        run_s = time.perf_counter()
        first.run(None, feed)
        runs_s.append(time.perf_counter() - run_s)
    del second
    return {
        "open, ms": (opened_s - started_s) * 1e3,
        "first, MiB": first_mib - before_mib,
        "second beside it, MiB": second_mib - first_mib,
        "run, ms": statistics.median(runs_s) * 1e3,
        "after runs, MiB": resident_mib() - before_mib,
    }


def prepare(graph: Path, folder: Path) -> None:
    """Write the files that some ways read: optimised, and with weights apart."""
    options = _options()
    options.optimized_model_filepath = str(folder / OPTIMISED)
    _session(graph, options)
    onnx.save(onnx.load(graph), folder / MAPPED, save_as_external_data=True, location="weights")


def _options(**entries: str) -> Any:  # noqa: ANN401 - the class has no types
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = available_cpus()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    fusion = "SkipLayerNormFusion"
    options.add_session_config_entry("optimization.disable_specified_optimizers", fusion)
    for name, value in entries.items():
        options.add_session_config_entry(f"session.{name}", value)
    return options


def _session(graph: Path | bytes, options: Any) -> Any:  # noqa: ANN401
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _as_served(graph: Path, _: Path) -> Any:  # noqa: ANN401
    return _session(graph, _options())


def _trimmed(graph: Path, _: Path) -> Any:  # noqa: ANN401
    """What reading the file took is given back to the system."""
    session = _session(graph, _options())
    release_memory()
    return session


def _without_arena(graph: Path, _: Path) -> Any:  # noqa: ANN401
    options = _options()
    options.enable_cpu_mem_arena = False
    return _session(graph, options)


def _not_prepacked(graph: Path, _: Path) -> Any:  # noqa: ANN401
    return _session(graph, _options(disable_prepacking="1"))


def _device_allocator(graph: Path, _: Path) -> Any:  # noqa: ANN401
    return _session(graph, _options(use_device_allocator_for_initializers="1"))


def _optimised_file(_: Path, folder: Path) -> Any:  # noqa: ANN401
    """Optimised once and saved; now only read."""
    options = _options()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return _session(folder / OPTIMISED, options)


def _mapped_file(_: Path, folder: Path) -> Any:  # noqa: ANN401
    """Weights in a file of their own, which ONNX Runtime maps into memory."""
    return _session(folder / MAPPED, _options())


def _shared_arrays(graph: Path, _: Path) -> Any:  # noqa: ANN401
    """Both sessions are handed the same arrays."""
    if not _SHARED:
        for tensor in onnx.load(graph).graph.initializer:
            array = numpy_helper.to_array(tensor)
            if array.nbytes >= MIN_SHARED_BYTES:
                _SHARED[tensor.name] = onnxruntime.OrtValue.ortvalue_from_numpy(array)
    options = _options()
    for name, value in _SHARED.items():
        options.add_initializer(name, value)
    return _session(graph, options)


MIN_SHARED_BYTES = 4_096
_SHARED: dict[str, Any] = {}
WAYS: dict[str, Open] = {
    "as served": _as_served,
    "trimmed": _trimmed,
    "no arena": _without_arena,
    "not prepacked": _not_prepacked,
    "weights not in the arena": _device_allocator,
    "optimised file": _optimised_file,
    "mapped file": _mapped_file,
    "shared arrays": _shared_arrays,
}

if __name__ == "__main__":
    typer.run(main)
