"""Where a run of a graph goes: ONNX Runtime's own profile, summed by operator and by weights' size.

python -m loadtests.nodes model_repository/minilm/1/model.onnx --rows 8 --tokens 128
"""

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import onnxruntime
import typer
from rich.console import Console
from rich.table import Table

from loadtests.graphs import ragged_batch
from service.cpus import available_cpus

NUM_WARM_UP = 2
SMALLEST_SHARE = 0.001  # of a run; below, a line says nothing
PRODUCTS = ("MatMul", "Gemm", "FusedMatMul", "FusedGemm", "MatMulIntegerToFloat")


def main(
    graphs: Annotated[list[Path], typer.Argument(help="ONNX files of text models.")],
    rows: Annotated[int, typer.Option(min=1, help="Rows per batch.")] = 8,
    tokens: Annotated[int, typer.Option(min=2, help="Tokens of the longest row.")] = 128,
    runs: Annotated[int, typer.Option(min=1, help="Runs after two to warm up.")] = 10,
) -> None:
    """Print a table for each graph."""
    for graph in graphs:
        milliseconds = profile(graph, rows, tokens, runs)
        total = sum(milliseconds.values())
        table = Table("operator", "ms per run", "share", title=str(graph))
        for name, spent in milliseconds.most_common():
            if spent >= SMALLEST_SHARE * total:
                table.add_row(name, f"{spent:.2f}", f"{spent / total:.1%}")
        table.add_row("all", f"{total:.2f}", "")
        Console().print(table)


def profile(graph: Path, rows: int, tokens: int, runs: int) -> Counter[str]:
    """Milliseconds per run of each kind of node."""
    batch = ragged_batch(rows, tokens)
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = available_cpus()
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        fusion = "SkipLayerNormFusion"
        options.add_session_config_entry("optimization.disable_specified_optimizers", fusion)
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder, "profile"))
        providers = ["CPUExecutionProvider"]
        session = onnxruntime.InferenceSession(graph, options, providers=providers)
        feed = {node.name: batch[node.name] for node in session.get_inputs()}
        for _ in range(NUM_WARM_UP + runs):
            session.run(None, feed)
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    kernels = [event for event in events if event["name"].endswith("_kernel_time")]
    per_run = len(kernels) // (NUM_WARM_UP + runs)
    spent: Counter[str] = Counter()
    for event in kernels[NUM_WARM_UP * per_run :]:
        spent[_kind(event["args"])] += event["dur"] / 1e3 / runs  # it is in microseconds
    return spent


def _kind(arguments: dict[str, Any]) -> str:
    """The operator, with the size of its constant weights where it is a product."""
    operator: str = arguments["op_name"]
    if operator not in PRODUCTS:
        return operator
    shapes = [shape for each in arguments["input_type_shape"] for shape in each.values()]
    weights = next((shape for shape in shapes[1:2] if len(shape) == 2), shapes[0][-1:])
    return f"{operator}, {' x '.join(map(str, weights))}"


if __name__ == "__main__":
    typer.run(main)
