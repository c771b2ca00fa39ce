"""`attendant embed` with prompts, widths and encodings."""

import base64
import json

import numpy as np
import pytest

from tests.fakes.command_line import run
from tests.fakes.serving import Served
from tests.fakes.sessions import text_values, token_ids

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_bits_are_bytes_in_base64_or_a_table_of_whole_numbers(served: Served) -> None:
    command = ("embed", "mini", "win", "lunch", "--prompt", "free ", "--encoding", "ubinary")
    expected = [np.packbits(text_values(token_ids(f"free {t}"), 4) > 0) for t in ("win", "lunch")]
    answer = json.loads((await run(served, *command, "--json")).stdout)
    found = [base64.b64decode(each["encoded"][0]["values"]) for each in answer["results"]]
    assert found == [each.tobytes() for each in expected]
    assert not any(each["values"] for each in answer["results"])
    shown = (await run(served, *command)).stdout
    assert f"{expected[0][0]} … (1 bytes)" in shown
    assert "ubinary" in shown


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (("--prompt-name", "query"), "prompt_name is 'query', but model 'mini' has no prompts"),
        (("--dimensions", "2"), "dimensions is 2, expected 4"),
        (("--encoding", "int8"), "encodings has int8, but the model's manifest has no ranges"),
    ],
)
@pytest.mark.parametrize("command", ["embed", "similarity"])
async def test_what_a_model_cannot_do_is_refused(
    served: Served, command: str, flags: tuple[str, ...], text: str
) -> None:
    if command == "similarity" and "--encoding" in flags:
        return
    result = await run(served, command, "mini", "win", *flags)
    assert result.exit_code == 1
    assert text in " ".join(result.stderr.split())
