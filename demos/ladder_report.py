"""The ladder as a table, a picture and JSON. Knows nothing about how the figures came about."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from rich.table import Table

from models.datasets import Dataset, Splits
from models.reports import Described, png_of

PANELS = {  # what is drawn of a rung, and how it is written
    "accuracy": ("accuracy", "{:.1%}"),
    "training_cpu_s": ("training, CPU s", "{:.0f}"),
    "requests_per_s": ("requests/s", "{:.0f}"),
}
SIZE_INCHES = (10.0, 2.8)
DPI = 100
Rows = Sequence[Mapping[str, Any]]


def title_of(splits: Splits[Dataset]) -> str:
    assert splits.test is not None
    return (
        f"{splits.train.name}: {len(splits.train)} texts to learn from, {len(splits.test)} to test"
    )


def ladder_table(rows: Rows, splits: Splits[Dataset]) -> Table:
    caption = "float32; training in seconds of a clock and of processors"
    table = Table("", title=title_of(splits), caption=caption, box=None, pad_edge=False)
    for heading in ("accuracy", "train s", "CPU s", "weights", "MB", "requests/s"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            row["what"],
            f"{row['accuracy']:.2%}",
            f"{row['training_s']:.0f}",
            f"{row['training_cpu_s']:.0f}",
            f"{row['num_weights'] / 1e6:.1f} M",
            f"{row['megabytes']:.1f}",
            f"{row['requests_per_s']:.0f}",
        )
    return table


def ladder_json(rows: Rows, splits: Splits[Dataset], settings: Described) -> bytes:
    values = {"task": title_of(splits), "settings": settings.to_dict(), "rungs": list(rows)}
    return (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()


def ladder_picture(rows: Rows, splits: Splits[Dataset]) -> bytes:
    """A panel for each of accuracy, training and speed, a bar for each rung."""
    figure = Figure(figsize=SIZE_INCHES, dpi=DPI, layout="constrained")
    figure.suptitle(title_of(splits), fontsize="medium")
    names = [row["what"] for row in rows]
    panels = figure.subplots(1, len(PANELS), sharey=True)
    for panel, (key, (heading, written)) in zip(panels, PANELS.items(), strict=True):
        values = [row[key] for row in rows]
        bars = panel.barh(names, values, color="tab:blue")
        panel.bar_label(bars, [written.format(value) for value in values], padding=3)
        panel.set_title(heading, fontsize="medium")
        panel.margins(x=0.25)
    panels[0].invert_yaxis()  # the first rung on top
    return png_of(figure)
