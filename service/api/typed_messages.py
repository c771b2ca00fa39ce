"""The typed API's calls: those of tasks by records, and what has no task by messages.

The methods of tasks are those of `serving/tasks/table.py`, which have no code of their own here.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from attendant.v1 import text_pb2
from google.protobuf.message import Message

from service.api.codec import names_of, writer
from service.api.conversations import conversation_of
from service.api.typed import TypedCalls
from service.calls.models import ModelFacts
from service.calls.record import Call
from service.repository.repository import ModelRepository
from service.serving.model import Caller
from service.serving.tasks.table import METHODS
from service.serving.tasks.task import Fields


class TypedMessageCalls:
    """The methods of tasks, by messages, and what is known of every model."""

    def __init__(self, calls: TypedCalls, repository: ModelRepository) -> None:
        self._calls = calls
        self._repository = repository

    def of_task(self, name: str) -> Callable[..., Any]:
        """A call that answers as the task of that name does."""
        method, calls = METHODS[name], self._calls

        async def answer(
            call: Call, caller: Caller, build: Callable[[Any], Any] = lambda answer: answer
        ) -> Any:  # noqa: ANN401 - what `build` makes
            return await calls.answer(method, call, caller, build)

        return answer

    async def Tokenize(
        self, request: text_pb2.TokenizeRequest, caller: Caller
    ) -> text_pb2.TokenizeResponse:
        has_conversation = request.HasField("conversation")
        conversation = conversation_of(request.conversation) if has_conversation else None
        fields = {**_TOKENIZED(request), "conversation": conversation}
        return await self._calls.tokens(fields, caller, _tokenize_response)

    async def Detokenize(
        self, request: text_pb2.DetokenizeRequest, _: Caller
    ) -> text_pb2.DetokenizeResponse:
        return await self._calls.text(
            _DETOKENIZED(request), lambda fields: text_pb2.DetokenizeResponse(**fields)
        )

    async def ListModels(
        self, request: text_pb2.ListModelsRequest, caller: Caller
    ) -> text_pb2.ListModelsResponse:
        models = [_WRITE_FACTS(model.facts()) for model in self._repository.models()]
        return text_pb2.ListModelsResponse(models=models, max_texts=self._calls.max_items)


def reader_of(kind: type[Message]) -> Callable[[Any], Fields]:
    """A function from messages of a kind to their fields, the names of enumerated values as such.

    The first value of an enumeration is without a name, and a number without a value stays one.
    An optional field that the message leaves out is None.
    """
    names = tuple(field.name for field in kind.DESCRIPTOR.fields)
    values_of = attrgetter(*names)
    enums = {
        field.name: names_of(field.enum_type)
        for field in kind.DESCRIPTOR.fields
        if field.enum_type is not None
    }
    lists = {field.name for field in kind.DESCRIPTOR.fields if field.is_repeated}
    optional = [
        field.name
        for field in kind.DESCRIPTOR.fields
        if field.has_presence and field.message_type is None
    ]

    def fields_of(message: Any) -> Fields:  # noqa: ANN401 - of that kind
        fields = dict(zip(names, values_of(message), strict=True))
        for name, choices in enums.items():
            value = fields[name]
            fields[name] = (
                [choices.get(each, each) for each in value]
                if name in lists
                else choices.get(value, value)
            )
        for name in optional:
            if not message.HasField(name):
                fields[name] = None
        return fields

    return fields_of


_WRITE_FACTS = writer(text_pb2.Model, ModelFacts)
_TOKENIZED = reader_of(text_pb2.TokenizeRequest)
_DETOKENIZED = reader_of(text_pb2.DetokenizeRequest)


def _tokenize_response(fields: Fields) -> text_pb2.TokenizeResponse:
    """The message; its tokens are made one by one, so that others have the interpreter."""
    texts = fields["results"]
    response = text_pb2.TokenizeResponse(**{**fields, "results": ()})
    for text in texts:
        result = response.results.add(**{**text, "tokens": ()})
        result.tokens.extend(text_pb2.Token(**token) for token in text["tokens"])
    return response
