"""`/v2/embed` and `/v1/embed`, as Cohere's clients ask for vectors.

What the texts are for names the prompt: `search_query` is the model's prompt `query`, for example,
and a model without such a prompt embeds them with its default one, or as they are.
"""

from typing import Any, ClassVar, Literal
from uuid import uuid4

import msgspec

from service.calls.texts import Embed, Embeddings
from service.http.numbers import Whole
from service.http.request import Reply, Request
from service.http.routes import Route
from service.http.shared.embedding_fields import (
    FLOAT,
    encoding_of,
    prompt_for,
    width_in,
    written,
)
from service.http.shared.fields import check_count
from service.http.shared.models import find_model, name_of
from service.http.shared.names import names_of
from service.http.shared.paths import EMBED
from service.http.shared.peer_fields import Refusals, unsupported
from service.http.shared.peer_tables import REFUSALS

TYPES = "embedding_types"


class CohereEmbedRequest(msgspec.Struct, kw_only=True):
    """The body, as Cohere has it."""

    REFUSED: ClassVar[Refusals] = REFUSALS["Cohere's vectors"]

    texts: list[str]
    model: str | None = None
    input_type: str | None = None
    embedding_types: list[str] | None = None
    output_dimension: Whole | None = None
    truncate: Literal["NONE", "START", "END"] = "END"
    max_tokens: Whole | None = None


def cohere_routes() -> tuple[Route, ...]:
    return tuple(
        Route("POST", path, embed, EMBED, (CohereEmbedRequest,))
        for path in ("/v2/embed", "/v1/embed")
    )


async def embed(request: Request) -> Reply:
    asked = await request.json(CohereEmbedRequest)
    if asked.truncate == "START":
        raise unsupported("truncate", "a text that is cut loses its end")
    if asked.max_tokens is not None:
        raise unsupported("max_tokens", "texts are cut to the model's length")
    check_count(len(asked.texts), "texts", request.front.settings.max_texts)
    name = await name_of(request, asked.model)
    prompt_name = ""
    if asked.input_type:
        prompt_name = prompt_for(await find_model(request, name), asked.input_type)
    kinds = list(dict.fromkeys(asked.embedding_types or [FLOAT]))
    call = Embed(
        model=name,
        texts=asked.texts,
        truncate=asked.truncate == "END",
        prompt_name=prompt_name,
        dimensions=width_in(asked.output_dimension, "output_dimension"),
        encodings=[encoding_of(each, TYPES) for each in kinds],
        kinds=("dense",),
    )
    request.named = names_of("cohere", Embed, cut="set truncate to END")
    answer: Embeddings = await request.ask(EMBED, call)

    def made() -> dict[str, Any]:
        vectors: Any = {
            each: [written(result, each) for result in answer.results] for each in kinds
        }
        form = "embeddings_by_type"
        if asked.embedding_types is None and request.path.startswith("/v1/"):
            vectors, form = vectors[FLOAT], "embeddings_floats"
        return {
            "id": f"embed-{uuid4().hex}",
            "response_type": form,
            "embeddings": vectors,
            "texts": asked.texts,
            "meta": {
                "api_version": {"version": request.path[2:3]},
                "billed_units": {"input_tokens": answer.num_tokens},
            },
        }

    return await request.answer(made, answer.num_values)
