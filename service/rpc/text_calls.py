"""What the typed calls on texts have in common: whom they ask, within which bounds, and when."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from attendant.v1 import text_pb2 as pb

from service.errors import InvalidArgument, WrongTask
from service.generation.model import GenerativeModel
from service.manifest import Task
from service.models import Caller, ServedModel, TextModel, TextReply
from service.repository import ModelRepository
from service.request import Timings
from service.rpc.admission import Admission
from service.tasks import VERBS
from service.tokenizer import Text

Model = TypeVar("Model", bound=TextModel)


class NamesModel(Protocol):
    """A message that says whom it asks."""

    @property
    def model(self) -> str: ...

    @property
    def version(self) -> str: ...


class TextCalls:
    """Answers for the text models of the repository; a base of servicers."""

    def __init__(self, repository: ModelRepository, admission: Admission, max_texts: int) -> None:
        self._repository = repository
        self._admission = admission
        self._max_texts = max_texts

    def _find(self, request: NamesModel, task: Task, kind: type[Model]) -> Model:
        """The model that a request names, which does the task."""
        model = self._find_any(request)
        if not isinstance(model, kind) or model.manifest.task != task:
            raise wrong_task(model, task)
        return model

    def _find_any(self, request: NamesModel) -> TextModel | GenerativeModel:
        model = self._repository.find(request.model, request.version)
        if not isinstance(model, TextModel | GenerativeModel):
            raise WrongTask(f"model '{model.name}' takes tensors, not texts")
        return model

    def _check_count(self, count: int, name: str = "texts") -> None:
        """Raise `InvalidArgument` for more texts than the server takes, or none."""
        if not 1 <= count <= self._max_texts:
            raise InvalidArgument(f"{name} has {count} elements, expected 1 to {self._max_texts}")

    async def _compute(
        self,
        model: TextModel,
        texts: Sequence[Text],
        caller: Caller,
        *,
        can_truncate: bool = False,
    ) -> TextReply:
        """Run texts, each an item of its own in batching."""
        self._admission.admit()
        with model.users:
            return await model.compute(texts, caller, can_truncate)


def wrong_task(model: TextModel | GenerativeModel, task: Task) -> WrongTask:
    """A model that takes texts was asked for another task than its own."""
    return WrongTask(f"model '{model.name}' does {model.manifest.task}, it cannot {VERBS[task]}")


def answered_by(model: ServedModel, reply: TextReply) -> dict[str, Any]:
    """The fields that every response on computed texts starts with."""
    return {
        "model": model.name,
        "version": str(model.version),
        "num_tokens": sum(row.num_tokens for row in reply.rows),
        "timings": timings_message(reply.timings),
    }


def timings_message(timings: Timings) -> pb.Timings:
    return pb.Timings(
        queue_seconds=timings.queue_s,
        compute_seconds=timings.compute_s,
        total_seconds=timings.total_s,
    )
