"""Decoders of Llama's kind beside other engines.

    python -m loadtests.compare llamas --quick     the rows of docs/benchmarks.md
    python -m loadtests.compare llamas --model smollm2 --peer llama.cpp --ours int8

At the end the same graphs are timed step by step beside what the memory and the multipliers of
this machine can do (`loadtests/measure/limits.py`).
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from loadtests.compare.llama_peers import llama_peers, our_llamas
from loadtests.compare.llamas import SHAPES, write_llama
from loadtests.compare.model_contest import Choice, ModelContest, errors
from loadtests.compare.peer import Peer
from loadtests.compare.traffic import LLAMA_TRAFFIC
from loadtests.load.turns import take_turns
from loadtests.measure import limits
from loadtests.measure.harness import show

LIMIT_ROUNDS = 9


def _limits(model: str, own: Sequence[Peer], choice: Choice, results: Path) -> None:
    """The shares of the machine's limit that steps of our graphs reach, shown and kept."""
    graphs = {f"{model} {peer.precision}": _graph(peer) for peer in own}
    if graphs:
        ways = limits.ways_of(graphs, (1, 8, 32), limits.CONTEXT, choice.threads)
        figures = limits.figures(take_turns(ways, LIMIT_ROUNDS))
        show(figures, errors)
        path = results.parent / f"limits-{model}.json"
        path.write_text(json.dumps([asdict(figure) for figure in figures], indent=1))


def _graph(peer: Peer) -> Path:
    (graph,) = (
        path
        for path in Path(peer.folder, "model", "1").glob("model*.onnx")
        if not path.name.endswith(".prefill.onnx")
    )
    return graph


LLAMAS = ModelContest(
    {name: shape.title for name, shape in SHAPES.items()},
    write_llama,
    our_llamas,
    llama_peers,
    LLAMA_TRAFFIC,
    _limits,
)
