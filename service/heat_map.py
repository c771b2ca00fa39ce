"""Attention as people see it: a heat map in the terminal, or a PNG, which needs matplotlib.

Both draw the mean of all matrices of an answer, darkest where its largest weight is. The picture is
drawn without pyplot, whose global figures would need a display and a clean-up.
"""

from collections.abc import Sequence
from io import BytesIO

import numpy as np
from attendant.v1 import features_pb2 as pb
from attendant.v1 import text_pb2
from rich.console import Group
from rich.text import Text

from service.errors import SettingError

SHADES = " ░▒▓█"
COLOURS = ("", "blue", "cyan", "yellow", "red")  # of the shades, where there is colour
MAX_PIECE = 16  # characters of a token beside its row
MAX_INCHES = 24.0  # of a picture's side


def mean_weights(response: pb.AttendResponse) -> np.ndarray:
    """[queries, keys], the mean of the matrices; each row's sum is 1."""
    shape = len(response.queries), len(response.keys)
    matrices = [np.array(matrix.weights, np.float32) for matrix in response.matrices]
    mean: np.ndarray = np.mean(matrices, axis=0).reshape(shape)
    return mean


def heat_map(response: pb.AttendResponse) -> Group:
    """Rows are tokens that look, columns those that are looked at, by number."""
    weights = mean_weights(response)
    largest = float(weights.max())
    pieces = _pieces(response.queries)
    width = max(map(len, pieces))
    lines = [
        Text(" " * width + " ").append("".join(f"{i % 100:2d}" for i in range(len(weights.T))))
    ]
    for piece, row in zip(pieces, weights, strict=True):
        line = _line(f"{piece:>{width}} ")
        for weight in row:
            level = round(weight / largest * (len(SHADES) - 1))
            line.append(SHADES[level] * 2, COLOURS[level])
        lines.append(line)
    keys = "  ".join(f"{i} {piece}" for i, piece in enumerate(_pieces(response.keys)))
    note = f"{SHADES[-1]} is {largest:.3f}; {of_what(response)}; {response.model} version "
    return Group(*lines, Text(f"columns: {keys}"), Text(f"{note}{response.version}", "dim"))


def _line(text: str) -> Text:
    """One that ends at the terminal's edge."""
    return Text(text, no_wrap=True, overflow="crop")


def picture(response: pb.AttendResponse) -> bytes:
    """The same as PNG."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise SettingError("--plot needs matplotlib: pip install 'attendant[train]'") from error
    weights = mean_weights(response)
    height, width = (min(MAX_INCHES, 1.6 + 0.26 * tokens) for tokens in weights.shape)
    figure = Figure(figsize=(width + 0.8, height), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(weights, cmap="Blues", vmin=0.0)
    figure.colorbar(image, ax=axes)
    keys, queries = (
        [piece.replace("$", r"\$") for piece in _pieces(side)]
        for side in (response.keys, response.queries)
    )
    axes.set_xticks(range(len(keys)), keys, rotation=90)
    axes.set_yticks(range(len(queries)), queries)
    axes.set_title(of_what(response), fontsize=9)
    content = BytesIO()
    figure.savefig(content, format="png", dpi=90)
    return content.getvalue()


def of_what(response: pb.AttendResponse) -> str:
    matrices = response.matrices
    if len(matrices) == 1:
        return f"layer {matrices[0].layer}, head {matrices[0].head}"
    layers, heads = {matrix.layer for matrix in matrices}, {matrix.head for matrix in matrices}
    return f"mean of {_named('layer', layers)} and {_named('head', heads)}"


def _named(noun: str, indices: set[int]) -> str:
    if len(indices) == 1:
        return f"{noun} {min(indices)}"
    return f"{len(indices)} {noun}s"


def _pieces(tokens: Sequence[text_pb2.Token]) -> list[str]:
    """As the tokenizer spells them, its mark for a blank as a blank."""
    pieces = [token.piece.replace("Ġ", " ").replace("▁", " ") for token in tokens]
    return [piece if len(piece) <= MAX_PIECE else f"{piece[: MAX_PIECE - 1]}…" for piece in pieces]
