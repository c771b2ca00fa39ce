"""Runs batches: validates a file, answers its lines in the background, and ends in two files.

A line is handled as a request to its path, by the same handler (`Ask`). Its result is appended
whole to the batch's output, or errors, before it counts; a server that starts anew reads there
which lines are done. Lives on the event loop; files are read and written on threads.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import BinaryIO, TypeAlias

import msgspec

from service.http.batches.lines import Fault, Line, check_lines, numbered, read_line
from service.http.batches.records import Batch, Status, new_id
from service.http.batches.store import Store
from service.runtime.background import in_thread
from service.settings import Settings

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0  # before a line is asked again that was refused for now
REFUSED, FAILED = 400, 500
REFUSED_FOR_NOW = (429, 503)
TAKEN, TAKEN_BYTES = 64, 2**20  # lines that are read at once, and bytes after which no more are
LATE = "This request could not be executed before the completion window expired."
RESULTS = "output", "error"  # the kinds of results, each of which becomes a file
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LineAnswer:
    """The answer to a line, as a client would get it."""

    status: int
    body: bytes
    request_id: str


Ask: TypeAlias = Callable[[str, bytes], Awaitable[LineAnswer]]


class _Done(msgspec.Struct):
    """The part of a result that is read when a batch goes on."""

    custom_id: str


@dataclass(slots=True, eq=False)
class Runner:
    """The batches that are under way."""

    settings: Settings
    store: Store
    ask: Ask
    may_begin: Callable[[], bool]  # whether models are loaded
    num_lines: Counter[str] = field(default_factory=Counter)  # by result: completed, failed
    _tasks: dict[asyncio.Task[None], Batch] = field(default_factory=dict)
    is_leaving: bool = False
    _places: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self._places = asyncio.Semaphore(self.settings.max_running_batches)

    @property
    def num_unfinished(self) -> int:
        """Batches that have not ended."""
        return sum(not batch.has_ended for batch in self.store.batches.values())

    def start(self) -> None:
        """Go on with what an earlier server left."""
        for batch in self.store.batches.values():
            if not batch.has_ended:
                self.begin(batch)

    def begin(self, batch: Batch) -> None:
        """Run a batch, once its earlier task has ended."""
        earlier = [task for task, each in self._tasks.items() if each is batch]
        task = asyncio.get_running_loop().create_task(self._run(batch, earlier))
        self._tasks[task] = batch
        task.add_done_callback(self._tasks.pop)

    async def cancel(self, batch: Batch) -> None:
        """End a batch; what is done of it stays."""
        batch.come_to("cancelling", time.time())
        for task, each in self._tasks.items():
            if each is batch:
                task.cancel()
        self.begin(batch)  # before anything is waited for: the client may leave
        await self.store.save(batch)

    def leave(self) -> None:
        """Begin no more lines: the server drains."""
        self.is_leaving = True

    async def stop(self) -> None:
        """Cancel the lines that are left; the next server begins them anew."""
        self.is_leaving = True
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self.store.close()

    async def _run(self, batch: Batch, earlier: Collection[asyncio.Task[None]]) -> None:
        try:
            if earlier:
                await asyncio.wait(earlier)
            while not self.may_begin():  # noqa: ASYNC110 - no event tells of it
                await asyncio.sleep(FIRST_PAUSE_S)
            await _Run(self, batch).run(self._places)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # of the disk, or a fault of ours
            logger.exception("batch %s failed", batch.id)
            batch.errors = [Fault("server_error", f"the server failed on it: {error}").told()]
            with suppress(Exception):  # the same again
                await _Run(self, batch).finish()


class _Run:
    """One batch while it runs."""

    def __init__(self, runner: Runner, batch: Batch) -> None:
        self._runner, self._batch = runner, batch
        self._store, self._settings = runner.store, runner.settings
        self._done: set[str] = set()  # lines with a result, by custom_id
        self._results: dict[str, BinaryIO] = {}
        self._disk = ThreadPoolExecutor(1, "batch")  # writes results, in their order

    async def run(self, places: asyncio.Semaphore) -> None:
        batch = self._batch
        if batch.status == "validating" and not await self._validate():
            return
        if not batch.is_finishing:
            try:
                self._store.num_bytes -= await in_thread(self._open_results)
                if batch.status == "in_progress":
                    async with places:
                        await self._answer_all()
            finally:
                await in_thread(self._close_results)
        if batch.status != "in_progress" or not self._runner.is_leaving:
            await self.finish()

    async def _validate(self) -> bool:
        batch, settings = self._batch, self._settings

        def check() -> tuple[int, list[Fault]]:
            with self._store.open_file(batch.input_file_id) as file:
                return check_lines(
                    file, batch.endpoint, settings.max_batch_lines, settings.http_max_json_bytes
                )

        num_lines, faults = await in_thread(check)
        if faults:
            batch.errors = [fault.told() for fault in faults]
            batch.come_to("failed", time.time())
        else:
            batch.request_counts.total = num_lines
            batch.come_to("in_progress", time.time())
        await self._store.save(batch)
        return not faults

    def _open_results(self) -> int:
        """The bytes that are cut of results, which end behind their last whole line then.

        Opens the results, and notes what they have.
        """
        num_lines, num_cut = {}, 0
        for kind in RESULTS:
            path = self._store.results_path(self._batch.id, kind)
            file = self._results[kind] = path.open("a+b")
            file.seek(0)
            end = num_lines[kind] = 0
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._done.add(msgspec.json.decode(line, type=_Done).custom_id)
                end, num_lines[kind] = end + len(line), num_lines[kind] + 1
            num_cut += path.stat().st_size - end
            file.truncate(end)
        counts = self._batch.request_counts
        counts.completed, counts.failed = num_lines["output"], num_lines["error"]
        return num_cut

    def _close_results(self) -> None:
        self._disk.shutdown()
        for file in self._results.values():
            file.close()

    async def _answer_all(self) -> None:
        """Answer the lines that have no result, several at once, until the batch's time is over."""
        batch = self._batch
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, batch.expires_at - time.time())):
                await self._answer_lines()
            return
        for lines in self._lines_left():
            for line in await in_thread(lines):
                await self._write(line, "error", error={"code": "batch_expired", "message": LATE})

    async def _answer_lines(self) -> None:
        places = asyncio.Semaphore(self._settings.batch_lines_in_flight)
        async with asyncio.TaskGroup() as group:
            for lines in self._lines_left():
                for line in await in_thread(lines):
                    await places.acquire()
                    if self._runner.is_leaving or self._batch.errors:
                        return
                    task = group.create_task(self._answer(line))
                    task.add_done_callback(lambda _: places.release())

    def _lines_left(self) -> Iterator[Callable[[], list[Line]]]:
        """Functions that read a few more of the lines without a result, until there are none."""
        batch, most = self._batch, self._settings.http_max_json_bytes
        with self._store.open_file(batch.input_file_id) as file:
            contents = numbered(file)
            has_more = True

            def take() -> list[Line]:
                nonlocal has_more
                taken: list[Line] = []
                num_bytes = 0
                for _, content in contents:
                    line = read_line(content, batch.endpoint, most)
                    if line.custom_id not in self._done:
                        taken.append(line)
                        num_bytes += len(line.body)
                    if len(taken) == TAKEN or num_bytes > TAKEN_BYTES:
                        return taken
                has_more = False
                return taken

            while has_more:
                yield take

    async def _answer(self, line: Line) -> None:
        """Answer a line, again and again where it is refused for now."""
        pause_s, body = FIRST_PAUSE_S, bytes(line.body)
        while True:
            answer = await self._runner.ask(line.url, body)
            if self._runner.is_leaving and answer.status >= FAILED:
                return
            if answer.status not in REFUSED_FOR_NOW:
                break
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            if self._runner.is_leaving:
                return
        response = {
            "status_code": answer.status,
            "request_id": answer.request_id,
            "body": msgspec.Raw(answer.body),
        }
        await self._write(line, "output" if answer.status < REFUSED else "error", response)

    async def _write(
        self,
        line: Line,
        kind: str,
        response: Mapping[str, object] | None = None,
        error: Mapping[str, str] | None = None,
    ) -> None:
        batch, file = self._batch, self._results[kind]
        fields = {"id": new_id("batch_req_"), "custom_id": line.custom_id}
        content = msgspec.json.encode({**fields, "response": response, "error": error}) + b"\n"
        if len(content) > self._store.room_bytes:
            if not batch.errors:
                text = "there is no room for more results: delete files, or see --max-batch-bytes"
                batch.errors = [Fault("storage_full", text).told()]
            return
        self._store.num_bytes += len(content)

        def write() -> None:
            file.write(content)
            file.flush()

        await asyncio.get_running_loop().run_in_executor(self._disk, write)
        self._done.add(line.custom_id)
        result = "completed" if kind == "output" else "failed"
        self._runner.num_lines[result] += 1
        setattr(batch.request_counts, result, getattr(batch.request_counts, result) + 1)

    async def finish(self) -> None:
        """Make files of the results, and end the batch."""
        batch, store = self._batch, self._store
        end: Status = "completed"
        if batch.status == "cancelling":
            end = "cancelled"
        elif batch.errors:
            end = "failed"
        elif time.time() >= batch.expires_at and batch.status == "in_progress":
            end = "expired"
        elif batch.status == "in_progress":
            batch.come_to("finalizing", time.time())
        for kind in RESULTS:
            path, name = store.results_path(batch.id, kind), f"{kind}_file_id"
            if getattr(batch, name) is None and path.exists():
                if path.stat().st_size:
                    setattr(batch, name, new_id("file-"))
                else:
                    path.unlink()
        await store.save(batch)  # first: a server that starts anew goes on from here
        for kind in RESULTS:
            if (file_id := getattr(batch, f"{kind}_file_id")) is not None:
                await store.adopt(batch.id, kind, file_id)
        batch.come_to(end, time.time())
        await store.save(batch)
