"""Attention as a heat map in the terminal, or as a PNG, which needs matplotlib.

Both draw the mean of all matrices of an answer. The picture is drawn without pyplot, whose global
figures would need a display and a clean-up.
"""

from collections.abc import Sequence

import numpy as np
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from commands.ask.options import plotted
from service.calls.answers import AttentionMatrix, Token
from service.calls.features import Attention
from service.errors import SettingError

SHADES = " ░▒▓█"
COLOURS = ("", "blue", "cyan", "yellow", "red")  # of the shades, where there is colour
MAX_PIECE, MIN_PIECE = 16, 8  # characters of a token beside its row
CELLS = (3, 2, 1)  # characters of a column with the gap behind it, the widest that fits
TICKS = {3: 1, 2: 5, 1: 10}  # columns between two numbers, so that their digits stay apart
GROUP = 10  # columns without gaps of their own, between which there is one
PICTURE_INCHES = (5.0, 22.0)  # of a picture's side, at least and at most
SMALLEST_WEIGHT = 1e-12  # of a row that looks nowhere
INCHES_PER_TOKEN = 0.2  # room for letters of 9 points


def without_special(response: Attention) -> Attention:
    """Attention between tokens that stand in the text; `SettingError` where there are none."""
    queries, keys = (
        [i for i, token in enumerate(side) if token.end > token.start]
        for side in (response.queries, response.keys)
    )
    if not queries or not keys:
        raise SettingError("--hide-special is set, but the text has special tokens only")
    shape = len(response.queries), len(response.keys)
    matrices = [
        AttentionMatrix(
            matrix.layer,
            matrix.head,
            np.asarray(matrix.weights).reshape(shape)[np.ix_(queries, keys)].ravel(),
        )
        for matrix in response.matrices
    ]
    return response.also(
        queries=[response.queries[i] for i in queries],
        keys=[response.keys[i] for i in keys],
        matrices=matrices,
    )


def mean_weights(response: Attention) -> np.ndarray:
    """[queries, keys], the mean of the matrices; each row's sum is 1."""
    shape = len(response.queries), len(response.keys)
    matrices = [np.asarray(matrix.weights) for matrix in response.matrices]
    mean: np.ndarray = np.mean(matrices, axis=0).reshape(shape)
    return mean


class HeatMap:
    """Rows are tokens that look, columns those that are looked at, by number.

    A row is darkest where its own largest weight is. Columns that do not fit beside each other
    follow in another block.
    """

    def __init__(self, response: Attention) -> None:
        self._response = response
        self._weights = mean_weights(response)
        self._queries, self._keys = _pieces(response.queries), _pieces(response.keys)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        num_rows, num_keys = self._weights.shape
        digits = len(str(num_rows - 1))
        longest = max(map(cell_len, self._queries))
        least = digits + 1 + min(MIN_PIECE, longest) + 1
        cell = next((c for c in CELLS if least + _width(num_keys, c) <= options.max_width), 1)
        room = max(options.max_width - least, _width(GROUP, 1))
        num_beside = num_keys if _width(num_keys, cell) <= room else room // (GROUP + 1) * GROUP
        spare = options.max_width - digits - 2 - _width(num_beside, cell)
        piece_width = max(min(MIN_PIECE, longest), min(longest, spare))
        for first in range(0, num_keys, num_beside):
            last = min(first + num_beside, num_keys)
            yield _line(" " * (digits + piece_width + 2) + _ruler(first, last, cell))
            for number, (piece, row) in enumerate(zip(self._queries, self._weights, strict=True)):
                cut = set_cell_size(piece, min(cell_len(piece), piece_width))
                label = f"{number:>{digits}} {' ' * (piece_width - cell_len(cut))}{cut} "
                yield _shaded(_line(label), row, first, last, cell)
            yield Text("")
        if self._keys != self._queries:
            yield Text("columns: " + "  ".join(f"{i} {key}" for i, key in enumerate(self._keys)))
        response = self._response
        note = f"{SHADES[-1]} is a row's largest weight, up to {self._weights.max():.3f}; "
        note += f"{of_what(response)}; {response.model} version {response.version}"
        yield Text(note, "dim")


def _place(column: int, cell: int) -> int:
    """The offset of a column's start."""
    return column * cell if cell > 1 else column + column // GROUP


def _width(num_columns: int, cell: int) -> int:
    """The width of adjacent columns in characters."""
    return _place(num_columns - 1, cell) + cell


def _ruler(first: int, last: int, cell: int) -> str:
    """The numbers of columns, each above its column's first character."""
    line = ""
    for column in range(first, last, TICKS[cell]):
        line = line.ljust(_place(column - first, cell)) + str(column)
    return line


def _shaded(line: Text, row: np.ndarray, first: int, last: int, cell: int) -> Text:
    """Some columns of a row, as shades of its own largest weight."""
    largest = max(float(row.max()), SMALLEST_WEIGHT)
    begins = len(line)
    for column in range(first, last):
        level = round(float(row[column]) / largest * (len(SHADES) - 1))
        line.pad_right(begins + _place(column - first, cell) - len(line))
        line.append(SHADES[level] * max(cell - 1, 1), COLOURS[level])
    return line


def _line(text: str) -> Text:
    """One that ends at the terminal's edge."""
    return Text(text, no_wrap=True, overflow="crop")


def picture(response: Attention) -> bytes:
    """Heat map as PNG, of absolute weights."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise SettingError("--plot needs matplotlib: pip install 'attendant[train]'") from error
    weights = mean_weights(response)
    least, most = PICTURE_INCHES
    height, width = (
        min(most, max(least, 1.6 + INCHES_PER_TOKEN * tokens)) for tokens in weights.shape
    )
    figure = Figure(figsize=(width + 0.8, height), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(weights, cmap="Blues", vmin=0.0)
    figure.colorbar(image, ax=axes, label="weight", shrink=0.7)
    keys, queries = (
        [piece.replace("$", r"\$") for piece in _pieces(side)]
        for side in (response.keys, response.queries)
    )
    axes.set_xticks(range(len(keys)), keys, rotation=90, fontsize=9)
    axes.set_yticks(range(len(queries)), queries, fontsize=9)
    axes.set_xlabel("token that is looked at (key)")
    axes.set_ylabel("token that looks (query)")
    axes.set_title(f"{response.model}, {of_what(response)}".replace("$", r"\$"), fontsize=11)
    return plotted(figure, dpi=120)


def of_what(response: Attention) -> str:
    matrices = response.matrices
    if len(matrices) == 1:
        return f"layer {matrices[0].layer}, head {matrices[0].head}"
    layers, heads = {matrix.layer for matrix in matrices}, {matrix.head for matrix in matrices}
    return f"mean of {_named('layer', layers)} and {_named('head', heads)}"


def _named(noun: str, indices: set[int]) -> str:
    if len(indices) == 1:
        return f"{noun} {min(indices)}"
    return f"{len(indices)} {noun}s"


def _pieces(tokens: Sequence[Token]) -> list[str]:
    """Tokens as the tokenizer spells them, with its mark for a blank as a blank."""
    pieces = [token.piece.replace("Ġ", " ").replace("▁", " ") for token in tokens]
    return [piece if len(piece) <= MAX_PIECE else f"{piece[: MAX_PIECE - 1]}…" for piece in pieces]
