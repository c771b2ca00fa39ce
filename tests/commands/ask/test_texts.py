"""Commands that read lines, any number of them, as a user meets them."""

import asyncio
import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from commands.ask.in_flight import REQUEST_TEXTS
from commands.main import app
from service.contract.embedder_use import unit
from service.errors import InvalidArgument, SettingError
from tests.fakes.command_line import run
from tests.fakes.serving import Served, within_patience
from tests.fakes.sessions import text_values, token_ids

pytestmark = pytest.mark.asyncio(loop_scope="module")
MAX_TEXTS = 1_024  # of a request, by default
TOO_LONG = "win " * 99
NUM_LINES = 1_500
LINES = "".join(f"win {'now ' * (number % 5)}\n" for number in range(NUM_LINES))


@pytest.mark.parametrize(
    ("command", "field", "num_lines"),
    [
        (("classify", "spam"), "labels", NUM_LINES),
        (("embed", "mini"), "values", NUM_LINES),
        (("features", "deep"), "vectors", NUM_LINES),
        (("similarity", "mini"), "values", 200),  # with a value for every two
    ],
)
async def test_any_number_of_lines_is_answered_in_order(
    served: Served, command: tuple[str, ...], field: str, num_lines: int
) -> None:
    """1,500, where a request has at most 1,024; as objects, and as one document."""
    assert NUM_LINES > MAX_TEXTS
    texts = LINES.splitlines()[:num_lines]
    stdin = "\n".join(texts)
    result = await run(served, *command, "-", "--ndjson", stdin=stdin)
    assert result.exit_code == 0
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [each["line"] for each in found] == [*range(1, num_lines + 1)]
    assert [each["text"] for each in found] == texts
    assert all(each[field] for each in found)
    assert f"{num_lines:,} lines were answered" in result.stderr
    document = json.loads((await run(served, *command, "-", "--json", stdin=stdin)).stdout)
    results = document["rows" if command[0] == "similarity" else "results"]
    assert [each[field] for each in results] == [each[field] for each in found]
    assert (document["model"], document["version"]) == (command[1], "1")
    num_tokens = sum(len(token_ids(text)) for text in texts)
    assert document["num_tokens"] == num_tokens
    assert document["timings"]["total_seconds"] > 0


async def test_rows_of_a_growing_table_stand_below_each_other(served: Served) -> None:
    lines = (await run(served, "classify", "spam", "-", stdin=LINES)).stdout.splitlines()
    head, rows = lines[0], lines[2:]
    assert len(rows) == NUM_LINES
    place = head.index("label")
    assert {row[place - 1] for row in rows} == {" "}
    assert all(row[place] != " " for row in rows)


async def test_few_lines_are_one_table_as_arguments_are(served: Served) -> None:
    """With the cosines of each with each, which a growing table has no columns for."""
    piped = await run(served, "embed", "mini", "-", stdin="win\n\nlunch\n")
    given = await run(served, "embed", "mini", "win", "lunch")
    tables = [result.stdout.split("mini version")[0] for result in (piped, given)]
    assert tables[0] == tables[1]
    assert "cos 2" in tables[0]
    report = r"2 lines were answered in \d+\.\d s, 1 empty line was skipped\n"
    assert re.fullmatch(report, piped.stderr)


async def test_a_line_that_is_refused_is_named_and_the_others_are_answered(served: Served) -> None:
    """In the second request: a text that is too long, and one that is not UTF-8."""
    lines = [b"win now"] * 100
    lines[69], lines[79], lines[89] = TOO_LONG.encode(), b"\xff", b""
    result = await run(served, "classify", "spam", "-", "--ndjson", stdin=b"\n".join(lines))
    assert result.exit_code == 1
    found = [json.loads(line)["line"] for line in result.stdout.splitlines()]
    assert found == [number for number in range(1, 101) if number not in (70, 80, 90)]
    first, second, last = result.stderr.splitlines()
    assert first.startswith(
        "attendant: error: line 70 has 101 tokens, the model takes at most 12: "
    )
    assert second == "attendant: error: line 80 is not UTF-8: byte 0 is 0xff"
    assert "97 lines were answered" in last
    assert "1 empty line was skipped, 2 lines were refused" in last


async def test_more_arguments_than_a_request_takes_are_cut_too(served: Served) -> None:
    texts = ["win"] * (REQUEST_TEXTS + 1)
    result = await run(served, "classify", "spam", *texts, "--json")
    assert len(json.loads(result.stdout)["results"]) == len(texts)
    assert not any("line" in each for each in json.loads(result.stdout)["results"])


async def test_a_document_names_the_texts_that_were_refused(served: Served) -> None:
    """By the numbers of lines, or of arguments; what is not answered is in no result."""
    stdin = f"win\n\n{TOO_LONG}\nlunch"
    result = await run(served, "classify", "spam", "-", "--json", stdin=stdin)
    document = json.loads(result.stdout)
    assert [each["line"] for each in document["results"]] == [1, 4]
    (refused,) = document["refused"]
    assert refused["line"] == 3
    assert refused["error"].startswith("line 3 has 101 tokens, ")
    result = await run(served, "classify", "spam", "win", TOO_LONG, "--json")
    document = json.loads(result.stdout)
    assert (len(document["results"]), document["refused"][0]["text"]) == (1, 2)
    assert "refused" not in json.loads(
        (await run(served, "classify", "spam", "a", "--json")).stdout
    )


