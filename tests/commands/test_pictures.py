"""Letters of other scripts in pictures: drawn where a font has them, and said where none has."""

import warnings
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from fontTools.fontBuilder import FontBuilder  # type: ignore[import-untyped]
from fontTools.pens.ttGlyphPen import TTGlyphPen  # type: ignore[import-untyped]
from matplotlib import font_manager, image
from matplotlib.figure import Figure

from commands.ask.options import plotted
from commands.pictures import MissingFontWarning, fonts_for, png_of

# Private use, which no installed font has: a machine of the tests may have a font for Chinese.
GLYPH, OTHER = "\ue6a1", "\ue6a2"


@pytest.fixture
def font(tmp_path: Path) -> Iterator[str]:
    """A font whose one character is a full square, installed while a test runs."""
    pen = TTGlyphPen(None)
    for move, point in zip(
        (pen.moveTo, *(pen.lineTo,) * 3), ((0, 0), (0, 900), (900, 900), (900, 0)), strict=True
    ):
        move(point)
    pen.closePath()
    square, nothing = pen.glyph(), TTGlyphPen(None).glyph()
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder([".notdef", "square"])
    builder.setupCharacterMap({ord(GLYPH): "square"})
    builder.setupGlyf({".notdef": nothing, "square": square})
    builder.setupHorizontalMetrics({".notdef": (1000, 0), "square": (1000, 0)})
    builder.setupHorizontalHeader(ascent=900, descent=-100)
    builder.setupNameTable({"familyName": "Square CJK", "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    path = tmp_path / "square.ttf"
    builder.save(path)
    known = list(font_manager.fontManager.ttflist)
    font_manager.fontManager.addfont(path)
    yield "Square CJK"
    font_manager.fontManager.ttflist[:] = known


def labelled(text: str) -> Figure:
    figure = Figure(figsize=(2.0, 2.0))
    axes = figure.subplots()
    axes.set_axis_off()
    axes.set_title(text, fontsize=40)
    return figure


def fill_of_what_is_drawn(content: bytes) -> float:
    """Share of dark pixels within the ends of what is drawn."""
    ink = image.imread(BytesIO(content))[..., :3].mean(axis=2) < 0.5
    rows, columns = (np.flatnonzero(ink.any(axis=side)) for side in (1, 0))
    return float(ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].mean())


def test_a_character_is_drawn_by_the_font_that_has_it(font: str) -> None:
    """A full square; a box in its place has holes."""
    assert fonts_for([f"prize {GLYPH}"]) == ([font], set())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = fill_of_what_is_drawn(png_of(labelled(GLYPH), 50))
    with pytest.warns(MissingFontWarning):
        box = fill_of_what_is_drawn(png_of(labelled(OTHER), 50))
    assert drawn > 0.95 > 0.9 > box


def test_a_character_that_no_font_has_is_told_with_a_package() -> None:
    assert fonts_for(["plain text"]) == ([], set())
    with pytest.warns(MissingFontWarning, match=f"boxes for {OTHER}, .* fonts-noto-cjk") as caught:
        png_of(labelled(OTHER), 50)
    assert len(caught) == 1, "and matplotlib's own warning is not shown beside"


def test_a_command_says_it_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    plotted(labelled(OTHER), 50)
    assert "warning: the picture shows boxes for" in capsys.readouterr().err
