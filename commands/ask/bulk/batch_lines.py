"""The work of a batch's file: each line is a request by itself, and its result a line of JSON."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec

from commands.ask.bulk.job import Job
from commands.ask.bulk.rows import Rows
from commands.ask.bulk.sources import Source
from commands.ask.lines import MAX_LINE_BYTES, StreamedTexts, Texts
from service.errors import SettingError
from service.http.batches.lines import MAX_SHOWN, Fault, read_line
from service.http.batches.records import new_id

WINDOW_LINES = 256  # that an interrupted job repeats at most twice


class Posting(Protocol):
    """A server's HTTP port."""

    def post(self, place: str, body: bytes) -> tuple[int, bytes, str]:
        """Status, body and request id of the answer to JSON."""
        ...


class BatchSource(Source):
    """A file of requests."""

    @contextmanager
    def open(self, num_before: int = 0, place: int = 0) -> Iterator[Texts]:
        """The lines after a number of them; a `custom_id` of one before is refused."""
        names: set[str] = set()
        text_of = partial(_request_of, names)
        with self.path.open("rb") as file:
            while file.tell() < place:
                text_of(file.readline().decode("utf-8-sig", "replace"))
        with self.path.open("rb", buffering=0) as file:
            file.seek(place)
            yield StreamedTexts(file, num_before=num_before, text_of=text_of, keeps_empty=True)


class BatchRows(Rows):
    """Results as OpenAI's output files have them."""

    def columns(self) -> dict[str, str]:
        return {}

    def cells_of(self, result: Any) -> tuple[Any, ...]:
        raise AssertionError(f"there are no columns of {type(result)}")

    def json_of(self, line: int, result: str) -> str:  # noqa: ARG002 - custom_id tells the line
        return result


@dataclass(frozen=True, slots=True)
class BatchWork:
    """Requests of several kinds, one for each line."""

    rows: Rows
    has_queries: bool = True  # a line is sent by itself

    def ask(self, client: Posting) -> Callable[[Sequence[str]], Any]:
        """A function that sends the request of a line. Raises `CallError`."""

        def ask(texts: Sequence[str]) -> str:
            (text,) = texts
            line = read_line(text.encode(), "", MAX_LINE_BYTES)
            status, body, request_id = client.post(line.url, bytes(line.body))
            response = {
                "status_code": status,
                "request_id": request_id,
                "body": msgspec.Raw(body),
            }
            named = {"id": new_id("batch_req_"), "custom_id": line.custom_id}
            return msgspec.json.encode({**named, "response": response, "error": None}).decode()

        return ask

    def results_of(self, answer: Any) -> list[Any]:
        return [answer]

    def options(self) -> dict[str, Any]:
        return {"request": "batch"}


def batch_job(path: Path, output: Path, in_flight: int, patience_s: float) -> Job:
    """The job of a file. Raises `SettingError`."""
    source = BatchSource(path.absolute())
    for name, each in (("FILE", path), ("--output", output)):
        if each.suffix.lower() != ".jsonl":
            raise SettingError(f"{name} is '{each}', expected a file that ends with .jsonl")
    source.check()
    if not output.absolute().parent.is_dir():
        raise SettingError(f"--output '{output}' is in a folder that does not exist")
    work = BatchWork(BatchRows())
    return Job(source, output.absolute(), work, {}, WINDOW_LINES, in_flight, patience_s)


def _request_of(names: set[str], content: str) -> tuple[str, str]:
    """A line as it is, or the reason why it cannot be sent; its name is added to those before."""
    try:
        name = read_line(content.encode(), "", MAX_LINE_BYTES).custom_id
    except Fault as fault:
        return "", f"is refused: {fault.message}"
    if name in names:
        return "", f"is refused: custom_id '{name[:MAX_SHOWN]}' is that of an earlier line"
    names.add(name)
    return content, ""
