"""Jobs that are interrupted, refused and begun anew, without a server."""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from commands.ask.bulk.job import run_job
from commands.ask.bulk.sources import Source
from commands.ask.bulk.windows import Windows
from commands.ask.client.refusal import CallError
from commands.ask.lines import Line, StreamedTexts
from service.calls.texts import Embeddings
from service.errors import AttendantError, InvalidArgument, SettingError
from tests.commands.ask.bulk.jobs import (
    NAMED,
    REFUSED,
    WIDTH,
    embedding,
    job_of,
    respond,
    vector_of,
    write_texts,
)


@pytest.fixture(autouse=True)
def _needs_pyarrow(request: pytest.FixtureRequest) -> None:
    if "parquet" in request.node.name:
        pytest.importorskip("pyarrow")


def files_of(folder: Path) -> dict[str, bytes]:
    """What a job left beside its input."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "texts.txt"}


def whole(tmp_path: Path, ending: str) -> dict[str, bytes]:
    """The files of a job that was not interrupted."""
    folder = tmp_path / "whole"
    folder.mkdir()
    run_job(job_of(tmp_path / "texts.txt", folder / f"out{ending}"), respond, restarts=False)
    return files_of(folder)


class Interrupting:
    """Answers this many requests, and then fails as Ctrl-C does."""

    def __init__(self, num_requests: int) -> None:
        self.num_left = num_requests

    def __call__(self, texts: Sequence[str]) -> Embeddings:
        self.num_left -= 1
        if self.num_left < 0:
            raise KeyboardInterrupt
        return respond(texts)


@pytest.mark.parametrize("ending", [".npy", ".jsonl", ".parquet"])
def test_an_interrupted_job_goes_on_and_its_files_are_equal_to_the_byte(
    tmp_path: Path, ending: str
) -> None:
    """Interrupted at ten places, some before the first window; the errors' file is equal too."""
    write_texts(tmp_path / "texts.txt")
    expected = whole(tmp_path, ending)
    assert set(expected) == {f"out{ending}", f"out{ending}.errors.jsonl"}
    for seed in range(10):
        folder = tmp_path / f"{seed}"
        folder.mkdir()
        job = job_of(tmp_path / "texts.txt", folder / f"out{ending}")
        generator = np.random.default_rng(seed)
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                run_job(job, Interrupting(int(generator.integers(9))), restarts=False)
            assert not job.output.exists(), "a part is not taken for the whole"
        before, _ = run_job(job, respond, restarts=False)
        assert before.num_lines % job.window_lines == 0
        assert files_of(folder) == expected


@pytest.mark.parametrize("ending", [".npy", ".parquet"])
def test_a_killed_process_loses_nothing_and_writes_nothing_twice(
    tmp_path: Path, ending: str
) -> None:
    """Six processes end at random moments, without flushing a file; the last one ends by itself."""
    source, folder = tmp_path / "texts.txt", tmp_path / "killed"
    write_texts(source, 6_000)
    expected = whole(tmp_path, ending)
    folder.mkdir()
    generator = np.random.default_rng(5)
    module = "tests.commands.ask.bulk.jobs"
    for _ in range(6):
        after_s = f"{generator.uniform(0.0, 0.25):.3f}"
        command = [sys.executable, "-m", module, str(source), str(folder / f"out{ending}"), after_s]
        ended = subprocess.run(command, check=False, timeout=60)  # noqa: S603 - our own
        assert ended.returncode in (0, 9)
        if ended.returncode == 0:
            break
    else:
        run_job(job_of(source, folder / f"out{ending}"), respond, restarts=False)
    assert files_of(folder) == expected


