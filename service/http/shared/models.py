"""The models as OpenAI's API lists them, and the one that a request names."""

import time
from collections.abc import Mapping
from typing import Any

from service.api.access import LIST_MODELS
from service.calls.models import ListModels, ModelFacts, Models
from service.errors import NotFound
from service.http.request import Reply, Request
from service.http.routes import Route
from service.http.status import invalid
from service.settings import aliases_of

BASES = ("/v1", "/openai/v1", "/models/{model}/v1")
STARTED_S = int(time.time())


def model_routes() -> tuple[Route, ...]:
    return tuple(
        route
        for base in BASES
        for route in (
            Route("GET", f"{base}/models", list_models, LIST_MODELS),
            Route("GET", f"{base}/models/{{name}}", show_model, LIST_MODELS),
        )
    )


async def list_models(request: Request) -> Reply:
    """All models, or the one that the path names."""
    named = request.parameters.get("model")
    if named is not None:
        data = [_described(await find_model(request, named))]
    else:
        data = [_described(model) for model in (await newest_models(request)).values()]
    return Reply.json({"object": "list", "data": data})


async def show_model(request: Request) -> Reply:
    name = request.parameters["name"]
    if request.parameters.get("model", name) != name:
        raise NotFound(f"Request for unknown model: '{name}' is not at this address")
    return Reply.json(_described(await find_model(request, name)))


async def newest_models(request: Request) -> dict[str, ModelFacts]:
    """The models by name; of several versions, the newest."""
    answer: Models = await request.ask(LIST_MODELS, ListModels())
    return {model.name: model for model in sorted(answer.models, key=lambda m: int(m.version))}


async def find_model(request: Request, name: str) -> ModelFacts:
    """Raises `NotFound`."""
    models = await newest_models(request)
    if name not in models:
        if request.front.settings.any_model_name and len(only := own_names(request, models)) == 1:
            return models[only[0]]
        raise NotFound(f"Request for unknown model: '{name}' is not found")
    return models[name]


async def name_of(request: Request, given: str | None) -> str:
    """The model that the path names, else the body, else the only one. Raises `HttpError`."""
    named = request.parameters.get("model") or given
    if named:
        return named
    names = own_names(request, await newest_models(request))
    if not names:
        raise invalid("model is missing, and no model is served", "model")
    if len(names) != 1:
        raise invalid(f"model is missing, expected one of {', '.join(names)}", "model")
    return names[0]


def own_names(request: Request, models: Mapping[str, ModelFacts]) -> list[str]:
    """The names of models without the further ones."""
    aliases = aliases_of(request.front.settings)
    return [
        name
        for name, model in models.items()
        if (real := models.get(aliases.get(name, ""))) is None or model != real.also(name=name)
    ]


def _described(model: ModelFacts) -> dict[str, Any]:
    return {
        "id": model.name,
        "object": "model",
        "created": STARTED_S,
        "owned_by": model.origin or "attendant",
        "parent": model.parent or None,  # of an adapter, as vLLM has it
        "task": model.task,
        "max_model_len": model.max_tokens,
    }
