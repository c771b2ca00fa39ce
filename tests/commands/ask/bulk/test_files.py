"""The asking commands with --input and --output, as typed against a server."""

import json
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from attendant.v1 import reading_pb2, reading_pb2_grpc, text_pb2

from tests.fakes.command_line import run
from tests.fakes.every_task import LONG, every_session, write_every_model
from tests.fakes.serving import Served, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")
QUERY = "win"
TEXTS = ["win a prize", "", "sorry the cash now later", LONG, "lunch now", "prize"]
ANSWERED = [0, 2, 4, 5]  # the second is empty, and the fourth has more tokens than models take


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    repository = tmp_path_factory.mktemp("model_repository")
    write_every_model(repository)
    async with serving(repository, every_session()) as running:
        yield running


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS) + "\n")
    return path


async def answer(served: Served, command: Sequence[str], source: Path, output: Path) -> int:
    files = ("--input", str(source), "--output", str(output))
    result = await run(served, *command, *files)
    assert "Traceback" not in result.output
    return result.exit_code


def errors_of(output: Path) -> dict[int, str]:
    """The statuses of lines without a result, by their numbers."""
    with output.with_name(f"{output.name}.errors.jsonl").open() as lines:
        return {each["line"]: each["status"] for each in map(json.loads, lines)}


def json_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def rows_of(served: Served, command: Sequence[str], source: Path, output: Path) -> list[Any]:
    """The lines of JSON of a job in which one line is empty, and one refused."""
    assert await answer(served, command, source, output) == 1
    assert errors_of(output) == {2: "NOT_SENT", 4: "INVALID_ARGUMENT"}
    return json_lines(output)


async def test_classes_of_a_file_are_those_of_a_request(
    served: Served, texts: Path, tmp_path: Path
) -> None:
    request = text_pb2.ClassifyRequest(model="spam", texts=[TEXTS[index] for index in ANSWERED])
    request.all_scores = True
    expected = (await served.text.Classify(request)).results
    output = tmp_path / "labels.npy"
    assert await answer(served, ("classify", "spam"), texts, output) == 1
    assert errors_of(output) == {2: "NOT_SENT", 4: "INVALID_ARGUMENT"}
    scores = np.load(output)
    assert scores.shape == (len(TEXTS), 3)
    assert np.isnan(scores[[1, 3]]).all()
    (labels,) = (model.labels for model in await _models(served) if model.name == "spam")
    for index, result in zip(ANSWERED, expected, strict=True):
        by_label = {each.label: each.score for each in result.labels}
        assert scores[index].tolist() == pytest.approx([by_label[label] for label in labels])

    rows = await rows_of(served, ("classify", "spam", "--top-k", "1"), texts, tmp_path / "a.jsonl")
    assert [row["line"] for row in rows] == [index + 1 for index in ANSWERED]
    for row, result in zip(rows, expected, strict=True):
        (best,) = row["labels"]
        assert best["label"] == result.labels[0].label
        assert best["score"] == pytest.approx(result.labels[0].score)


async def test_classes_of_a_file_fill_the_columns_of_a_table(
    served: Served, texts: Path, tmp_path: Path
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    output = tmp_path / "labels.parquet"
    assert await answer(served, ("classify", "spam"), texts, output) == 1
    rows = parquet.read_table(output).to_pylist()
    assert [row["line"] for row in rows] == [*range(1, len(TEXTS) + 1)]
    assert [row["line"] - 1 for row in rows if row["error"] is None] == ANSWERED
    for index in ANSWERED:
        assert rows[index]["label"] == rows[index]["labels"][0]
        assert rows[index]["score"] == max(rows[index]["scores"])
    assert rows[1]["error"] == "is empty"


async def test_entities_of_a_file_are_those_of_a_request(
    served: Served, texts: Path, tmp_path: Path
) -> None:
    request = reading_pb2.ClassifyTokensRequest(
        model="tags", texts=[TEXTS[index] for index in ANSWERED]
    )
    reading: Any = reading_pb2_grpc.ReadingServiceStub(served.channel)
    expected = (await reading.ClassifyTokens(request)).results
    assert any(result.entities for result in expected)
    rows = await rows_of(served, ("classify-tokens", "tags"), texts, tmp_path / "entities.jsonl")
    assert [row["line"] for row in rows] == [index + 1 for index in ANSWERED]
    for row, result in zip(rows, expected, strict=True):
        found = [(each["label"], each["text"]) for each in row["entities"]]
        assert found == [(entity.label, entity.text) for entity in result.entities]


async def test_one_query_scores_every_line_of_a_file(
    served: Served, texts: Path, tmp_path: Path
) -> None:
    request = text_pb2.RerankRequest(
        model="match", query=QUERY, documents=[TEXTS[index] for index in ANSWERED]
    )
    expected = {each.index: each.score for each in (await served.text.Rerank(request)).results}
    output = tmp_path / "scores.npy"
    assert await answer(served, ("rerank", "match", QUERY), texts, output) == 1
    scores = np.load(output)
    assert scores.shape == (len(TEXTS),)
    assert np.isnan(scores[[1, 3]]).all()
    assert scores[ANSWERED].tolist() == pytest.approx([expected[place] for place in range(4)])


async def test_each_line_may_have_a_query_and_documents_of_its_own(
    served: Served, tmp_path: Path
) -> None:
    searches = [
        {"query": "win", "documents": ["prize", "lunch now"]},
        {"query": "cash", "documents": []},
        {"query": "sorry", "documents": ["now", "later", "win a prize"]},
        {"query": "home"},
    ]
    source, output = tmp_path / "searches.jsonl", tmp_path / "scores.jsonl"
    source.write_text("".join(f"{json.dumps(each)}\n" for each in searches))
    assert await answer(served, ("rerank", "match"), source, output) == 1
    assert sorted(errors_of(output)) == [2, 4]
    rows = json_lines(output)
    assert [row["line"] for row in rows] == [1, 3]
    for row in rows:
        request = text_pb2.RerankRequest(model="match", **searches[row["line"] - 1])
        results = sorted(
            (await served.text.Rerank(request)).results, key=lambda document: document.index
        )
        assert row["scores"] == pytest.approx([each.score for each in results])


async def test_vectors_of_a_file_are_those_of_a_request(
    served: Served, texts: Path, tmp_path: Path
) -> None:
    request = text_pb2.EmbedRequest(model="mini", texts=[TEXTS[index] for index in ANSWERED])
    expected = [list(each.values) for each in (await served.text.Embed(request)).results]
    output = tmp_path / "vectors.npy"
    assert await answer(served, ("embed", "mini"), texts, output) == 1
    vectors = np.load(output)
    assert vectors[ANSWERED].tolist() == expected
    assert np.isnan(vectors[[1, 3]]).all()
    left = {"texts.txt", "vectors.npy", "vectors.npy.errors.jsonl"}
    assert set(os.listdir(tmp_path)) == left, "a whole job leaves nothing of its own"


async def _models(served: Served) -> list[Any]:
    return list((await served.text.ListModels(text_pb2.ListModelsRequest())).models)
