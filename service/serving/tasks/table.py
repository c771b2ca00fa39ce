"""All tasks, and all methods of the typed API, by name: the place where a new one is entered."""

from tritonclient.grpc.model_config_pb2 import ModelConfig

from service.contract.config_completion import complete_for_text
from service.contract.manifest import Manifest, TaskName
from service.contract.tensors import Signature
from service.serving.tasks import (
    answers,
    attention,
    entities,
    features,
    fill_mask,
    image_attention,
    image_classification,
    pair_scoring,
    texts,
)
from service.serving.tasks.task import Method, Task, TextTask
from service.serving.tasks.text_generation import TEXT_GENERATION

MODULES = (
    *(texts, fill_mask, entities, answers, pair_scoring),
    *(features, attention, image_classification, image_attention),
)
METHODS: dict[str, Method] = {method.name: method for each in MODULES for method in each.METHODS}
TASKS: dict[TaskName, Task] = {
    task.name: task for task in (TEXT_GENERATION, *(method.task for method in METHODS.values()))
}


def text_task(manifest: Manifest) -> TextTask:
    """The task of a model that reads texts."""
    task = texts.WORD_VECTORS if manifest.has_words else TASKS[manifest.task]
    assert isinstance(task, TextTask), "a manifest says whether a model reads texts"
    return task


def text_signature(manifest: Manifest) -> Signature:
    """The tensors of a model with a manifest as its clients see them, without the batch axis."""
    return TASKS[manifest.task].signature(manifest)


def complete_config(config: ModelConfig, manifest: Manifest, default_rows: int) -> ModelConfig:
    """A configuration with what clients see of a manifest's model, or `LoadError`."""
    if manifest.reads_texts:
        is_alone = text_task(manifest).is_alone
    else:
        is_alone = manifest.task == image_attention.IMAGE_ATTENTION.name
    signature = text_signature(manifest)
    return complete_for_text(config, manifest, signature, default_rows, is_alone=is_alone)
