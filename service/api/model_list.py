"""`ListModels`: what is known of every model."""

from dataclasses import asdict

from attendant.v1 import text_pb2

from service.contract.manifest import Example, Manifest
from service.repository.repository import ModelRepository
from service.serving.generative_model import GenerativeModel
from service.serving.image_model import ImageModel
from service.serving.model import Caller, ServedModel
from service.serving.sequence_model import SequenceModel
from service.serving.tasks.embedding_kinds import kinds_of
from service.serving.tasks.fill_mask import FILL_MASK
from service.serving.text_model import TextModel

MAX_LISTED_SYMBOLS = 256  # of a model
MAX_LISTED_EXAMPLES = 32


class ModelList:
    """The models of a repository, as clients see them."""

    def __init__(self, repository: ModelRepository, max_items: int) -> None:
        self._repository = repository
        self._max_items = max_items

    async def ListModels(
        self, request: text_pb2.ListModelsRequest, caller: Caller
    ) -> text_pb2.ListModelsResponse:
        models = map(_described, self._repository.models())
        return text_pb2.ListModelsResponse(models=models, max_texts=self._max_items)


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
