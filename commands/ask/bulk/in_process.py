"""A model in this process, asked as a server is: its queue, batches and answers, without ports."""

import asyncio
import time
from pathlib import Path
from threading import Thread
from typing import Any, Self

from commands.ask.client.refusal import CallError
from service.api.admission import Admission, Stay, current_stay
from service.api.calls import Calls, details
from service.api.operations import Operation, server_operations
from service.calls.models import ListModels, Models
from service.errors import AttendantError, LoadError
from service.observe.observers import Observers
from service.observe.trace_files import Tracing
from service.repository.loading import Openers
from service.repository.repository import ModelRepository
from service.rpc.status import ATTENDANT_CODES
from service.serving.model import Caller
from service.settings import Settings

CLOSE_S = 10.0  # for a run to end
RETRY_S = 0.1


class InProcess:
    """The calls of one model; `ask` may be called from several threads at once."""

    def __init__(
        self, repository: Path, model: str, *, num_threads: int = 0, precision: str = "auto"
    ) -> None:
        """Raises `LoadError`; `num_threads` 0 is what the server takes by default."""
        threads = {"num_threads": num_threads} if num_threads else {}
        settings = Settings(
            model_repository=repository,
            precision=precision,
            model_control_mode="explicit",
            load_models=model,
            **threads,  # type: ignore[arg-type]
        )
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="in-process", daemon=True)
        self._thread.start()
        try:
            self._in_loop(self._open(settings, model))
        except BaseException:
            self._end_loop()
            raise

    async def _open(self, settings: Settings, model: str) -> None:
        self._repository = ModelRepository(settings, Observers(), Openers())
        self._admission = Admission(settings)
        operations = server_operations(
            settings, self._repository, self._admission, Tracing(None), Calls()
        )
        self._by_name: dict[str, Operation] = {
            operation.name: operation for operation in operations.values() if operation.is_typed
        }
        await self._repository.load_all(_ignore_health)
        if failure := self._repository.failures.get(model):
            raise LoadError(failure)

    def ask(self, call: Any) -> Any:
        """The record of the answer to a request. Raises `CallError`."""
        operation = self._by_name[type(call).__name__]
        try:
            return self._in_loop(self._answer(operation, call))
        except AttendantError as error:
            code = ATTENDANT_CODES[type(error)].name
            retry_s = RETRY_S if code == "RESOURCE_EXHAUSTED" else 0.0
            raise CallError(code, details(error), retry_s) from error

    async def _answer(self, operation: Operation, call: Any) -> Any:
        stay = Stay()
        current_stay.set(stay)  # of this task
        try:
            return await operation.call(call, Caller(time.monotonic()))
        finally:
            self._admission.let_go(stay)

    def models(self) -> Models:
        answer: Models = self.ask(ListModels())
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._in_loop(asyncio.to_thread(self._repository.close, CLOSE_S))
        self._end_loop()

    def _in_loop(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_S)


def _ignore_health(name: str, *, is_serving: bool) -> None:
    """Health is what a server tells its clients of; here there are none."""
