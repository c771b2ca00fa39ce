"""The bars of a comparison: figures as JSON, and pictures of all panels or of four.

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
# The kinds of traffic in the overview, each with a title that needs no further explanation.
OVERVIEW_TITLES = {
    "real": "Encoders in process\nBERT-base, mixed lengths",
    "mixed-8": "Decoders in process\nGPT-2, 8 requests in flight",
    "bert-base-serve-real-32": "Servers, 32 clients\nBERT-base, mixed lengths",
    "bert-base-serve-real-1": "Servers, 1 client\nBERT-base, mixed lengths",
}
DPI = 80
ROW_INCHES, WIDTH_INCHES = 0.28, 9.0
OVERVIEW_INCHES, OVERVIEW_DPI = (9.0, 4.8), 100  # 900 pixels: about what a page shows
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


def draw_overview(panels: Sequence[Panel], path: Path) -> None:
    """The four panels of `OVERVIEW_TITLES`, two in a row."""
    known = {panel.traffic: panel for panel in panels}
    sizes = [len(known[traffic].bars) for traffic in OVERVIEW_TITLES]
    rows = [max(sizes[:2]), max(sizes[2:])]
    figure, axes = plt.subplots(2, 2, figsize=OVERVIEW_INCHES, height_ratios=rows, dpi=OVERVIEW_DPI)
    for index, ((traffic, title), ax) in enumerate(
        zip(OVERVIEW_TITLES.items(), axes.flat, strict=True)
    ):
        panel, most = known[traffic], rows[index // 2]
        _draw_bars(ax, panel, f"{title}, {panel.unit}")
        ax.set_ylim(len(panel.bars) - most - 0.5, len(panel.bars) - 0.5)  # bars of one height
        ax.xaxis.set_visible(False)
        ax.spines[["top", "right", "bottom", "left"]].set_visible(False)
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
