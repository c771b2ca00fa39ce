"""Pictures of a run: encoders and decoders beside others, and how far outputs are from PyTorch's.

Drawn from the records that sections leave, so that a picture can be drawn again. matplotlib is not
needed for a check: without it there are no pictures, and the report says so. docs/cuda.md says what
was verified on CUDA.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from loadtests.gpu.context import Run
from loadtests.gpu.figures import LIMITS
from loadtests.gpu.shapes import TITLES

OURS, OTHERS = "tab:orange", "tab:blue"
# Lines of our ways, and of others.
LINES = ("tab:orange", "tab:red", "goldenrod"), ("tab:blue", "tab:gray", "tab:cyan")
# Of each arithmetic, with a marker: some lie upon each other.
MARKS = {
    "fp32": ("tab:green", "o"),
    "tf32": ("tab:olive", "s"),
    "fp16": ("tab:orange", "^"),
    "bf16": ("tab:purple", "D"),
}
DPI = 100
ROW_INCHES, WIDTH_INCHES, PANEL_INCHES = 0.3, 9.0, 3.4
LEAST_SHOWN = 1e-8  # of a logarithmic axis, for outputs that are equal

Record = Mapping[str, Any]
Pictures = list[tuple[str, Path]]


def draw_all(run: Run, records: Mapping[int, Record]) -> tuple[Pictures, str]:
    """The pictures that there are figures for, each with a title; and why there are none."""
    try:
        import matplotlib as mpl
    except ImportError:
        return [], "matplotlib is not installed, so there are no pictures."
    mpl.use("Agg")
    pictures: Pictures = []
    for number, key, name, title, draw in PICTURES:
        rows = records[number]["findings"].get(key, []) if number in records else []
        if rows:
            path = run.out / name
            draw(rows, path)
            pictures.append((title, path))
    return pictures, ""


def draw_encoders(rows: Sequence[Record], path: Path) -> None:
    """A panel for each load: rows per second of each way, with its share of the matrix rate."""
    panels = list(dict.fromkeys((row["shape"], row["load"]) for row in rows))
    by_panel = [[row for row in rows if (row["shape"], row["load"]) == each] for each in panels]
    figure, axes = _column(by_panel)
    for (shape, load), some, axis in zip(panels, by_panel, axes, strict=True):
        labels = [f"{row['share_of_matrix_rate']:.0%} of the matrix rate" for row in some]
        _bars(axis, some, "rows_per_s", labels)
        axis.set_title(f"{TITLES[shape]}, {load}: rows/s", fontsize="medium")
    _save(figure, path)


def draw_decoders(rows: Sequence[Record], path: Path) -> None:
    """A panel for each shape: tokens per second over the rows in flight, one line for each way."""
    shapes = list(dict.fromkeys(row["shape"] for row in rows))
    figure, axes = _row(len(shapes))
    for shape, axis in zip(shapes, axes, strict=True):
        own = [row for row in rows if row["shape"] == shape]
        ours, others = map(iter, LINES)
        for way in dict.fromkeys(row["way"] for row in own):
            points = sorted((r for r in own if r["way"] == way), key=lambda row: row["in_flight"])
            _line(axis, points, way, next(ours if way.startswith("ours") else others))
            for row in points:
                if "share_of_bandwidth" in row:
                    _note(axis, row)
        ticks = sorted({row["in_flight"] for row in own})
        axis.set_xscale("log", base=2)
        axis.set_xticks(ticks, [str(tick) for tick in ticks])
        axis.set_yscale("log")
        for of_axis in (axis.yaxis.set_major_formatter, axis.yaxis.set_minor_formatter):
            of_axis(lambda value, _: f"{value:,.0f}" if _is_shown(value) else "")
        axis.margins(0.15)
        axis.set_xlabel("rows in flight")
        axis.set_ylabel("tokens/s")
        axis.set_title(f"{TITLES[shape]}\n(%: of the memory bandwidth)", fontsize="medium")
        axis.grid(alpha=0.3)
        axis.legend(fontsize="small")
    _save(figure, path)


def draw_parity(rows: Sequence[Record], path: Path) -> None:
    """The largest difference of each kind in each arithmetic, and the limits as lines."""
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    figure, (axis,) = _column([kinds])
    for arithmetic, (colour, marker) in MARKS.items():
        own = [row for row in rows if row["arithmetic"] == arithmetic]
        if not own:
            continue
        # What is not a number is drawn at the right end.
        sizes = [1.0 if row["relative"] is None else row["relative"] for row in own]
        axis.scatter(
            [max(size, LEAST_SHOWN) for size in sizes],
            [kinds.index(row["kind"]) for row in own],
            color=colour,
            marker=marker,
            alpha=0.7,
            label=arithmetic,
        )
        limit = LIMITS[arithmetic].relative
        axis.axvline(limit, color=colour, linestyle="--", linewidth=1)
    axis.set_xscale("log")
    axis.set_yticks(range(len(kinds)), kinds, fontsize="small")
    axis.invert_yaxis()
    axis.set_xlabel("largest difference, over the size of the outputs (dashed: the limits)")
    axis.set_title("Outputs beside PyTorch's in float32", fontsize="medium")
    axis.grid(alpha=0.3)
    axis.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.01, 1.0))
    _save(figure, path)


def draw_layouts(rows: Sequence[Record], path: Path) -> None:
    """A panel for each load: tokens per second over each layout of the cache."""
    panels = list(dict.fromkeys(row["load"] for row in rows))
    by_panel = [
        [{**row, "way": row["layout"]} for row in rows if row["load"] == load] for load in panels
    ]
    figure, axes = _column(by_panel)
    for load, some, axis in zip(panels, by_panel, axes, strict=True):
        labels = [f"{row['mean_running']:.1f} run at once" for row in some]
        _bars(axis, some, "tokens_per_s", labels)
        axis.set_title(f"{load}: tokens/s", fontsize="medium")
    _save(figure, path)


def _bars(axis: Any, rows: Sequence[Record], key: str, labels: Sequence[str]) -> None:
    """Horizontal bars with their quartiles; ours have a colour of their own."""
    values = [row[key]["median"] for row in rows]
    errors = [
        [row[key]["median"] - row[key]["low"] for row in rows],
        [row[key]["high"] - row[key]["median"] for row in rows],
    ]
    colours = [OTHERS if row["way"].startswith(("torch", "transf")) else OURS for row in rows]
    drawn = axis.barh(
        [row["way"] for row in rows],
        values,
        xerr=errors,
        color=colours,
        error_kw={"elinewidth": 1, "ecolor": "0.3"},
    )
    texts = [f"{value:,.0f}   {label}" for value, label in zip(values, labels, strict=True)]
    axis.bar_label(drawn, texts, padding=6, fontsize="small")
    axis.invert_yaxis()
    axis.margins(x=0.45)
    axis.tick_params(axis="y", labelsize="small")
    axis.spines[["top", "right"]].set_visible(False)


def _line(axis: Any, points: Sequence[Record], way: str, colour: str) -> None:
    speeds = [row["tokens_per_s"] for row in points]
    axis.errorbar(
        [row["in_flight"] for row in points],
        [speed["median"] for speed in speeds],
        yerr=[
            [speed["median"] - speed["low"] for speed in speeds],
            [speed["high"] - speed["median"] for speed in speeds],
        ],
        marker="o",
        capsize=3,
        label=way,
        color=colour,
    )


def _is_shown(value: float) -> bool:
    """Whether a tick of a logarithmic axis has a label: 1, 2 and 5, and their tens."""
    return f"{value:.0e}"[0] in "125"


def _note(axis: Any, row: Record) -> None:
    axis.annotate(
        f"{row['share_of_bandwidth']:.0%}",
        (row["in_flight"], row["tokens_per_s"]["median"]),
        xytext=(-6, 5),
        textcoords="offset points",
        fontsize="small",
        ha="right",
    )


def _column(panels: Sequence[Sequence[object]]) -> tuple[Any, Any]:
    """Panels below each other, each as high as its rows need."""
    import matplotlib.pyplot as plt

    heights = [len(panel) + 2 for panel in panels]
    figure, axes = plt.subplots(
        len(panels),
        1,
        figsize=(WIDTH_INCHES, ROW_INCHES * sum(heights) + 0.4),
        height_ratios=heights,
        squeeze=False,
        dpi=DPI,
    )
    return figure, axes[:, 0]


def _row(count: int) -> tuple[Any, Any]:
    """Panels beside each other."""
    import matplotlib.pyplot as plt

    size = (max(1, count) * 1.4 * PANEL_INCHES, 1.3 * PANEL_INCHES)
    figure, axes = plt.subplots(1, count, figsize=size, squeeze=False, dpi=DPI)
    return figure, axes[0]


def _save(figure: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


Draw = Callable[[Sequence[Record], Path], None]
# By section: the key of the rows in its findings, the file, its title, and how it is drawn.
PICTURES: tuple[tuple[int, str, str, str, Draw], ...] = (
    (6, "encoders", "encoders.png", "Encoders beside PyTorch", draw_encoders),
    (6, "decoders", "decoders.png", "Decoders beside transformers", draw_decoders),
    (8, "rows", "layouts.png", "The paged cache beside slots", draw_layouts),
    (2, "figures", "parity.png", "Outputs beside PyTorch's in float32", draw_parity),
)
