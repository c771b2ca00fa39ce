"""`/v1/chat/completions`: refused by name, as no model that is served has a chat template."""

from typing import Any

from service.http.openai.completions import GENERATE
from service.http.openai.models import BASES, find_model, name_of
from service.http.openai.sampling import SamplingFields
from service.http.request import Reply, Request
from service.http.routes import Route
from service.http.status import HttpError


class ChatRequest(SamplingFields, kw_only=True):
    """The body, as far as it decides about the refusal."""

    messages: list[dict[str, Any]]


def chat_routes() -> tuple[Route, ...]:
    return tuple(
        Route("POST", f"{base}/chat/completions", chat, GENERATE, (ChatRequest,)) for base in BASES
    )


async def chat(request: Request) -> Reply:
    asked = await request.json(ChatRequest)
    model = await find_model(request, await name_of(request, asked.model))
    raise HttpError(
        400,
        f"model '{model.name}' has no chat template: send the text of the conversation to "
        "/v1/completions",
        code="no_chat_template",
        param="messages",
    )
