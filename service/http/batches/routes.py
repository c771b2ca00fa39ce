"""`/v1/files` and `/v1/batches`, as OpenAI's API has them; 501 where no folder keeps them."""

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qs

import msgspec

from service.http.batches.form import Part, parts_of
from service.http.batches.lines import ENDPOINTS, MAX_SHOWN
from service.http.batches.records import Batch, StoredFile, new_id
from service.http.batches.runner import Runner
from service.http.request import Reply, Request
from service.http.routes import Handler, Route
from service.http.shared.paths import GENERATE_UNARY
from service.http.status import NO_RETRY, HttpError, invalid
from service.runtime.background import in_thread

BASES = ("/v1", "/openai/v1")
JSONL = b"application/jsonl"
PIECE_BYTES = 2**18  # of a file that is sent
WINDOW = re.compile(r"([1-9]\d{0,2})h")
MAX_WINDOW_HOURS = 168
HOUR_S = 3_600
MAX_METADATA, MAX_KEY, MAX_VALUE = 16, 64, 512
LEAST_S, MOST_S = 3_600, 2_592_000  # for which a form may keep its file
FORM: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "file": {"type": "string", "format": "binary"},
        "purpose": {"const": "batch"},
        "expires_after[anchor]": {"const": "created_at"},
        "expires_after[seconds]": {"type": "integer", "minimum": LEAST_S, "maximum": MOST_S},
    },
    "required": ["file", "purpose"],
}
L = TypeVar("L", StoredFile, Batch)


class CreateBatch(msgspec.Struct, kw_only=True):
    """The body, as OpenAI has it."""

    input_file_id: str
    endpoint: str
    completion_window: str
    metadata: dict[str, str] | None = None


def batch_routes(runner: Runner | None) -> tuple[Route, ...]:
    """The routes; where there is nothing to run batches, they say what turns them on."""
    calls = _Calls(runner) if runner is not None else None

    def route(
        method: str,
        path: str,
        name: str,
        **more: Any,  # noqa: ANN401 - fields of routes
    ) -> Iterable[Route]:
        handler: Handler = getattr(calls, name) if calls is not None else _off
        return (Route(method, f"{base}{path}", handler, GENERATE_UNARY, **more) for base in BASES)

    return (
        *route("POST", "/files", "upload", form=FORM),
        *route("GET", "/files", "list_files"),
        *route("GET", "/files/{file}", "show_file"),
        *route("DELETE", "/files/{file}", "delete_file"),
        *route("GET", "/files/{file}/content", "content", gives="application/jsonl"),
        *route("POST", "/batches", "create", bodies=(CreateBatch,)),
        *route("GET", "/batches", "list_batches"),
        *route("GET", "/batches/{batch}", "show_batch"),
        *route("POST", "/batches/{batch}/cancel", "cancel"),
    )


async def _off(_: Request) -> Reply:
    text = "files and batches are not kept by this server, expected --batch-folder to be set"
    raise HttpError(501, text, code="unsupported", headers=NO_RETRY)


@dataclass(frozen=True, slots=True)
class _Calls:
    """The handlers of a server that runs batches."""

    runner: Runner

    async def upload(self, request: Request) -> Reply:
        kind = request.header("content-type")
        parts = await request.work(lambda: parts_of(request.body, kind))
        for name in ("file", "purpose"):
            if name not in parts:
                raise invalid(f"the form has no '{name}'", name, "missing_required_parameter")
        purpose = parts["purpose"].text
        if purpose != "batch":
            raise invalid(f"purpose is '{purpose[:MAX_SHOWN]}', expected batch", "purpose")
        keep_s, file = _keep_s(parts), parts["file"]
        stored = await self.runner.store.add(
            file.content, file.filename or "batch.jsonl", "batch", keep_s
        )
        return Reply.json(stored.told())

    async def list_files(self, request: Request) -> Reply:
        await self.runner.store.forget_expired()
        query = _query(request)
        files: Iterable[StoredFile] = self.runner.store.files.values()
        if (purpose := query.get("purpose")) is not None:
            files = [file for file in files if file.purpose == purpose]
        return _page(files, query, most=10_000, usual=10_000)

    async def show_file(self, request: Request) -> Reply:
        return Reply.json(self._file(request).told())

    async def delete_file(self, request: Request) -> Reply:
        file = self._file(request)
        batch = self.runner.store.used_files().get(file.id)
        if batch is not None:
            text = f"the file '{file.id}' is read by batch '{batch}', which has not ended"
            raise HttpError(409, text, code="file_in_use")
        await self.runner.store.remove(file.id)
        return Reply.json({"id": file.id, "object": "file", "deleted": True})

    async def content(self, request: Request) -> None:
        """The content, sent as it is read."""
        stored = self._file(request)
        with self.runner.store.open_file(stored.id) as file:
            headers = [(b"content-type", JSONL), (b"content-length", b"%d" % stored.bytes)]
            request.front.answered(200)
            await request.start(200, [*request.reply_headers, *headers])
            while piece := await in_thread(lambda: file.read(PIECE_BYTES)):
                await request.write(piece)
        await request.write(b"", has_more=False)
        await request.until_taken()

    async def create(self, request: Request) -> Reply:
        asked = await request.json(CreateBatch)
        store = self.runner.store
        if asked.endpoint not in ENDPOINTS:
            text = f"endpoint is '{asked.endpoint[:MAX_SHOWN]}', expected one of "
            raise invalid(text + ", ".join(ENDPOINTS), "endpoint")
        window = WINDOW.fullmatch(asked.completion_window)
        if window is None or int(window[1]) > MAX_WINDOW_HOURS:
            text = f"completion_window is '{asked.completion_window[:MAX_SHOWN]}', expected 24h, or"
            raise invalid(f"{text} another of 1h to {MAX_WINDOW_HOURS}h", "completion_window")
        _check_metadata(asked.metadata or {})
        await store.forget_expired()
        file = store.files.get(asked.input_file_id)
        if file is None or file.purpose != "batch":
            text = f"input_file_id is '{asked.input_file_id[:MAX_SHOWN]}', which is no file of "
            raise invalid(text + "the purpose batch", "input_file_id")
        self._check_room()
        now_s = int(time.time())
        batch = Batch(
            id=new_id("batch_"),
            endpoint=asked.endpoint,
            input_file_id=file.id,
            completion_window=asked.completion_window,
            metadata=asked.metadata,
            created_at=now_s,
            expires_at=now_s + int(window[1]) * HOUR_S,
        )
        told = batch.told()
        self.runner.begin(batch)  # first: a client that leaves now has begun it, too
        await store.save(batch)
        return Reply.json(told)

    async def list_batches(self, request: Request) -> Reply:
        return _page(self.runner.store.batches.values(), _query(request), most=100, usual=20)

    async def show_batch(self, request: Request) -> Reply:
        return Reply.json(self._batch(request).told())

    async def cancel(self, request: Request) -> Reply:
        batch = self._batch(request)
        if batch.has_ended or batch.is_finishing:
            text = f"batch '{batch.id}' is {batch.status}, and cannot be cancelled any more"
            raise HttpError(409, text, code="batch_has_ended")
        if batch.status != "cancelling":
            await self.runner.cancel(batch)
        return Reply.json(batch.told())

    def _check_room(self) -> None:
        settings, batches = self.runner.settings, self.runner.store.batches.values()
        if self.runner.num_unfinished >= settings.max_waiting_batches:
            raise HttpError(
                429,
                f"{settings.max_waiting_batches} batches have not ended: see --max-waiting-batches",
                kind="rate_limit_error",
                code="too_many_batches",
            )
        if len(batches) >= settings.max_batch_files:
            text = f"{settings.max_batch_files} batches are kept: see --max-batch-files"
            raise HttpError(413, text, code="storage_full")

    def _file(self, request: Request) -> StoredFile:
        return _named(self.runner.store.files, request.parameters["file"], "file")

    def _batch(self, request: Request) -> Batch:
        return _named(self.runner.store.batches, request.parameters["batch"], "batch")


