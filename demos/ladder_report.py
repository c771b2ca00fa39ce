"""The ladder as a table, a picture and JSON. Knows nothing about training or servers."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from matplotlib.figure import Figure
from rich.table import Table

from commands.train.reports import Described, png_of
from models.data.datasets import Dataset, Splits

PANELS = {  # what is drawn of a result, and how it is written
    "accuracy": ("accuracy", "{:.1%}"),
    "training_cpu_s": ("training, CPU s", "{:.0f}"),
    "requests_per_s": ("requests/s", "{:.0f}"),
}
SIZE_INCHES = (10.0, 2.8)
DPI = 100


@dataclass(frozen=True, slots=True)
class Result:
    """One recipe, measured: a row of the table."""

    name: str
    what: str
    accuracy: float  # on the test texts
    macro_f1: float
    training_s: float  # with pretraining on the texts, without that of a given checkpoint
    training_cpu_s: float  # of all threads
    num_weights: int
    megabytes: float  # of the float32 graph that is served
    requests_per_s: float = 0.0  # of one text each


def title_of(splits: Splits[Dataset]) -> str:
    assert splits.test is not None
    return (
        f"{splits.train.name}: {len(splits.train)} texts to train on, {len(splits.test)} to test on"
    )


def ladder_table(results: Sequence[Result], splits: Splits[Dataset]) -> Table:
    caption = "graphs in float32; train s: wall-clock seconds of training, CPU s: CPU seconds"
    table = Table("", title=title_of(splits), caption=caption, box=None, pad_edge=False)
    for heading in ("accuracy", "train s", "CPU s", "weights", "MB", "requests/s"):
        table.add_column(heading, justify="right")
    for result in results:
        table.add_row(
            result.what,
            f"{result.accuracy:.2%}",
            f"{result.training_s:.0f}",
            f"{result.training_cpu_s:.0f}",
            f"{result.num_weights / 1e6:.1f} M",
            f"{result.megabytes:.1f}",
            f"{result.requests_per_s:.0f}",
        )
    return table


def ladder_json(results: Sequence[Result], splits: Splits[Dataset], settings: Described) -> bytes:
    values = {
        "task": title_of(splits),
        "settings": settings.to_dict(),
        "rungs": [asdict(result) for result in results],
    }
    return (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()


def ladder_picture(results: Sequence[Result], splits: Splits[Dataset]) -> bytes:
    """A panel for each of accuracy, training and speed, a bar for each result."""
    figure = Figure(figsize=SIZE_INCHES, dpi=DPI, layout="constrained")
    figure.suptitle(title_of(splits), fontsize="medium")
    names = [result.what for result in results]
    panels = figure.subplots(1, len(PANELS), sharey=True)
    for panel, (key, (heading, written)) in zip(panels, PANELS.items(), strict=True):
        values = [getattr(result, key) for result in results]
        bars = panel.barh(names, values, color="tab:blue")
        panel.bar_label(bars, [written.format(value) for value in values], padding=3)
        panel.set_title(heading, fontsize="medium")
        panel.margins(x=0.35)
    panels[0].invert_yaxis()  # the first on top
    return png_of(figure)
