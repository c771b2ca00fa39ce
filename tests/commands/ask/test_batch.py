"""`attendant batch`: results and refusals of a file of requests, and a job that goes on."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from commands.ask.bulk.batch_lines import batch_job
from commands.ask.bulk.job import run_job
from commands.ask.client.refusal import CallError
from service.errors import SettingError
from tests.fakes.command_line import run
from tests.fakes.serving import serving, write_models

GOOD = {"model": "mini", "input": "a"}


def lines(*bodies: Any, url: str = "/v1/embeddings") -> str:
    return "".join(
        json.dumps({"custom_id": f"line-{place}", "method": "POST", "url": url, "body": body})
        + "\n"
        for place, body in enumerate(bodies)
    )


@pytest.mark.asyncio
async def test_lines_are_answered_by_their_paths_and_refused_ones_by_number(
    tmp_path: Path,
) -> None:
    """With a line of another path, CRLF, an empty line and a mark at the beginning."""
    write_models(tmp_path / "models")
    completion = {"model": "tale", "prompt": "a", "max_tokens": 2}
    content = lines(GOOD, {**GOOD, "model": "none"}).replace("\n", "\r\n")
    content += "{\n\n" + lines(completion, url="/v1/completions").replace("line-0", "c")
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("\ufeff" + content)
    async with serving(tmp_path / "models", http_port=0) as served:
        address = f"http://127.0.0.1:{served.app.http_port}"
        ended = await run(served, "batch", str(source), "--output", str(output), address=address)
    assert ended.exit_code == 1, ended.output  # some lines are refused
    results = [json.loads(line) for line in output.read_text().splitlines()]
    assert [each["custom_id"] for each in results] == ["line-0", "c"]
    assert {each["response"]["status_code"] for each in results} == {200}
    assert results[0]["response"]["body"]["data"][0]["embedding"]
    assert all(each["response"]["request_id"] for each in results)
    errors = (tmp_path / "out.jsonl.errors.jsonl").read_text().splitlines()
    told = {each["line"]: each for each in map(json.loads, errors)}
    assert told[2]["reason"].startswith("Request for unknown model: 'none'")
    assert told[3]["reason"].startswith("is refused: the line is no JSON object")


class Server:
    """Answers each request by its body, this many, and then fails as Ctrl-C does."""

    def __init__(self, num_answers: int) -> None:
        self.num_left = num_answers
        self.asked: list[bytes] = []

    def post(self, place: str, body: bytes) -> tuple[int, bytes, str]:
        assert place == "/v1/embeddings"
        self.num_left -= 1
        if self.num_left < 0:
            raise KeyboardInterrupt
        self.asked.append(body)
        return 200, body, f"id-{len(self.asked)}"


def job(folder: Path, server: Server) -> Callable[[], Any]:
    made = batch_job(folder / "in.jsonl", folder / "out.jsonl", 1, 0.0)
    return lambda: run_job(made, made.work.ask(server), restarts=False)


def bodies_of(path: Path) -> Sequence[Any]:
    return [json.loads(line)["response"]["body"] for line in path.read_text().splitlines()]


def test_an_interrupted_job_goes_on_behind_its_windows(tmp_path: Path) -> None:
    """Of 600 lines in windows of 256, one window is done when the first run ends."""
    bodies = [{"input": f"text {place}"} for place in range(600)]
    (tmp_path / "in.jsonl").write_text(lines(*bodies))
    with pytest.raises(KeyboardInterrupt):
        job(tmp_path, Server(300))()
    second = Server(1_000)
    job(tmp_path, second)()
    assert bodies_of(tmp_path / "out.jsonl") == bodies
    assert len(second.asked) == 600 - 256


def test_a_name_that_an_earlier_line_has_is_refused_in_a_job_that_goes_on_too(
    tmp_path: Path,
) -> None:
    """Of 300 lines, the last has the first one's name; 256 are done before it is read."""
    bodies = [{"input": f"text {place}"} for place in range(300)]
    content = lines(*bodies).replace("line-299", "line-0")
    (tmp_path / "in.jsonl").write_text("\ufeff" + content)
    with pytest.raises(KeyboardInterrupt):
        job(tmp_path, Server(290))()
    job(tmp_path, Server(1_000))()
    assert bodies_of(tmp_path / "out.jsonl") == bodies[:-1]
    (error,) = (tmp_path / "out.jsonl.errors.jsonl").read_text().splitlines()
    reason = "is refused: custom_id 'line-0' is that of an earlier line"
    assert json.loads(error)["reason"] == reason


def test_a_server_that_goes_away_ends_the_job(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(lines(GOOD))
    made = batch_job(tmp_path / "in.jsonl", tmp_path / "out.jsonl", 1, 0.0)

    class Away:
        def post(self, place: str, body: bytes) -> tuple[int, bytes, str]:
            raise CallError("UNAVAILABLE", f"{place} is away for {len(body)} bytes")

    with pytest.raises(CallError):
        run_job(made, made.work.ask(Away()), restarts=False)


@pytest.mark.parametrize(
    ("source", "output", "why"),
    [
        ("in.txt", "out.jsonl", "FILE is 'in.txt', expected a file that ends with .jsonl"),
        ("in.jsonl", "out.parquet", "--output is 'out.parquet', expected a file"),
        ("none.jsonl", "out.jsonl", "cannot be read"),
        ("in.jsonl", "none/out.jsonl", "in a folder that does not exist"),
    ],
)
def test_files_of_another_form_are_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, output: str, why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.jsonl").write_text("")
    with pytest.raises(SettingError, match=why):
        batch_job(Path(source), Path(output), 1, 0.0)