def _keep_s(parts: Mapping[str, Part]) -> int | None:
    """The seconds for which a form says that its file is kept. Raises `HttpError`."""
    anchor, seconds = (parts.get(f"expires_after[{name}]") for name in ("anchor", "seconds"))
    if anchor is None and seconds is None:
        return None
    if anchor is None or anchor.text != "created_at":
        raise invalid("expires_after has no anchor 'created_at'", "expires_after")
    text = "" if seconds is None else seconds.text
    if not (text.isascii() and text.isdigit()) or not LEAST_S <= int(text[:9]) <= MOST_S:
        raise invalid(
            f"expires_after has the seconds '{text[:MAX_SHOWN]}', expected {LEAST_S} to {MOST_S}",
            "expires_after",
        )
    return int(text)


def _check_metadata(metadata: Mapping[str, str]) -> None:
    if len(metadata) > MAX_METADATA:
        raise invalid(
            f"metadata has {len(metadata)} keys, expected at most {MAX_METADATA}", "metadata"
        )
    for key, value in metadata.items():
        if len(key) > MAX_KEY or len(value) > MAX_VALUE:
            raise invalid(
                f"metadata has '{key[:MAX_KEY]}', expected keys of at most {MAX_KEY} characters "
                f"and values of at most {MAX_VALUE}",
                "metadata",
            )


def _named(known: Mapping[str, L], name: str, noun: str) -> L:
    if name not in known:
        text = f"there is no {noun} '{name[:MAX_SHOWN]}'"
        raise HttpError(404, text, code="not_found", param=f"{noun}_id")
    return known[name]


def _page(records: Iterable[L], query: Mapping[str, str], most: int, usual: int) -> Reply:
    """A page of a list, newest first unless `order` says otherwise. Raises `HttpError`."""
    order, limit, after = (query.get(name) for name in ("order", "limit", "after"))
    if order not in (None, "asc", "desc"):
        raise invalid(f"order is '{order[:MAX_SHOWN]}', expected asc or desc", "order")
    if limit is not None and not (
        limit.isascii() and limit.isdigit() and 1 <= int(limit[:9]) <= most
    ):
        raise invalid(f"limit is '{limit[:MAX_SHOWN]}', expected 1 to {most}", "limit")
    found = sorted(records, key=lambda record: (record.created_at, record.id))
    if order != "asc":
        found.reverse()
    if after is not None:
        places = [place for place, record in enumerate(found, start=1) if record.id == after]
        if not places:
            raise invalid(f"after is '{after[:MAX_SHOWN]}', which is not in the list", "after")
        found = found[places[0] :]
    page = found[: int(limit or usual)]
    return Reply.json(
        {
            "object": "list",
            "data": [record.told() for record in page],
            "first_id": page[0].id if page else None,
            "last_id": page[-1].id if page else None,
            "has_more": len(page) < len(found),
        }
    )


def _query(request: Request) -> dict[str, str]:
    """The values of a request's query. Raises `HttpError`."""
    try:
        given = parse_qs(request.query, max_num_fields=MAX_METADATA, keep_blank_values=True)
    except ValueError as error:
        raise HttpError(400, f"the query has more than {MAX_METADATA} fields") from error
    return {name: values[-1] for name, values in given.items()}
