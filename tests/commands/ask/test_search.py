"""`attendant search`: the nearest texts of a file, an index that is kept or remade."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from commands.ask.bulk import index as indexes
from commands.ask.bulk.index import Index
from commands.ask.bulk.sources import Source
from service.errors import AttendantError
from tests.fakes.command_line import run
from tests.fakes.serving import serving, write_models

TEXTS = ["a b c", "", "what the model reads", "a b d", "reads what the model"]


def index_of(folder: Path, vectors: NDArray[np.float32], texts: list[str]) -> Index:
    folder.mkdir(exist_ok=True)
    source = folder.parent / "texts.txt"
    source.write_text("".join(f"{text}\n" for text in texts))
    index = Index(folder, Source(source))
    np.save(index.vectors_path, vectors)
    places = list(indexes._pages(index._source))
    np.save(folder / indexes.PLACES, np.array(places, np.int64).reshape(-1, 2))
    return index


@given(
    st.lists(st.lists(st.integers(-3, 3), min_size=4, max_size=4), min_size=1, max_size=40),
    st.lists(st.integers(-3, 3), min_size=4, max_size=4).filter(any),
    st.integers(1, 45),
    st.integers(1, 9),
)
def test_the_nearest_are_those_of_comparing_all(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[list[int]],
    query: list[int],
    count: int,
    chunk: int,
) -> None:
    """A line without a text, whose numbers are NaN, or a vector without a direction, is none."""
    vectors = np.array(rows, np.float32)
    vectors[::7] = np.nan
    folder = tmp_path_factory.mktemp("index")
    index = index_of(folder / "i", vectors, ["a"] * len(rows))
    asked = np.array(query, np.float32)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(indexes, "CHUNK", chunk)
        found = index.nearest(asked, count)
    scores = {
        number: float(row @ asked / np.linalg.norm(row) / np.linalg.norm(asked))
        for number, row in enumerate(vectors, 1)
        if np.isfinite(row).all() and row.any()
    }
    expected = sorted(scores.values(), reverse=True)[:count]
    assert [score for _, score in found] == pytest.approx(expected, abs=1e-5)
    assert all(scores[line] == pytest.approx(score, abs=1e-5) for line, score in found)


@given(st.sets(st.integers(1, 100), min_size=1), st.integers(1, 30))
def test_texts_are_read_from_their_pages(
    tmp_path_factory: pytest.TempPathFactory, lines: set[int], page: int
) -> None:
    texts = [f"text {number}" if number % 5 else "" for number in range(1, 101)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(indexes, "PAGE", page)
        index = index_of(
            tmp_path_factory.mktemp("index") / "i", np.zeros((100, 2), np.float32), texts
        )
        assert index.texts_of(sorted(lines)) == {line: texts[line - 1] for line in lines}


@pytest.mark.asyncio
async def test_a_file_is_embedded_once_and_searched(tmp_path: Path) -> None:
    write_models(tmp_path / "models")
    file = tmp_path / "texts.txt"
    file.write_text("".join(f"{text}\n" for text in TEXTS))
    async with serving(tmp_path / "models") as served:
        first = await run(served, "search", str(file), TEXTS[2], "--json", "--model", "mini")
        assert first.exit_code == 0, first.output
        told = json.loads(first.stdout)
        assert told["query"] == TEXTS[2]
        assert told["results"][0]["text"] in TEXTS
        assert {each["line"] for each in told["results"]} == {1, 3, 4, 5}  # 2 is empty
        vectors = tmp_path / "texts.txt.index/vectors.npy"
        made_ns = vectors.stat().st_mtime_ns
        again = await run(
            served, "search", str(file), TEXTS[2], TEXTS[0], "--json", "--model", "mini"
        )
        assert json.loads(again.stdout.splitlines()[0]) == told
        assert len(again.stdout.splitlines()) == 2
        assert vectors.stat().st_mtime_ns == made_ns
        file.write_text("another\n")
        changed = await run(served, "search", str(file), "x", "--json", "--model", "mini")
        assert [each["text"] for each in json.loads(changed.stdout)["results"]] == ["another"]
        drawn = await run(served, "search", str(file), "x", "--model", "mini")
        assert "another" in drawn.stdout


@pytest.mark.asyncio
async def test_what_cannot_be_searched_is_refused(tmp_path: Path) -> None:
    write_models(tmp_path / "models")
    file = tmp_path / "texts.txt"
    file.write_text("a\n")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/other.txt").write_text("x")
    async with serving(tmp_path / "models") as served:
        for arguments, fault in (
            ((str(file), "x", "--model", "none"), "--model is 'none', expected a served model"),
            ((str(tmp_path / "no.txt"), "x", "--model", "mini"), "cannot be read"),
            ((str(file), " ", "--model", "mini"), "QUERY is empty"),
            (
                (str(file), "x", "--model", "mini", "--index", str(tmp_path / "taken")),
                "has other files than an index",
            ),
            (
                (str(file), "x", "--model", "mini", "--reranker", "nobody"),
                "--reranker is 'nobody', expected a served model",
            ),
        ):
            with pytest.raises(AttendantError, match=fault):
                await run(served, "search", *arguments)
    assert (tmp_path / "taken/other.txt").exists()
