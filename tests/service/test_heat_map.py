"""Attention as a heat map: which shade where, and of what."""

from attendant.v1 import features_pb2 as pb
from attendant.v1 import text_pb2
from rich.console import Console

from service.heat_map import heat_map, mean_weights, of_what, picture

FIRST, SECOND = [1.0, 0.0, 0.25, 0.75], [0.0, 1.0, 0.25, 0.75]


def response(*matrices: tuple[int, int, list[float]]) -> pb.AttendResponse:
    tokens = [text_pb2.Token(piece=piece) for piece in ("[CLS]", "Ġ$cat$[b]")]
    return pb.AttendResponse(
        model="m",
        version="1",
        queries=tokens,
        keys=tokens,
        matrices=[pb.AttentionMatrix(layer=i, head=j, weights=w) for i, j, w in matrices],
    )


def test_several_matrices_are_shown_as_their_mean() -> None:
    found = mean_weights(response((0, 0, FIRST), (1, 0, SECOND)))
    assert found.tolist() == [[0.5, 0.5], [0.25, 0.75]]


def test_the_largest_weight_is_the_darkest_and_tokens_stand_beside_their_rows() -> None:
    """Of 1, 0, 0.25 and 0.75; what a token spells is no markup."""
    console = Console(width=80, no_color=True)
    with console.capture() as captured:
        console.print(heat_map(response((2, 3, FIRST))))
    lines = captured.get().splitlines()
    assert lines[0].split() == ["0", "1"]
    assert lines[1].rstrip() == "    [CLS] ██"
    assert lines[2].rstrip() == " $cat$[b] ░░▓▓"
    assert "█ is 1.000; layer 2, head 3; m version 1" in lines[-1]


def test_it_says_what_it_is_the_mean_of() -> None:
    assert of_what(response((0, 0, FIRST), (0, 1, FIRST))) == "mean of layer 0 and 2 heads"
    assert of_what(response((0, 0, FIRST), (1, 0, FIRST))) == "mean of 2 layers and head 0"


def test_a_picture_is_a_png_whatever_tokens_spell() -> None:
    assert picture(response((0, 0, FIRST))).startswith(b"\x89PNG")