@pytest.mark.parametrize(
    ("words", "stdin", "expected"),
    [
        ("classify spam LONG", "", "text 1 has 101 tokens"),
        ("classify spam -", f"\n\n{TOO_LONG}\n", "line 3 has 101 tokens"),
        ("features deep LONG", "", "text 1 has 101 tokens"),
    ],
)
async def test_texts_are_numbered_from_1(
    served: Served, words: str, stdin: str, expected: str
) -> None:
    given = [TOO_LONG if word == "LONG" else word for word in words.split()]
    result = await run(served, *given, stdin=stdin)
    assert result.stderr.startswith(f"attendant: error: INVALID_ARGUMENT: {expected}, ")


async def test_what_is_wrong_with_all_lines_is_said_once(served: Served) -> None:
    """Where nothing of the first request is answered it ends; a text alone has its status."""
    expected = "none of the first 64 lines could be answered: line 1: top_k is 5, the model has 3"
    with pytest.raises(InvalidArgument, match=expected):
        await run(served, "classify", "spam", "-", "--top-k", "5", stdin=LINES)
    result = await run(served, "classify", "spam", "win", "--top-k", "5")
    assert result.exit_code == 1
    assert "INVALID_ARGUMENT: top_k is 5, the model has 3 labels" in result.stderr
    result = await run(served, "classify", "nobody", "-", stdin=LINES)
    assert result.exit_code == 1
    assert "unknown model: 'nobody'" in result.stderr


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        ("classify spam a", "--top-k"),
        ("fill-mask spam a", "--top-k"),
        ("answer spam a --context b", "--top-k"),
        ("answer spam a --context b", "--max-answer-tokens"),
        ("classify-image spam a", "--top-k"),
        ("attention spam a", "--layer"),
        ("attention spam a", "--head"),
    ],
)
async def test_numbers_that_no_request_can_hold_are_refused_by_their_flag(
    served: Served, command: str, flag: str
) -> None:
    result = await run(served, *command.split(), flag, "99999999999")
    assert result.exit_code == 2
    assert f"'{flag}'" in result.stderr
    assert str(2**32 - 1) in result.stderr


@pytest.mark.parametrize(
    "command",
    [
        "classify spam a -",
        "classify spam - a --json",
        "classify spam a - --ndjson",
        "similarity mini - a",
        "score spam q - a",
        "fill-mask spam --compare a -",
    ],
)
async def test_stdin_among_other_texts_is_refused(served: Served, command: str) -> None:
    with pytest.raises(SettingError, match="'-' is one of several texts, expected it alone"):
        await run(served, *command.split(), stdin=LINES)


@pytest.mark.parametrize("stdin", [TOO_LONG, f"win\n{TOO_LONG}"])
async def test_a_text_that_is_too_long_is_refused_with_the_flag_that_truncates(
    served: Served, stdin: str
) -> None:
    """Alone in its request, and beside a text that is answered."""
    result = await run(served, "classify", "spam", "-", stdin=stdin)
    assert result.exit_code == 1
    assert "shorten it, or pass --truncate" in " ".join(result.stderr.split())


@pytest.mark.parametrize("value", ["inf", "nan", "1e12"])
async def test_a_time_limit_that_is_no_number_of_seconds_is_refused(
    served: Served, value: str
) -> None:
    result = await run(served, "models", "--timeout-s", value)
    assert result.exit_code == 2
    assert "'--timeout-s'" in result.stderr


@pytest.mark.parametrize(
    "address", ["localhost", "18001", ":18001", "localhost:", "localhost:http", "host:70000", "::1"]
)
async def test_an_address_without_host_or_port_is_refused(address: str) -> None:
    with pytest.raises(SettingError, match=f"--address is '{address}', expected HOST:PORT"):
        CliRunner().invoke(app, ["models", "--address", address], catch_exceptions=False)


async def test_an_address_may_be_a_name_or_of_either_protocol_or_a_scheme(served: Served) -> None:
    port = served.address.rpartition(":")[2]
    for address in (f"localhost:{port}", f"dns:///localhost:{port}", f"ipv4:127.0.0.1:{port}"):
        command = ["models", "--address", address]
        result = await within_patience(asyncio.to_thread(CliRunner().invoke, app, command))
        assert result.exit_code == 0
    for address in ("[::1]:1", "unix:/no/such/socket"):
        command = ["models", "--address", address, "--timeout-s", "5"]
        result = await within_patience(asyncio.to_thread(CliRunner().invoke, app, command))
        assert "UNAVAILABLE: " in result.stderr


async def test_no_lines_are_answered_by_nothing(served: Served) -> None:
    result = await run(served, "classify", "spam", "-", "--json", stdin="\n\r\n")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"results": []}
    assert "2 empty lines were skipped" in result.stderr


async def test_json_and_ndjson_are_not_both(served: Served) -> None:
    with pytest.raises(SettingError, match="--json and --ndjson are both set"):
        await run(served, "classify", "spam", "win", "--json", "--ndjson")


async def test_many_texts_show_which_are_most_alike(served: Served) -> None:
    """Thirteen have more columns than fit: three neighbours for each, by number."""
    words = ("win", "prize", "free", "cash", "now")
    texts = [f"{first} {second} lunch" for first in words for second in words][:13]
    vectors = unit(np.stack([text_values(token_ids(text), 4) for text in texts]))
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -2)
    result = await run(served, "similarity", "mini", "-", stdin="\n".join(texts))
    rows = [line for line in result.stdout.splitlines() if "lunch" in line]
    for row, values in zip(rows, cosines, strict=True):
        assert f"{values.argmax() + 1}: {values.max():.3f}" in row


async def test_a_word_is_compared_in_any_number_of_lines(served: Served) -> None:
    lines = "win a prize\nthe prize now\n" * 40
    result = await run(served, "features", "deep", "-", "--word", "prize", stdin=lines)
    assert result.exit_code == 0
    assert "most alike" in result.stdout
