"""Which of several graphs of the same model is faster? Interleaved, on one machine.

    python -m loadtests.graphs a/model.onnx b/model.onnx --rows 8 --tokens 64

Each graph runs twice, with ONNX Runtime's SkipLayerNormFusion and without, on the same
random ragged rows. Ratios are to the first line, within a round. With onnxruntime-openvino
installed, `--openvino f32 --openvino bf16` runs them under its provider too, in that precision.
"""

import itertools
import json
import statistics
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnxruntime
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from service.cpus import available_cpus

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
VOCABULARY = 1_000  # ids below this exist in every model


def main(
    graphs: Annotated[list[Path], typer.Argument(help="ONNX files of text models.")],
    rows: Annotated[int, typer.Option(min=1, help="Rows per batch.")] = 8,
    tokens: Annotated[int, typer.Option(min=2, help="Tokens of the longest row.")] = 64,
    rounds: Annotated[int, typer.Option(min=1, help="Counted rounds after two to warm up.")] = 20,
    openvino: Annotated[list[str] | None, typer.Option(help="Precisions, f32 or bf16.")] = None,
) -> None:
    """Time graphs side by side."""
    batch = ragged_batch(rows, tokens)
    sessions = {
        f"{path}{' with SkipLayerNormFusion' if is_fused else ''}": _session(path, is_fused)
        for path in graphs
        for is_fused in (False, True)
    }
    for path, hint in itertools.product(graphs, openvino or []):
        sessions[f"{path} under OpenVINO, {hint}"] = _openvino_session(path, hint)
    outputs: dict[str, np.ndarray] = {}
    durations: dict[str, list[float]] = {name: [] for name in sessions}
    for count in track(range(rounds + 2), "rounds", console=Console(stderr=True)):
        for name, session in sessions.items():
            feed = {node.name: batch[node.name] for node in session.get_inputs()}
            started_s = time.perf_counter()
            outputs[name] = session.run(None, feed)[0]
            if count >= 2:
                durations[name].append(time.perf_counter() - started_s)
    table = Table(
        *("graph", "ms (median)", "over the first (median)", "lowest", "highest", "least cosine")
    )
    first, expected = next(iter(durations.values())), next(iter(outputs.values()))
    for name, seconds in durations.items():
        ratios = [own / other for own, other in zip(seconds, first, strict=True)]
        figures = statistics.median(ratios), min(ratios), max(ratios)
        milliseconds = f"{statistics.median(seconds) * 1e3:.2f}"
        cosine = f"{_least_cosine(outputs[name], expected):.5f}"
        table.add_row(name, milliseconds, *(f"{figure:.3f}" for figure in figures), cosine)
    Console().print(table)


def _least_cosine(found: np.ndarray, expected: np.ndarray) -> float:
    """Of two outputs [B, values], over rows."""
    norms = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
    return float(((found * expected).sum(axis=1) / norms).min())


def _session(path: Path, is_fused: bool) -> Any:  # noqa: ANN401 - the class has no types
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = available_cpus()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if not is_fused:
        fusion = "SkipLayerNormFusion"
        options.add_session_config_entry("optimization.disable_specified_optimizers", fusion)
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _openvino_session(path: Path, hint: str) -> Any:  # noqa: ANN401
    properties = {"CPU": {"INFERENCE_PRECISION_HINT": hint}}
    options = {"num_of_threads": str(available_cpus()), "load_config": json.dumps(properties)}
    providers = [("OpenVINOExecutionProvider", options), "CPUExecutionProvider"]
    return onnxruntime.InferenceSession(path, providers=providers)


def ragged_batch(rows: int, tokens: int) -> dict[str, np.ndarray]:
    """Lengths from the whole down to half of it, right-padded."""
    ids = np.random.default_rng(0).integers(1, VOCABULARY, (rows, tokens))
    lengths = np.linspace(tokens, max(1, tokens // 2), rows).astype(int)
    mask = (np.arange(tokens) < lengths[:, None]).astype(np.int64)
    return dict(zip(INPUTS, (ids, mask, np.zeros_like(ids)), strict=True))


if __name__ == "__main__":
    typer.run(main)
