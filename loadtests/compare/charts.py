"""The bars of a comparison: figures as JSON, a picture of all charts, and one of a few ratios.

    python -m loadtests.compare overview     draws docs/pictures/overview.png

`report` writes the figures beside its picture, so that the overview of the README can be drawn
again, from figures that are kept with the project, on a machine where nothing was measured.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

FIGURES = Path("docs/pictures/engines.json")
OVERVIEW = Path("docs/pictures/overview.png")
# The bars of the overview: the kinds of traffic, our program in each, and the peers beside it.
SERVERS, ENGINES = "bert-base-serve-real-32", "real"
OURS_IN = {SERVERS: "attendant int8, gRPC", ENGINES: "attendant int8"}
PEERS = {
    "MLServer, int8": (SERVERS, "MLServer int8 unbatched"),
    "Triton, int8": (SERVERS, "Triton int8 unbatched"),
    "LitServe, int8": (SERVERS, "LitServe int8 unbatched"),
    "ONNX Runtime, int8": (ENGINES, "onnxruntime int8"),
    "OpenVINO, bf16": (ENGINES, "openvino default"),
    "PyTorch, bf16": (ENGINES, "transformers bf16"),
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


def write(charts: Sequence[Chart], path: Path) -> None:
    """One chart per line, so that a change of figures shows in a diff."""
    lines = ",\n".join(json.dumps(asdict(chart)) for chart in charts)
    path.write_text(f"[\n{lines}\n]\n")


def read(path: Path) -> list[Chart]:
    """The charts that `write` wrote."""
    return [
        Chart(one["traffic"], one["what"], one["unit"], tuple(Bar(**bar) for bar in one["bars"]))
        for one in json.loads(path.read_text())
    ]


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


def times_as_fast(charts: Sequence[Chart]) -> dict[str, float]:
    """Our speed over that of each peer of the overview, in its own kind of traffic."""
    speeds = {chart.traffic: {bar.program: bar.speed for bar in chart.bars} for chart in charts}
    return {
        peer: speeds[traffic][OURS_IN[traffic]] / speeds[traffic][program]
        for peer, (traffic, program) in PEERS.items()
    }


def draw_overview(charts: Sequence[Chart], path: Path) -> None:
    """One axis: texts per second of mixed lengths, Attendant's being 100."""
    ratios = times_as_fast(charts)
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
