"""`attendant rerank`, as a user meets it."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from attendant.v1 import text_pb2

from commands.ask.in_flight import REQUEST_TEXTS
from service.errors import AttendantError
from tests.fakes.command_line import run
from tests.fakes.every_task import LONG
from tests.fakes.serving import Served, serving
from tests.fakes.sessions import FakeSessions, text_session, write_model
from tests.fakes.tasks import reading_manifest

pytestmark = pytest.mark.asyncio(loop_scope="module")
QUERY, TEXTS = "win", ["lunch now", "prize", "home", "sorry"]
RANKED = ("rerank", "match", QUERY)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    repository = tmp_path_factory.mktemp("model_repository")
    write_model(repository, "match", reading_manifest("pair-scoring"))
    sessions = FakeSessions(match=lambda: text_session("logits", 1))
    async with serving(repository, sessions) as running:
        yield running


async def best_of(served: Served, texts: list[str]) -> list[tuple[int, float]]:
    request = text_pb2.RerankRequest(model="match", query=QUERY, documents=texts)
    answer = await served.text.Rerank(request)
    return [(result.index, result.score) for result in answer.results]


async def test_documents_are_a_table_with_their_numbers_best_first(served: Served) -> None:
    result = await run(served, *RANKED, *TEXTS, "--top-n", "3")
    assert result.exit_code == 0, result.output
    rows = [line.split("│")[1:4] for line in result.stdout.splitlines() if "│" in line]
    shown = [[cell.strip() for cell in row] for row in rows]
    assert shown == [
        [str(index + 1), TEXTS[index], f"{score:.4f}"]
        for index, score in (await best_of(served, TEXTS))[:3]
    ]


async def test_lines_of_a_file_or_of_stdin_are_in_one_order_however_many_requests_they_take(
    served: Served, tmp_path: Path
) -> None:
    """With their numbers as lines, of which the second is empty."""
    texts = ["now " * (number % 7) + "win" for number in range(2 * REQUEST_TEXTS + 1)]
    content = "\n".join([texts[0], "", *texts[1:]])
    file = tmp_path / "documents.txt"
    file.write_text(content)
    by_file = await run(served, *RANKED, "--file", str(file), "--json")
    by_stdin = await run(served, *RANKED, "-", "--json", stdin=content)
    expected = sorted(
        ((index + bool(index), score) for index, score in await best_of(served, texts)),
        key=lambda pair: (-pair[1], pair[0]),
    )
    for result in (by_file, by_stdin):
        document = json.loads(result.stdout)
        found = [(each["index"], each["score"]) for each in document["results"]]
        assert found == [(index, pytest.approx(score)) for index, score in expected]
        lines = content.split("\n")
        assert [each["text"] for each in document["results"]] == [
            lines[index] for index, _ in expected
        ]
        assert document["model"] == "match"
        assert document["num_tokens"] == sum(each["num_tokens"] for each in document["results"])


async def test_scores_are_logits_on_request(served: Served) -> None:
    for flag, command in (("--raw-scores", "rerank"), ("--raw-scores", "score")):
        result = await run(served, command, "match", QUERY, "prize", flag, "--json")
        assert json.loads(result.stdout)["results"][0]["score"] == 1.25


async def test_a_long_document_is_refused_by_its_number_and_the_others_are_ranked(
    served: Served,
) -> None:
    result = await run(served, *RANKED, "prize", LONG, "--json")
    assert result.exit_code == 1
    assert [each["index"] for each in json.loads(result.stdout)["results"]] == [0]
    assert "attendant: error: text 2 with its query has 34 tokens, " in result.stderr
    assert "shorten it, or pass --truncate" in result.stderr
    for flags in (("--truncate",), ("--max-document-tokens", "3")):
        result = await run(served, *RANKED, "prize", LONG, "--json", *flags)
        assert result.exit_code == 0
        results = {each["index"]: each for each in json.loads(result.stdout)["results"]}
        assert results[1]["is_truncated"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "no documents are given, expected texts, '-' or --file"),
        (("a", "--file", "nowhere"), "texts and --file are both given, expected one of them"),
        (("--file", "nowhere"), "--file 'nowhere' cannot be read: No such file or directory"),
        (("-",), "there are no documents, expected at least one"),
    ],
)
async def test_what_cannot_be_ranked_is_refused(
    served: Served, words: tuple[str, ...], expected: str
) -> None:
    with pytest.raises(AttendantError, match=f"^{re.escape(expected)}$"):
        await run(served, *RANKED, *words)
