"""Files and batches as they are kept, and as OpenAI's API tells them."""

from typing import Any, Literal, TypeAlias
from uuid import uuid4

import msgspec

Purpose: TypeAlias = Literal["batch", "batch_output"]
Status: TypeAlias = Literal[
    "validating",
    "in_progress",
    "finalizing",
    "completed",
    "failed",
    "expired",
    "cancelling",
    "cancelled",
]
ENDED: tuple[Status, ...] = ("completed", "failed", "expired", "cancelled")


class StoredFile(msgspec.Struct, frozen=True):
    """A file: its content lies beside its record."""

    id: str
    bytes: int
    created_at: int
    expires_at: int
    filename: str
    purpose: Purpose

    def told(self) -> dict[str, Any]:
        return {"object": "file", "status": "processed", **msgspec.structs.asdict(self)}


class Counts(msgspec.Struct):
    """Numbers of a batch's requests."""

    total: int = 0
    completed: int = 0
    failed: int = 0


class Batch(msgspec.Struct, kw_only=True):
    """A batch, and when it came to each of its states, in seconds since 1970."""

    id: str
    endpoint: str
    input_file_id: str
    completion_window: str
    metadata: dict[str, str] | None = None
    created_at: int
    expires_at: int
    status: Status = "validating"
    in_progress_at: int | None = None
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    errors: list[dict[str, Any]] = []
    request_counts: Counts = msgspec.field(default_factory=Counts)

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED

    @property
    def is_finishing(self) -> bool:
        """Whether its results become files, or are some."""
        has_files = self.output_file_id is not None or self.error_file_id is not None
        return self.status == "finalizing" or has_files

    def come_to(self, status: Status, now_s: float) -> None:
        """Enter a state."""
        self.status = status
        if status != "validating":
            setattr(self, f"{status}_at", int(now_s))

    def told(self) -> dict[str, Any]:
        errors = {"object": "list", "data": self.errors} if self.errors else None
        return {"object": "batch", **msgspec.structs.asdict(self), "errors": errors}


def new_id(prefix: str) -> str:
    return f"{prefix}{uuid4().hex}"
