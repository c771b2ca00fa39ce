"""Common fields of the pipelines: the model, inputs of one text or of several, refusals."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from service.contract.manifest import Manifest
from service.http.request import Reply, Request
from service.http.status import HttpError

Values: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Target:
    """The model that a path names."""

    name: str
    manifest: Manifest


Pipeline: TypeAlias = Callable[[Request, Target], Awaitable[Reply | None]]


def wrong_task(target: Target) -> HttpError:
    return HttpError(
        400,
        f"model '{target.name}' does {target.manifest.task}, which has no pipeline",
        code="wrong_task",
    )