def test_rows_of_an_array_are_lines_and_those_without_a_result_are_nan(tmp_path: Path) -> None:
    lines = write_texts(tmp_path / "texts.txt")
    run_job(job_of(tmp_path / "texts.txt", tmp_path / "out.npy"), respond, restarts=False)
    vectors = np.load(tmp_path / "out.npy")
    assert (vectors.dtype, vectors.shape) == (np.float32, (len(lines), WIDTH))
    for text, vector in zip(lines, vectors, strict=True):
        if text and REFUSED not in text:
            assert vector.tolist() == vector_of(text)
        else:
            assert np.isnan(vector).all()


def test_lines_without_a_result_are_in_a_file_of_their_own_with_the_reason(tmp_path: Path) -> None:
    write_texts(tmp_path / "texts.txt", 200)
    output = tmp_path / "out.jsonl"
    _, reached = run_job(job_of(tmp_path / "texts.txt", output), respond, restarts=False)
    errors = [json.loads(line) for line in (tmp_path / "out.jsonl.errors.jsonl").open()]
    assert [each["line"] for each in errors] == [97, 131, 194]
    assert errors[0] == {"line": 97, "status": "NOT_SENT", "reason": "is empty", "text": ""}
    assert errors[1]["status"] == "INVALID_ARGUMENT"
    assert errors[1]["reason"] == "has 99 tokens"
    assert errors[1]["text"].startswith("131 word")
    results = [json.loads(line) for line in output.open()]
    assert [each["line"] for each in results] == [
        number for number in range(1, 201) if number not in (97, 131, 194)
    ]
    first: list[float] = np.array(results[0]["values"], np.float32).tolist()
    assert first == vector_of("1 " + "word " * 7), "nine digits tell every float32"
    assert (reached.num_answered, reached.num_empty, reached.num_refused) == (197, 2, 1)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model": NAMED | {"version": "4"}}, 'the model\'s version was "3" and is "4"'),
        ({"model": NAMED | {"precision": "int8"}}, "the model's precision was"),
        ({"work": embedding(truncate=True)}, "'truncate' was false and is true"),
        ({"window_lines": 128}, "'window_lines' was 64 and is 128"),
    ],
)
def test_another_job_does_not_go_on_where_this_one_was(
    tmp_path: Path, changes: dict[str, object], named: str
) -> None:
    write_texts(tmp_path / "texts.txt")
    source, output = tmp_path / "texts.txt", tmp_path / "out.npy"
    with pytest.raises(KeyboardInterrupt):
        run_job(job_of(source, output), Interrupting(5), restarts=False)
    before = files_of(tmp_path)
    with pytest.raises(SettingError) as error:
        run_job(job_of(source, output, **changes), respond, restarts=False)
    assert named in str(error.value)
    assert "--restart begins anew" in str(error.value)
    assert files_of(tmp_path) == before, "nothing was touched"
    run_job(job_of(source, output, **changes), respond, restarts=True)
    assert len(np.load(output)) == 1_000


def test_a_changed_input_does_not_go_on_and_a_moved_one_does(tmp_path: Path) -> None:
    source, output = tmp_path / "texts.txt", tmp_path / "out.npy"
    write_texts(source)
    with pytest.raises(KeyboardInterrupt):
        run_job(job_of(source, output), Interrupting(5), restarts=False)
    content = source.read_bytes()
    source.write_bytes(content.replace(b"999", b"998"))
    with pytest.raises(SettingError, match="input's content"):
        run_job(job_of(source, output), respond, restarts=False)
    moved = tmp_path / "moved.txt"
    moved.write_bytes(content)
    run_job(job_of(moved, output), respond, restarts=False)
    assert len(np.load(output)) == 1_000


def test_an_output_that_is_there_is_not_replaced_unless_that_is_asked_for(tmp_path: Path) -> None:
    write_texts(tmp_path / "texts.txt")
    job = job_of(tmp_path / "texts.txt", tmp_path / "out.jsonl")
    job.output.write_text("precious")
    with pytest.raises(SettingError, match="exists, and no job that writes it is unfinished"):
        run_job(job, respond, restarts=False)
    assert job.output.read_text() == "precious"
    run_job(job, respond, restarts=True)
    assert job.output.read_text() != "precious"


