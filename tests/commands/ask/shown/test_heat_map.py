"""Attention as a heat map: which shade where, and of what."""

import numpy as np
import pytest
from rich.console import Console

from commands.ask.shown.heat_map import HeatMap, mean_weights, of_what, picture, without_special
from service.calls.answers import AttentionMatrix, Timings, Token
from service.calls.features import Attention
from service.errors import SettingError

FIRST, SECOND = [1.0, 0.0, 0.25, 0.75], [0.0, 1.0, 0.25, 0.75]


def attention(tokens: list[Token], *matrices: AttentionMatrix) -> Attention:
    return Attention(
        model="m",
        version="1",
        timings=Timings(),
        num_tokens=len(tokens),
        queries=tokens,
        keys=tokens,
        matrices=matrices,
    )


def response(*matrices: tuple[int, int, list[float]]) -> Attention:
    tokens = [Token(0, piece, 0, 0) for piece in ("[CLS]", "Ġ$cat$[b]")]
    made = (AttentionMatrix(i, j, np.array(w, np.float32)) for i, j, w in matrices)
    return attention(tokens, *made)


def test_several_matrices_are_shown_as_their_mean() -> None:
    found = mean_weights(response((0, 0, FIRST), (1, 0, SECOND)))
    assert found.tolist() == [[0.5, 0.5], [0.25, 0.75]]


def shown(response: Attention, width: int = 80) -> list[str]:
    console = Console(width=width, no_color=True)
    with console.capture() as captured:
        console.print(HeatMap(response))
    return captured.get().splitlines()


def test_a_rows_largest_weight_is_the_darkest_and_tokens_stand_beside_their_rows() -> None:
    """Of 1 and 0, of 0.25 and 0.75, whose quotients are 1/3 and 1; a token is no markup."""
    lines = shown(response((2, 3, FIRST)))
    assert lines[0].split() == ["0", "1"]
    assert lines[1].rstrip() == "0     [CLS] ██"
    assert lines[2].rstrip() == "1  $cat$[b] ░░ ██"
    assert "█ is a row's largest weight, up to 1.000; layer 2, head 3; m version 1" in lines[-1]


def long_response(num_tokens: int) -> Attention:
    """Each token looks at itself, and a tenth as much at the first, which is special."""
    weights = np.eye(num_tokens, dtype=np.float32)
    weights[:, 0] += 0.1
    tokens = [Token(0, "[CLS]", 0, 0)]
    tokens += [Token(0, f"token{index}", index, index + 1) for index in range(1, num_tokens)]
    return attention(tokens, AttentionMatrix(0, 0, weights.ravel()))


@pytest.mark.parametrize("width", [80, 100])
def test_sixty_tokens_fit_a_terminal_and_their_columns_are_told_apart(width: int) -> None:
    """A gap between each ten columns, whose first have their numbers above them."""
    lines = shown(long_response(60), width)
    assert max(map(len, lines)) <= width
    ruler, rows = lines[0], lines[1:61]
    assert ruler.split() == [str(number) for number in range(0, 60, 10)]
    for number in range(0, 60, 10):
        assert rows[number][ruler.index(f" {number}") + 1] == "█"
    for number, row in enumerate(rows):
        assert row.lstrip().startswith(f"{number} ")
        assert row.count("█") == 1
    gaps = [ruler.index(f" {number}") for number in range(10, 60, 10)]
    assert all(row[gap : gap + 1] in ("", " ") for row in rows for gap in gaps)


def test_more_columns_than_fit_follow_below() -> None:
    lines = shown(long_response(100))
    assert max(map(len, lines)) <= 80
    rulers = [line.split() for line in lines if line.split() and line.split()[0].isdigit()]
    numbers = [ruler for ruler in rulers if all(part.isdigit() for part in ruler)]
    assert [number for ruler in numbers for number in ruler] == [str(n) for n in range(0, 100, 10)]


def test_special_tokens_can_be_hidden() -> None:
    hidden = without_special(long_response(5))
    assert [token.piece for token in hidden.keys] == ["token1", "token2", "token3", "token4"]
    assert mean_weights(hidden).tolist() == np.eye(4).tolist()
    with pytest.raises(SettingError, match="special tokens only"):
        without_special(long_response(1))


def test_it_says_what_it_is_the_mean_of() -> None:
    assert of_what(response((0, 0, FIRST), (0, 1, FIRST))) == "mean of layer 0 and 2 heads"
    assert of_what(response((0, 0, FIRST), (1, 0, FIRST))) == "mean of 2 layers and head 0"


def test_a_picture_is_a_png_whatever_tokens_spell() -> None:
    """At least 4 inches high at 120 dots an inch, however few tokens there are."""
    content = picture(response((0, 0, FIRST)))
    assert content.startswith(b"\x89PNG")
    width, height = (int.from_bytes(content[i : i + 4]) for i in (16, 20))
    assert min(width, height) >= 480
