"""The bars of a comparison: a picture of all charts, and the one of README.

    python -m loadtests.compare overview     draws docs/pictures/overview.png

README's picture is drawn from the result files in `loadtests/results`, so that it has the ratios
of the benchmarks' pages, on a machine where nothing was measured too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
DPI = 80
ROW_INCHES, WIDTH_INCHES = 0.28, 9.0
OVERVIEW_INCHES, OVERVIEW_DPI = (9.0, 2.6), 100  # 900 pixels: about what a page shows
OURS, PEER = "tab:orange", "tab:blue"


@dataclass(frozen=True, slots=True)
class Bar:
    """One program: its rows or tokens per second."""

    program: str
    speed: float
    is_ours: bool


@dataclass(frozen=True, slots=True)
class Chart:
    """All programs under one kind of traffic, slowest first."""

    traffic: str
    what: str
    unit: str
    bars: tuple[Bar, ...]


def draw(charts: Sequence[Chart], path: Path) -> None:
    """All charts in one column."""
    heights = [len(chart.bars) + 2 for chart in charts]
    figure, axes = plt.subplots(
        len(charts),
        1,
        figsize=(WIDTH_INCHES, ROW_INCHES * sum(heights)),
        height_ratios=heights,
        squeeze=False,
        dpi=DPI,
    )
    for chart, ax in zip(charts, axes[:, 0], strict=True):
        _draw_bars(ax, chart, f"{chart.traffic}: {chart.what}, {chart.unit}")
    _save(figure, path)


def times_as_fast(results: Mapping[str, Result]) -> dict[str, float]:
    """Our speed over that of each peer of README, the median of rounds."""
    return {peer: _figure(results[name], row).median for peer, (name, row) in PEERS.items()}


def _figure(result: Result, row: str) -> Figure:
    place = (row, *CELLS[result.name])
    (found,) = (each for each in result.figures if (each.row, each.column, each.table) == place)
    return found


def draw_overview(results: Mapping[str, Result], path: Path) -> None:
    """One axis: texts per second of mixed lengths, Attendant's being 100."""
    ratios = times_as_fast(results)
    bars = [Bar("Attendant, int8", 100, is_ours=True)]
    bars += [Bar(peer, 100 / ratio, is_ours=False) for peer, ratio in ratios.items()]
    bars.sort(key=lambda bar: bar.speed)
    figure, ax = plt.subplots(figsize=OVERVIEW_INCHES, dpi=OVERVIEW_DPI)
    _draw_bars(ax, Chart("", "", "", tuple(bars)), "")
    ax.xaxis.set_visible(False)
    ax.spines[["top", "right", "bottom", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    _save(figure, path)


def _draw_bars(ax: Any, chart: Chart, title: str) -> None:
    speeds = [bar.speed for bar in chart.bars]
    colours = [OURS if bar.is_ours else PEER for bar in chart.bars]
    drawn = ax.barh([bar.program for bar in chart.bars], speeds, color=colours)
    ax.bar_label(drawn, [f"{speed:.0f}" for speed in speeds], padding=3, fontsize="small")
    ax.set_title(title, fontsize="medium", loc="right")
    ax.tick_params(axis="y", labelsize="small")
    ax.margins(x=0.1)


def _save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
