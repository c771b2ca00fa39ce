"""Records of work: a request, each batch and step that ran, each sequence; and their observers.

They are below the engines, which fill them in, and below the metrics, logs and traces, which read
them.
Clocks are `time.monotonic()` seconds throughout.
"""

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from typing import Protocol, Self


class FinishReason(Enum):
    """Why a sequence ended; values are the metric's labels, in vLLM's words."""

    STOP = "stop"  # the end-of-text token, a stop token or a stop string
    LENGTH = "length"  # max_tokens, or the model's context is full
    ABORT = "abort"  # the client left, or its deadline passed
    ERROR = "error"  # the model failed


@dataclass(slots=True)
class SequenceTimings:
    """The times of a sequence's events; 0 for events that have not happened."""

    received_s: float
    queued_s: float = 0.0
    scheduled_s: float = 0.0  # entered its first step
    first_token_s: float = 0.0
    last_token_s: float = 0.0
    finished_s: float = 0.0

    @property
    def queue_s(self) -> float:
        return (self.scheduled_s or self.finished_s) - self.queued_s

    @property
    def prefill_s(self) -> float:
        return self.first_token_s - self.scheduled_s

    @property
    def decode_s(self) -> float:
        return self.last_token_s - self.first_token_s

    @property
    def time_to_first_token_s(self) -> float:
        return self.first_token_s - self.received_s

    @property
    def total_s(self) -> float:
        return self.finished_s - self.received_s


@dataclass(frozen=True, slots=True)
class RanStep:
    """One step: its work, and the duration of each part."""

    phase: str  # prefill or decode
    num_rows: int
    num_tokens: int
    run_s: float  # in the session
    other_s: float  # planning, sampling, detokenizing
    num_moved_rows: int  # copied between slots since the step before
    num_evictions: int  # of pieces that a store of prefixes gave up since then
    num_drafted: int  # tokens computed before it was known whether they are said
    agreed: tuple[int, ...]  # of those, that were said, by draft
    time_to_first_token_s: tuple[float, ...]  # of sequences whose first token this was
    inter_token_s: tuple[float, ...]  # of the others

    @property
    def num_agreed(self) -> int:
        """The drafted tokens that were said."""
        return sum(self.agreed)


@dataclass(slots=True)
class Timings:
    """When a request passed each station; one record for response, log and metrics."""

    received_s: float
    _: KW_ONLY
    queued_s: float = 0.0
    started_s: float = 0.0  # its first item entered a batch
    finished_s: float = 0.0
    # Summed over the batches that computed its items.
    collate_s: float = 0.0
    run_s: float = 0.0
    split_s: float = 0.0
    expected_s: float = 0.0  # from queued_s to its end, by what was known then; 0: not at all
    trust_factor: float = 1.0  # by which such expectations were exceeded until then
    usual_factor: float = 1.0  # the same for waits without a deadline

    @classmethod
    def without_batch(cls, received_s: float, now_s: float) -> Self:
        """The timings of a request that is answered now, without a batch."""
        return cls(received_s, queued_s=now_s, started_s=now_s, finished_s=now_s)

    def add(self, ran: "RanBatch") -> None:
        """Count a batch that some of the request's items were in."""
        self.collate_s += ran.collate_s
        self.run_s += ran.run_s
        self.split_s += ran.split_s

    @property
    def queue_s(self) -> float:
        return self.started_s - self.queued_s

    @property
    def compute_s(self) -> float:
        return self.collate_s + self.run_s + self.split_s

    @property
    def total_s(self) -> float:
        return self.finished_s - self.received_s


@dataclass(slots=True)
class EndedRequest:
    """A request that a model answered, or that ended with an error."""

    timings: Timings
    num_rows: int = 0
    request_id: str = ""
    lookup_s: float | None = None  # in the response cache, which answered
    error: BaseException | None = None


class Watched(Protocol):
    """A request as telemetry reads it."""

    @property
    def call(self) -> object | None: ...


class RanItem(Protocol):
    """Rows of one request that were in a batch."""

    @property
    def request(self) -> Watched: ...

    @property
    def num_rows(self) -> int: ...

    @property
    def num_tokens(self) -> int: ...


@dataclass(frozen=True, slots=True)
class RanBatch:
    """One session run: what went in, and how long each part took."""

    items: Sequence[RanItem]
    collate_s: float
    run_s: float
    split_s: float
    started_s: float = 0.0

    @property
    def num_rows(self) -> int:
        return sum([item.num_rows for item in self.items])

    @property
    def num_tokens(self) -> int:
        return sum([item.num_rows * item.num_tokens for item in self.items])

    @property
    def num_padded_tokens(self) -> int:
        """B * S: what was computed, padding included."""
        return self.num_rows * max([item.num_tokens for item in self.items])


class Sampling(Protocol):
    """A client's sampling parameters."""

    @property
    def temperature(self) -> float: ...

    @property
    def top_p(self) -> float: ...

    @property
    def top_k(self) -> int: ...

    @property
    def n(self) -> int: ...

    @property
    def seed(self) -> int | None: ...


class Prompted(Protocol):
    """The request that a sample belongs to."""

    @property
    def params(self) -> Sampling: ...

    @property
    def max_tokens(self) -> int: ...


class Sample(Protocol):
    """A generated sequence, as metrics and traces read it."""

    @property
    def request(self) -> Prompted: ...

    @property
    def timings(self) -> SequenceTimings: ...

    @property
    def sample_index(self) -> int: ...

    @property
    def finish_reason(self) -> FinishReason | None: ...

    @property
    def num_prompt_tokens(self) -> int: ...

    @property
    def num_output_tokens(self) -> int: ...

    @property
    def num_reused_tokens(self) -> int: ...

    @property
    def num_stored_tokens(self) -> int: ...


MAX_BATCHES = 32  # of one request that are remembered


@dataclass(slots=True, eq=False)
class ObservedCall:
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
    code: int = 0  # the front's number of how it ended
    status: str = "OK"  # gRPC's name of it, at every front
    error: str = ""  # the text that the client got
    tokenized_s: tuple[float, float] | None = None  # beginning and end
    timings: Timings | None = None
    is_cached: bool = False  # the response cache answered
    batches: list[object] = field(
        default_factory=list
    )  # that it ran in, as observe/telemetry.py has them
    sequences: tuple[Sample, ...] = ()  # of generation, one per sample
    trace_id: str = ""
    span: object | None = None  # of observe/telemetry.py, where the request is traced
    protocol: str = "grpc"  # the front that it came through: grpc or http

    def ran_in(self, batch: object) -> None:
        """Called on engine threads, before the request is answered."""
        if len(self.batches) < MAX_BATCHES:
            self.batches.append(batch)


current_call: ContextVar[ObservedCall | None] = ContextVar("request of this task", default=None)


class Observer:
    """An observer of one model version, or of all: it overrides the events that it observes.

    Engines report what ran, and sequences, on their threads and outside their locks; models report
    requests on the event loop. An observer must not raise.
    """

    def batch_ran(self, batch: RanBatch) -> None:
        """A batch ran; its requests are answered afterwards."""

    def step_ran(self, step: RanStep) -> None:
        """A step of generation ran."""

    def sequence_ended(self, sequence: Sample) -> None:
        """A generated sequence has a `finish_reason` now."""

    def request_ended(self, request: EndedRequest) -> None:
        """A request was answered, failed, or was cancelled."""
