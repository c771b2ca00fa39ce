"""Two prompts in one picture: how likely each makes every word. Needs matplotlib, an extra.

Drawn without pyplot, whose global figures would need a display and a clean-up.
"""

from collections.abc import Sequence
from io import BytesIO

from service.errors import SettingError
from service.fills import Difference

NUM_NAMED = 24  # words that are written beside their point: those that differ most, either way


def scatter_plot(prompt: str, against: str, found: Sequence[Difference]) -> bytes:
    """PNG: below the diagonal are words that the first prompt makes likelier."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise SettingError("--plot needs matplotlib: pip install 'attendant[train]'") from error
    figure = Figure(figsize=(6.5, 6.0), layout="constrained")
    axes = figure.subplots()
    xs, ys = [word.logprob for word in found], [word.other_logprob for word in found]
    differences = [word.difference for word in found]
    most = max(map(abs, differences))
    axes.scatter(xs, ys, s=14, c=differences, cmap="coolwarm_r", vmin=-most, vmax=most)
    ends = min(xs + ys), max(xs + ys)
    axes.plot(ends, ends, ":", color="grey")
    for word in sorted(found, key=lambda word: -abs(word.difference))[:NUM_NAMED]:
        axes.annotate(
            word.token.replace("$", r"\$"),
            (word.logprob, word.other_logprob),
            xytext=(4, 3),
            textcoords="offset points",
            fontsize=8,
        )
    axes.set_xlabel(f"log-likelihood in: {prompt}", parse_math=False)
    axes.set_ylabel(f"log-likelihood in: {against}", parse_math=False)
    picture = BytesIO()
    figure.savefig(picture, format="png", dpi=110)
    return picture.getvalue()
