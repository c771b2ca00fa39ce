"""The record of a request for logs and traces: its method, model, status and times.

There is one record per request, which the request's layers fill in. It exists only if there is an
observer (`rpc/calls.py`), and lives in a context variable of the request's task.
"""

from contextvars import ContextVar
from dataclasses import dataclass, field

from service.generation.sequence import Sequence
from service.request import Timings

MAX_BATCHES = 32  # of one request that are remembered


@dataclass(slots=True, eq=False)
class Call:
    """Names are those that the client sent, cut to what is worth keeping.

    Clocks are `time.monotonic()` seconds, and 0 for what has not happened.
    """

    service: str
    method: str
    started_s: float
    model: str = ""
    version: str = ""  # once the model is found, the one that answers
    request_id: str = ""
    finished_s: float = 0.0
    code: int = 0  # gRPC's number and name of how it ended
    status: str = "OK"
    error: str = ""  # the text that the client got
    tokenized_s: tuple[float, float] | None = None  # beginning and end
    timings: Timings | None = None
    is_cached: bool = False  # the response cache answered
    batches: list[object] = field(default_factory=list)  # that it ran in, as telemetry.py has them
    sequences: tuple[Sequence, ...] = ()  # of generation, one per sample
    trace_id: str = ""
    span: object | None = None  # of telemetry.py, where the request is traced

    def ran_in(self, batch: object) -> None:
        """Called on engine threads, before the request is answered."""
        if len(self.batches) < MAX_BATCHES:
            self.batches.append(batch)


current_call: ContextVar[Call | None] = ContextVar("request of this task", default=None)
