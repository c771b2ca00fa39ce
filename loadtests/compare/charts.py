"""README's picture: bars of a comparison.

    python -m loadtests.compare overview     draws docs/pictures/overview.png

README's picture is drawn from the result files in `loadtests/results`, so that it has the ratios
of the benchmarks' pages, on a machine where nothing was measured too.
"""

from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

from loadtests.measure.records import Figure
from loadtests.measure.results import Result

OVERVIEW = Path("docs/pictures/overview.png")
SERVERS, ENGINES = "compare-servers", "compare-engines"
# The peers of README, each with its row of a result: all of BERT-base on texts of mixed lengths.
PEERS = {
    "MLServer, int8": (SERVERS, "MLServer 1.7.1, unbatched"),
    "Triton, int8": (SERVERS, "Triton 2.51.0 (Python backend), unbatched"),
    "LitServe, int8": (SERVERS, "LitServe 0.2.19, unbatched"),
    "ONNX Runtime, int8": (
        ENGINES,
        "onnxruntime 1.31.1, Hugging Face's export, `quantize_dynamic` (later run)",
    ),
    "OpenVINO, bf16": (ENGINES, "OpenVINO 2026.4.1, default (bf16)"),
    "PyTorch, bf16": (ENGINES, "transformers 5.23 on torch 2.13, bf16 (later run)"),
}
CELLS = {
    SERVERS: ("BERT-base, 32 clients", "Over gRPC: ours over it"),
    ENGINES: ("our int8 over it, real lengths", ""),
}
OVERVIEW_INCHES, OVERVIEW_DPI = (9.0, 2.6), 100  # 900 pixels: about what a page shows
OURS = "Attendant, int8"
OUR_COLOUR, PEER_COLOUR = "tab:orange", "tab:blue"


def times_as_fast(results: Mapping[str, Result]) -> dict[str, float]:
    """Our speed over that of each peer of README, the median of rounds."""
    return {peer: _figure(results[name], row).median for peer, (name, row) in PEERS.items()}


def _figure(result: Result, row: str) -> Figure:
    place = (row, *CELLS[result.name])
    (found,) = (each for each in result.figures if (each.row, each.column, each.table) == place)
    return found


def draw_overview(results: Mapping[str, Result], path: Path) -> None:
    """One axis: texts per second of mixed lengths, Attendant's being 100."""
    speeds = {peer: 100 / ratio for peer, ratio in times_as_fast(results).items()}
    speeds = dict(sorted({OURS: 100.0, **speeds}.items(), key=lambda bar: bar[1]))
    figure, ax = plt.subplots(figsize=OVERVIEW_INCHES, dpi=OVERVIEW_DPI)
    colours = [OUR_COLOUR if program == OURS else PEER_COLOUR for program in speeds]
    drawn = ax.barh(list(speeds), list(speeds.values()), color=colours)
    ax.bar_label(drawn, [f"{speed:.0f}" for speed in speeds.values()], padding=3, fontsize="small")
    ax.tick_params(axis="y", labelsize="small", length=0)
    ax.margins(x=0.1)
    ax.xaxis.set_visible(False)
    ax.spines[["top", "right", "bottom", "left"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
