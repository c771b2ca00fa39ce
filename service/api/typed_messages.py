"""The typed API's calls: those of tasks by records, and what has no task by messages.

The methods of tasks are those of `serving/tasks/table.py`, which have no code of their own here.
"""

from collections.abc import Callable
from dataclasses import asdict
from operator import attrgetter
from typing import Any

from attendant.v1 import text_pb2
from google.protobuf.message import Message

from service.api.codec import names_of
from service.api.conversations import conversation_of
from service.api.typed import TypedCalls
from service.calls.record import Call
from service.contract.manifest import Example, Manifest
from service.repository.repository import ModelRepository
from service.serving.generative_model import GenerativeModel
from service.serving.image_model import ImageModel
from service.serving.model import Caller, ServedModel
from service.serving.sequence_model import SequenceModel
from service.serving.tasks.embedding_kinds import kinds_of
from service.serving.tasks.fill_mask import FILL_MASK
from service.serving.tasks.table import METHODS
from service.serving.tasks.task import Fields
from service.serving.text_model import TextModel

MAX_LISTED_SYMBOLS = 256  # of a model
MAX_LISTED_EXAMPLES = 32


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
        models = map(_described, self._repository.models())
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


def _listed_examples(manifest: Manifest) -> list[text_pb2.Example]:
    """Examples of the manifest; the only one of an older export, where there are no others."""
    examples = manifest.examples[:MAX_LISTED_EXAMPLES]
    if not examples and manifest.example:
        examples = (Example(manifest.example),)
    return [
        text_pb2.Example(**asdict(example) | {"image": example.image_file}) for example in examples
    ]


def _described(model: ServedModel) -> text_pb2.Model:
    message = text_pb2.Model(
        name=model.name,
        version=str(model.version),
        task="tensors",
        max_batch_size=model.interface.max_batch_size,
        parent=model.interface.parent,
    )
    if isinstance(model, TextModel | GenerativeModel | ImageModel | SequenceModel):
        manifest = model.manifest
        text_fields = text_pb2.Model(
            task=manifest.task,
            precision=manifest.precision,
            layout_reason=model.interface.layout_reason,
            graph_device="" if manifest.device == "any" else manifest.device,
            layout=manifest.layout,
            max_tokens=manifest.max_tokens,
            labels=manifest.labels,
            score_function=manifest.scores_by,
            embedding_size=manifest.embedding_size,
            pooling=manifest.pooling,
            example=manifest.example,
            origin=manifest.origin,
            eos_token_ids=manifest.eos_token_ids,
            has_source=manifest.has_source or manifest.is_recurrent,
            examples=_listed_examples(manifest),
            num_layers=manifest.num_layers,
            num_heads=manifest.num_heads,
            has_words=manifest.has_words,
        )
        if manifest.image is not None:
            text_fields.image_height = manifest.image.height
            text_fields.image_width = manifest.image.width
            text_fields.image_channels = manifest.image.channels
        if manifest.embedder is not None:
            prompts = manifest.embedder.prompts.items()
            text_fields.prompts.extend(
                text_pb2.Prompt(name=name, text=text) for name, text in prompts
            )
            text_fields.default_prompt = manifest.embedder.default_prompt
            text_fields.dimensions.extend(manifest.embedder.dimensions)
        message.MergeFrom(text_fields)
    if isinstance(model, TextModel | GenerativeModel):
        message.vocabulary_size = model.tokenizer.num_tokens
    if isinstance(model, GenerativeModel):
        message.has_chat_template = model.chat is not None
        message.sampling_defaults.update(model.own_sampling)
        message.grammar_kinds.extend(model.grammars.kinds)
        message.tool_call_form = model.chat.templates.tool_form if model.chat is not None else ""
    if isinstance(model, TextModel):
        message.mask_token = _mask_token(model)
    if isinstance(model, TextModel) and model.manifest.task == "embedding":
        message.embedding_kinds.extend(kinds_of(model.manifest))
        message.sparse_size = model.manifest.sparse_size
        message.token_vector_size = model.manifest.token_vector_size
    if isinstance(model, SequenceModel):
        message.symbols.extend(model.symbols[:MAX_LISTED_SYMBOLS])
    return message


def _mask_token(model: TextModel) -> str:
    if model.task is FILL_MASK:
        return model.tokenizer.spelling(model.manifest.mask_token_id)
    return model.tokenizer.mask_token
