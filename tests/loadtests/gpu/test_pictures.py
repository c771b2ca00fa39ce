"""Pictures of the GPU check, from records as a GPU's would be."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from loadtests.gpu.checkpoints import KINDS
from loadtests.gpu.context import Run
from loadtests.gpu.figures import LIMITS
from loadtests.gpu.pictures import PICTURES, draw_all
from loadtests.gpu.shapes import DECODERS, ENCODERS
from loadtests.gpu.speed_decoders import PAGED, RECORDED
from loadtests.gpu.speed_encoders import COMPILED, COMPILED_GRAPHS, EAGER
from loadtests.gpu.timing import Quartiles
from loadtests.gpu.transformers_peer import STATIC, STATIC_EAGER

WITHOUT_MATPLOTLIB = """
import sys
sys.modules["matplotlib"] = None
from pathlib import Path
from loadtests.gpu.context import Run
from loadtests.gpu.pictures import draw_all
print(draw_all(Run(Path("."), "cpu", is_tiny=True), {}))
"""


def around(median: float) -> dict[str, Any]:
    return Quartiles(median, 0.95 * median, 1.1 * median, 9).to_dict()


def made_up_records() -> dict[int, dict[str, Any]]:
    """Every row that a run on a GPU may have; the figures are made up."""
    ours = [f"ours, {each}" for each in ("fp16, packed", "fp16, padded", "bf16, packed")]
    encoders = [
        {
            "shape": shape,
            "load": load,
            "way": way,
            "rows_per_s": around(4_000 / (1 + place) / (1 + number)),
            "share_of_matrix_rate": 0.6 / (1 + number),
        }
        for place, shape in enumerate(ENCODERS)
        for load in ("8 x 128", "real lengths", "8 x 512")
        for number, way in enumerate((*ours, EAGER, COMPILED, COMPILED_GRAPHS))
    ]
    decoders = [
        {
            "shape": shape,
            "in_flight": in_flight,
            "way": way,
            "tokens_per_s": around(400.0 * in_flight**0.8 / (1 + place) / (1 + number)),
        }
        | ({"share_of_bandwidth": 0.7 / in_flight**0.2} if way in (PAGED, RECORDED) else {})
        for place, shape in enumerate(DECODERS)
        for in_flight in (1, 8, 32, 128)
        for number, way in enumerate((PAGED, RECORDED, STATIC, STATIC_EAGER))
    ]
    parity = [
        {"kind": kind, "arithmetic": arithmetic, "relative": limits.relative / 7}
        for kind in KINDS
        for arithmetic, limits in LIMITS.items()
    ]
    parity[0]["relative"] = None  # of outputs that are no numbers
    layouts = [
        {
            "load": load,
            "layout": layout,
            "tokens_per_s": around(4_000.0 + 1_000 * number),
            "mean_running": 8.0 + 10 * number,
        }
        for load in ("rows alike", "shared beginnings, memory for 8 slots")
        for number, layout in enumerate(("slots", "paged"))
    ]
    return {
        2: {"findings": {"figures": parity}},
        6: {"findings": {"encoders": encoders, "decoders": decoders}},
        8: {"findings": {"rows": layouts}},
    }


def test_every_picture_is_drawn_from_what_sections_left(tmp_path: Path) -> None:
    pictures, why = draw_all(Run(tmp_path, "cuda", is_tiny=False), made_up_records())
    assert [path.name for _, path in pictures] == [name for _, _, name, *_ in PICTURES]
    assert all(path.stat().st_size > 5_000 for _, path in pictures)
    assert not why


def test_a_section_that_was_not_run_has_no_picture(tmp_path: Path) -> None:
    records = made_up_records()
    del records[6]
    records[8]["findings"] = {}  # it failed
    pictures, _ = draw_all(Run(tmp_path, "cuda", is_tiny=False), records)
    assert [path.name for _, path in pictures] == ["parity.png"]


def test_without_matplotlib_there_is_a_sentence_in_place_of_pictures() -> None:
    done = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", WITHOUT_MATPLOTLIB], capture_output=True, text=True, check=True
    )
    assert done.stdout == "([], 'matplotlib is not installed, so there are no pictures.')\n"
