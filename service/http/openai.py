"""OpenAI's API: the list of models."""

import time
from typing import Any

from attendant.v1 import text_pb2

from service.api.access import LIST_MODELS
from service.errors import NotFound
from service.http.request import Reply, Request
from service.http.routes import Route

BASES = ("/v1", "/openai/v1", "/models/{model}/v1")
_STARTED_S = int(time.time())


def openai_routes() -> tuple[Route, ...]:
    return tuple(
        route
        for base in BASES
        for route in (
            Route("GET", f"{base}/models", list_models, LIST_MODELS),
            Route("GET", f"{base}/models/{{name}}", show_model, LIST_MODELS),
        )
    )


async def list_models(request: Request) -> Reply:
    return Reply.json({"object": "list", "data": await _models(request)})


async def show_model(request: Request) -> Reply:
    name = request.parameters["name"]
    for model in await _models(request):
        if model["id"] == name:
            return Reply.json(model)
    raise NotFound(f"Request for unknown model: '{name}' is not found")


async def _models(request: Request) -> list[dict[str, Any]]:
    """One entry for each name; of several versions, the newest."""
    answer = await request.ask(LIST_MODELS, text_pb2.ListModelsRequest())
    newest = {model.name: model for model in sorted(answer.models, key=lambda m: int(m.version))}
    return [
        {
            "id": name,
            "object": "model",
            "created": _STARTED_S,
            "owned_by": model.origin or "attendant",
            "task": model.task,
            "max_model_len": model.max_tokens,
        }
        for name, model in newest.items()
    ]