def test_an_output_that_was_cut_is_not_gone_on_with(tmp_path: Path) -> None:
    write_texts(tmp_path / "texts.txt")
    job = job_of(tmp_path / "texts.txt", tmp_path / "out.npy")
    with pytest.raises(KeyboardInterrupt):
        run_job(job, Interrupting(8), restarts=False)
    os.truncate(tmp_path / "out.npy.partial", 200)
    with pytest.raises(AttendantError, match="is shorter than its job's state says"):
        run_job(job, respond, restarts=False)


def test_a_job_none_of_whose_lines_is_answered_ends_at_once(tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text(f"{REFUSED}\n" * 1_000)
    job = job_of(tmp_path / "texts.txt", tmp_path / "out.npy")
    with pytest.raises(InvalidArgument, match="none of the first 64 lines could be answered"):
        run_job(job, respond, restarts=False)


def test_a_text_that_the_model_fails_on_is_refused_and_a_broken_model_ends_the_job(
    tmp_path: Path,
) -> None:
    (tmp_path / "texts.txt").write_text("".join(f"text {number}\n" for number in range(200)))
    bad = {"text 70"}

    def ask(texts: Sequence[str]) -> Embeddings:
        if bad.intersection(texts) or "all" in bad:
            raise CallError("INTERNAL", "the model failed")
        return respond(texts)

    job = job_of(tmp_path / "texts.txt", tmp_path / "out.npy")
    _, reached = run_job(job, ask, restarts=False)
    assert reached.num_refused == 1
    assert np.isnan(np.load(job.output)).all(axis=1).nonzero()[0].tolist() == [70]
    bad.add("all")
    with pytest.raises(CallError, match="the model failed"):
        run_job(job, ask, restarts=True)


def test_memory_holds_a_few_windows_however_long_the_file_is(tmp_path: Path) -> None:
    """Of 200,000 lines, never more than those in flight and of two windows are read ahead."""
    path = tmp_path / "texts.txt"
    path.write_text("short text\n" * 200_000)
    most_ahead = 0

    class Counting(Windows):
        def take(self, most: int) -> list[Line]:
            nonlocal most_ahead
            taken = super().take(most)
            num_open = sum(window.num_lines for window in tuple(self._open))  # another thread takes
            most_ahead = max(most_ahead, num_open)
            return taken

    from commands.ask.bulk.job import answered_windows

    with path.open("rb", buffering=0) as file:
        windows = Counting(StreamedTexts(file, keeps_empty=True), 64)
        lines: Iterator[int] = (
            window.num_lines for window in answered_windows(embedding(), respond, windows, 3, 5.0)
        )
        assert sum(lines) == 200_000
    assert most_ahead <= 64 * (2 * 3 + 3)


def test_texts_of_a_request_are_of_one_window_and_alike_in_length(tmp_path: Path) -> None:
    requests: list[list[str]] = []

    def ask(texts: Sequence[str]) -> Embeddings:
        requests.append(list(texts))
        return respond(texts)

    lines = [f"{number} " + "x" * (number * 7 % 200) for number in range(512)]
    (tmp_path / "texts.txt").write_text("\n".join(lines))
    job = job_of(tmp_path / "texts.txt", tmp_path / "out.npy", window_lines=256, in_flight=1)
    run_job(job, ask, restarts=False)
    assert [len(request) for request in requests] == [64] * 8
    windows = [{int(text.split()[0]) // 256 for text in request} for request in requests]
    assert windows == [{0}] * 4 + [{1}] * 4
    spans = [len(max(texts, key=len)) - len(min(texts, key=len)) for texts in requests]
    assert max(spans) < 60


def test_lines_of_json_have_their_field_and_what_has_none_is_refused(tmp_path: Path) -> None:
    lines = ['{"body": "one"}', '{"text": "two"}', "no json", '{"body": 3}', '{"body": " "}', ""]
    (tmp_path / "texts.jsonl").write_text("\n".join(lines) + "\n")
    source = Source(tmp_path / "texts.jsonl", "body")
    job = job_of(tmp_path / "texts.jsonl", tmp_path / "out.npy", source=source)
    run_job(job, respond, restarts=False)
    vectors = np.load(job.output)
    assert vectors.shape == (6, WIDTH)
    assert vectors[0].tolist() == vector_of("one")
    errors = [json.loads(line) for line in (tmp_path / "out.npy.errors.jsonl").open()]
    reasons = [each["reason"].split(":")[0] for each in errors]
    assert reasons == [
        "has no field 'body'",
        "is no JSON",
        "has a field 'body' of int, expected a text",
        "is empty",
        "is empty",
    ]


def test_parquet_in_and_out_has_every_row_with_its_result_or_its_error(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    texts = [None if number % 50 == 7 else f"row {number}" for number in range(300)]
    texts[40] = REFUSED
    table = pa.table({"other": range(300), "body": texts})
    pq.write_table(table, tmp_path / "texts.parquet", row_group_size=37)
    source = Source(tmp_path / "texts.parquet", "body")
    job = job_of(tmp_path / "texts.parquet", tmp_path / "out.parquet", source=source)
    with pytest.raises(KeyboardInterrupt):
        run_job(job, Interrupting(3), restarts=False)
    run_job(job, respond, restarts=False)
    rows = pq.read_table(job.output).to_pylist()
    assert [row["line"] for row in rows] == [*range(1, 301)]
    for text, row in zip(texts, rows, strict=True):
        if text is None or text == REFUSED:
            assert row["vector"] is None
            assert row["error"] == ("is empty" if text is None else "has 99 tokens")
        else:
            assert row["vector"] == vector_of(text)
            assert row["error"] is None


@pytest.mark.parametrize("ending", [".csv", ".tsv"])
def test_a_table_of_text_goes_on_where_it_was_and_gives_the_same_bytes(
    tmp_path: Path, ending: str
) -> None:
    """Texts with delimiters, quotes and line breaks; empty rows, a short one, bytes of no text."""
    texts = [
        f'{number}, "{number % 7}"\tand\r\nmore' if number % 97 else "" for number in range(1, 301)
    ]
    path = tmp_path / f"texts{ending}"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="," if ending == ".csv" else "\t")
        writer.writerow(["id", "body"])
        writer.writerows(enumerate(texts))
        writer.writerow(["too short"])
    with path.open("ab") as raw:
        raw.write(b'7,"\xff"\r\n'.replace(b",", b"," if ending == ".csv" else b"\t"))
    source = Source(path, "body")
    expected, output = tmp_path / "whole.npy", tmp_path / "parts.npy"
    run_job(job_of(path, expected, source=source), respond, restarts=False)
    parts = job_of(path, output, source=source)
    with pytest.raises(KeyboardInterrupt):
        run_job(parts, Interrupting(2), restarts=False)
    run_job(parts, respond, restarts=False)
    assert output.read_bytes() == expected.read_bytes()
    vectors = np.load(output)
    for text, vector in zip(texts, vectors, strict=False):
        assert np.isnan(vector).all() if not text else vector.tolist() == vector_of(text)
    lines = Path(f"{output}.errors.jsonl").read_text().splitlines()
    reasons = [json.loads(line)["reason"] for line in lines]
    assert [reason for reason in reasons if reason != "is empty"] == [
        "has 1 columns, expected at least 2",
        "has a column 'body' that is no Unicode",
    ]


def test_a_table_without_the_column_names_those_that_it_has(tmp_path: Path) -> None:
    (tmp_path / "texts.csv").write_text("id,body\n1,a\n")
    with (
        pytest.raises(SettingError, match="no column 'text', it has id, body: --field names"),
        Source(tmp_path / "texts.csv").open(),
    ):
        pass
