"""`POST /models/{model}` and `/pipeline/{task}/{model}`: Hugging Face's inference API.

A model's own address has the pipeline of its task; a named one is for models that serve several.
"""

from collections.abc import Iterator

from service.http.huggingface import generation, reading, texts
from service.http.huggingface.fields import Pipeline, Target, wrong_task
from service.http.request import Reply, Request
from service.http.routes import Parameters, Route
from service.http.status import HttpError
from service.repository.repository import ModelRepository

# By the names that Hugging Face has for tasks.
PIPELINES: dict[str, Pipeline] = {
    "text-classification": texts.classify_texts,
    "feature-extraction": texts.extract_features,
    "sentence-similarity": texts.compare_texts,
    "image-classification": texts.classify_image,
    "fill-mask": reading.fill_masks,
    "token-classification": reading.classify_tokens,
    "question-answering": reading.answer_question,
    "text-generation": generation.generation("generated_text"),
    "text2text-generation": generation.generation("generated_text"),
    "translation": generation.generation("translation_text"),
}
# Of a model's own address, where its task has another name or several pipelines.
OWN_PIPELINES: dict[str, Pipeline] = PIPELINES | {
    "embedding": texts.extract_or_compare,
    "features": texts.extract_features,
    "pair-scoring": texts.compare_texts,
    "text-generation": generation.generation(),
}
# Access is decided before the model is known, and all these operations are in one group.
OPERATION = texts.CLASSIFY


def inference_routes(repository: ModelRepository) -> Iterator[Route]:
    """The routes for the models of a repository."""

    async def answer(request: Request) -> Reply | None:
        target = _find(repository, request.parameters["model"])
        pipeline = OWN_PIPELINES.get(target.manifest.task)
        if pipeline is None:
            raise wrong_task(target)
        return await pipeline(request, target)

    async def answer_as(request: Request) -> Reply | None:
        target = _find(repository, request.parameters["model"])
        return await PIPELINES[request.parameters["task"]](request, target)

    yield Route("POST", "/models/{model}", answer, OPERATION)
    yield Route("POST", "/models/{model}/pipeline/{task}", answer_as, _operation)
    yield Route("POST", "/pipeline/{task}/{model}", answer_as, _operation)


def _operation(parameters: Parameters) -> str:
    """Raises `HttpError` for a task that has no pipeline."""
    if parameters["task"] not in PIPELINES:
        known = ", ".join(sorted(PIPELINES))
        raise HttpError(404, f"there is no such task, expected one of {known}", code="not_found")
    return OPERATION


def _find(repository: ModelRepository, name: str) -> Target:
    """The newest version's manifest. Raises `NotFound`, and `HttpError` for a model of tensors."""
    manifest = repository.find(name).interface.manifest
    if manifest is None:
        raise HttpError(
            400, f"model '{name}' has tensors alone: POST /v2/models/{name}/infer has them"
        )
    return Target(name, manifest)
