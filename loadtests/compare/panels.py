"""The bars of a comparison: figures as JSON, a picture of all panels, and one of a few ratios.

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
class Panel:
    """All programs under one kind of traffic, slowest first."""

    traffic: str
    what: str
    unit: str
    bars: tuple[Bar, ...]


def write(panels: Sequence[Panel], path: Path) -> None:
    """One panel per line, so that a change of figures shows in a diff."""
    lines = ",\n".join(json.dumps(asdict(panel)) for panel in panels)
    path.write_text(f"[\n{lines}\n]\n")


def read(path: Path) -> list[Panel]:
    """The panels that `write` wrote."""
    return [
        Panel(one["traffic"], one["what"], one["unit"], tuple(Bar(**bar) for bar in one["bars"]))
        for one in json.loads(path.read_text())
    ]


def draw(panels: Sequence[Panel], path: Path) -> None:
    """All panels in one column."""
    heights = [len(panel.bars) + 2 for panel in panels]
    figure, axes = plt.subplots(
        len(panels),
        1,
        figsize=(WIDTH_INCHES, ROW_INCHES * sum(heights)),
        height_ratios=heights,
        squeeze=False,
        dpi=DPI,
    )
    for panel, ax in zip(panels, axes[:, 0], strict=True):
        _draw_bars(ax, panel, f"{panel.traffic}: {panel.what}, {panel.unit}")
    _save(figure, path)


def times_as_fast(panels: Sequence[Panel]) -> dict[str, float]:
    """Our speed over that of each peer of the overview, in its own kind of traffic."""
    speeds = {panel.traffic: {bar.program: bar.speed for bar in panel.bars} for panel in panels}
    return {
        peer: speeds[traffic][OURS_IN[traffic]] / speeds[traffic][program]
        for peer, (traffic, program) in PEERS.items()
    }


def draw_overview(panels: Sequence[Panel], path: Path) -> None:
    """One axis: texts per second of mixed lengths, Attendant's being 100."""
    ratios = times_as_fast(panels)
    bars = [Bar("Attendant, int8", 100, is_ours=True)]
    bars += [Bar(peer, 100 / ratio, is_ours=False) for peer, ratio in ratios.items()]
    bars.sort(key=lambda bar: bar.speed)
    figure, ax = plt.subplots(figsize=OVERVIEW_INCHES, dpi=OVERVIEW_DPI)
    _draw_bars(ax, Panel("", "", "", tuple(bars)), "")
    ax.xaxis.set_visible(False)
    ax.spines[["top", "right", "bottom", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    _save(figure, path)


def _draw_bars(ax: Any, panel: Panel, title: str) -> None:
    speeds = [bar.speed for bar in panel.bars]
    colours = [OURS if bar.is_ours else PEER for bar in panel.bars]
    drawn = ax.barh([bar.program for bar in panel.bars], speeds, color=colours)
    ax.bar_label(drawn, [f"{speed:.0f}" for speed in speeds], padding=3, fontsize="small")
    ax.set_title(title, fontsize="medium", loc="right")
    ax.tick_params(axis="y", labelsize="small")
    ax.margins(x=0.1)


def _save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
