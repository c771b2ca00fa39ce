"""A served model as the kind that a request needs, or the refusal in the words of the model.

Fronts and `api` ask here, so that the kinds of models are known to `serving` alone.
"""

from service.errors import WrongTask
from service.serving.generative_model import GenerativeModel
from service.serving.image_model import ImageModel
from service.serving.model import ServedModel
from service.serving.sequence_model import SequenceModel
from service.serving.tasks.task import Task, TextTask
from service.serving.tasks.text_generation import TEXT_GENERATION
from service.serving.text_model import TextModel


def doing(model: ServedModel, task: Task) -> TextModel | ImageModel:
    """The model as one that does a task of the typed API. Raises `WrongTask`."""
    if isinstance(model, TextModel | ImageModel) and model.manifest.task == task.name:
        return model
    if isinstance(task, TextTask) and not isinstance(model, ImageModel):
        reader(model)  # its refusal says what is taken
    raise refusal(model, task)


def reader(model: ServedModel) -> TextModel | GenerativeModel:
    """The model as one that has a tokenizer for texts. Raises `WrongTask`."""
    if isinstance(model, TextModel | GenerativeModel):
        return model
    raise WrongTask(f"model '{model.name}' takes {model.takes}, not texts")


def generator(model: ServedModel) -> GenerativeModel:
    """The model as one that generates text from prompts. Raises `WrongTask`."""
    if isinstance(model, GenerativeModel):
        return model
    if model.task_name:
        raise refusal(model, TEXT_GENERATION)
    raise WrongTask(f"model '{model.name}' takes tensors, not prompts")


def writer(model: ServedModel) -> SequenceModel | None:
    """The model as one that writes its whole answer in one run; None for other models."""
    return model if isinstance(model, SequenceModel) else None


def refusal(model: ServedModel, task: Task) -> WrongTask:
    """The error of a model that does another task."""
    does = model.task_name if isinstance(task, TextTask) or task is TEXT_GENERATION else ""
    said = f"does {does}, it cannot" if does else "cannot"
    return WrongTask(f"model '{model.name}' {said} {task.verb}")
