"""`POST /models/{model}` and `/pipeline/{task}/{model}`: Hugging Face's inference API.

A model's own address has the pipeline of its task; a named one is for models that serve several.
"""

from collections.abc import Iterator

from service.http.huggingface import generation, reading, texts
from service.http.huggingface.fields import Pipeline, Target, wrong_task
from service.http.request import Reply, Request
from service.http.routes import Route
from service.http.shared.paths import GENERATE
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
OPERATION = GENERATE
BODIES = (
    texts.LabelRequest,
    texts.FeatureRequest,
    texts.SimilarityRequest,
    reading.MaskRequest,
    reading.TokenRequest,
    reading.QuestionRequest,
    generation.GenerationRequest,
)


def inference_routes(repository: ModelRepository) -> Iterator[Route]:
    """The routes for the models of a repository."""

    async def answer(request: Request) -> Reply | None:
        target = _find(repository, request.parameters["model"])
        pipeline = OWN_PIPELINES.get(target.manifest.task)
        if pipeline is None:
            raise wrong_task(target)
        return await pipeline(request, target)

    async def answer_as(request: Request) -> Reply | None:
        pipeline = PIPELINES.get(request.parameters["task"])
        if pipeline is None:
            known = ", ".join(sorted(PIPELINES))
            text = f"there is no such task, expected one of {known}"
            raise HttpError(404, text, code="not_found")
        return await pipeline(request, _find(repository, request.parameters["model"]))

    yield Route("POST", "/models/{model}", answer, OPERATION, BODIES, takes_bytes=True)
    yield Route(
        "POST", "/models/{model}/pipeline/{task}", answer_as, OPERATION, BODIES, takes_bytes=True
    )
    yield Route("POST", "/pipeline/{task}/{model}", answer_as, OPERATION, BODIES, takes_bytes=True)


def _find(repository: ModelRepository, name: str) -> Target:
    """The newest version's manifest. Raises `NotFound`, and `HttpError` for a model of tensors."""
    manifest = repository.find(name).interface.manifest
    if manifest is None:
        raise HttpError(
            400, f"model '{name}' has tensors alone: POST /v2/models/{name}/infer has them"
        )
    return Target(name, manifest)
