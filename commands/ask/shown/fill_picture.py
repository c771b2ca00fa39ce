"""Prompts in one picture: how likely each makes every word. Needs matplotlib, an extra.

Drawn without pyplot, whose global figures would need a display and a clean-up.
"""

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING

from commands.ask.options import plotted
from commands.ask.shown.comparison import ComparedWord, Crossing, crossing_of, short_names
from service.errors import SettingError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NUM_NAMED = 24  # words that are written beside their point: those that differ most, either way
LINE_CHARACTERS = 70  # of a caption, as wide as the picture


def picture(prompts: Sequence[str], found: Sequence[ComparedWord]) -> bytes:
    """PNG: two prompts, or two crossed with two, as a scatter plot; others as rows of words."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise SettingError("--plot needs matplotlib: pip install 'attendant[train]'") from error
    figure = Figure(figsize=(6.5, 6.5), layout="constrained")
    axes, crossing = figure.subplots(), crossing_of(prompts)
    if crossing:
        _draw_crossing(axes, prompts, crossing, found)
    elif len(prompts) == 2:
        _draw_scatter(axes, [(word.token, word.logprobs[0], word.logprobs[1]) for word in found])
        axes.set_xlabel(_wrapped(f"log-likelihood in: {prompts[0]}"), parse_math=False)
        axes.set_ylabel(_wrapped(f"log-likelihood in: {prompts[1]}"), parse_math=False)
    else:
        _draw_rows(axes, prompts, found[:NUM_NAMED])
    return plotted(figure, dpi=110)


def _draw_crossing(
    axes: "Axes", prompts: Sequence[str], crossing: Crossing, found: Sequence[ComparedWord]
) -> None:
    """On the diagonal are words whose difference the outer word does not change."""
    _draw_scatter(axes, [(word.token, *crossing.differences(word)) for word in found])
    axes.axhline(0.0, color="lightgrey", linewidth=0.8, zorder=0)
    axes.axvline(0.0, color="lightgrey", linewidth=0.8, zorder=0)
    one, other = crossing.inner
    for outer, label, first in (
        (crossing.outer[0], axes.set_xlabel, crossing.corners[0]),
        (crossing.outer[1], axes.set_ylabel, crossing.corners[2]),
    ):
        what = f"{outer}: log-likelihood with {one} minus that with {other}, in: {prompts[first]}"
        label(_wrapped(what), parse_math=False)


def _draw_scatter(axes: "Axes", points: Sequence[tuple[str, float, float]]) -> None:
    """A point for each word; below the diagonal x is larger."""
    xs, ys = [x for _, x, _ in points], [y for _, _, y in points]
    differences = [x - y for _, x, y in points]
    most = max(map(abs, differences))
    axes.scatter(xs, ys, s=14, c=differences, cmap="coolwarm_r", vmin=-most, vmax=most)
    ends = min(xs + ys), max(xs + ys)
    axes.plot(ends, ends, ":", color="grey")
    for word, x, y in sorted(points, key=lambda point: -abs(point[1] - point[2]))[:NUM_NAMED]:
        axes.annotate(
            word.replace("$", r"\$"), (x, y), xytext=(4, 3), textcoords="offset points", fontsize=8
        )


def _draw_rows(axes: "Axes", prompts: Sequence[str], found: Sequence[ComparedWord]) -> None:
    """A row for each word, a point in it for each prompt."""
    rows = range(len(found))
    axes.hlines(
        rows,
        [min(word.logprobs) for word in found],
        [max(word.logprobs) for word in found],
        color="lightgrey",
        zorder=0,
    )
    for place, (name, prompt) in enumerate(zip(short_names(prompts), prompts, strict=True)):
        label = _wrapped(f"{name}: {prompt}").replace("$", r"\$")
        axes.scatter([word.logprobs[place] for word in found], rows, s=24, label=label)
    axes.set_yticks(rows, [word.token.replace("$", r"\$") for word in found], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("log-likelihood")
    axes.figure.legend(loc="outside upper left", fontsize=8)


def _wrapped(caption: str) -> str:
    return fill(caption, LINE_CHARACTERS)
