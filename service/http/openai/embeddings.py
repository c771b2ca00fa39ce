"""`/v1/embeddings`: a vector per text, as numbers or as base64 of little-endian float32."""

import msgspec
from attendant.v1 import text_pb2
from attendant.v1.generation_pb2 import TokenIds

from service.errors import InvalidArgument
from service.http.numbers import Whole
from service.http.openai.embedding_fields import (
    BASE64,
    FLOAT,
    encoding_of,
    named_kinds,
    prompt_for,
    width_in,
    written,
)
from service.http.openai.fields import TRUNCATION, is_cut, named_texts, prompts_of
from service.http.openai.models import BASES, find_model, name_of
from service.http.request import Reply, Request
from service.http.routes import Route
from service.http.status import invalid

EMBED = "/attendant.v1.TextService/Embed"
FOREIGN_IDS = (
    ": the ids may be another tokenizer's, as LangChain's OpenAIEmbeddings sends them unless "
    "check_embedding_ctx_length is False"
)


class EmbeddingRequest(msgspec.Struct, kw_only=True):
    """The body, as OpenAI has it, and vLLM, Jina and Voyage add to it."""

    input: msgspec.Raw
    model: str | None = None
    encoding_format: str | None = None
    dimensions: Whole | None = None
    truncate_prompt_tokens: Whole | None = None
    prompt_name: str | None = None
    input_type: str | None = None  # what the texts are for
    embedding_type: str | None = None


def embedding_routes() -> tuple[Route, ...]:
    return tuple(
        Route("POST", f"{base}/embeddings", embed, EMBED, (EmbeddingRequest,)) for base in BASES
    )


async def embed(request: Request) -> Reply:
    asked = await request.json(EmbeddingRequest)
    if asked.encoding_format not in (None, FLOAT, BASE64):
        raise invalid(
            f"encoding_format is '{asked.encoding_format[:64]}', expected float or base64",
            "encoding_format",
        )
    name = await name_of(request, asked.model)
    kind = asked.embedding_type or FLOAT
    message = text_pb2.EmbedRequest(
        model=name,
        truncate=is_cut(asked.truncate_prompt_tokens, await _length(request, name, asked)),
        prompt_name=await _prompt_name(request, name, asked),
        dimensions=width_in(asked.dimensions),
        encodings=[encoding_of(kind, "embedding_type")],
        kinds=[text_pb2.EMBEDDING_KIND_DENSE],
    )
    inputs = prompts_of(asked.input, "input", request.front.settings.max_texts)
    message.texts.extend(each for each in inputs if isinstance(each, str))
    message.token_ids.extend(TokenIds(ids=each) for each in inputs if not isinstance(each, str))
    if message.texts and message.token_ids:
        raise invalid("input has texts and token ids, expected one of them", "input")
    request.field_names = {"encodings": "embedding_type"}
    try:
        with named_kinds(), named_texts("input[{}]".format):
            answer = await request.ask(EMBED, message)
    except InvalidArgument as error:
        if error.field is None or not error.field.startswith("token_ids"):
            raise
        hint = FOREIGN_IDS if ", expected 0 to " in str(error) else ""
        text = str(error).replace("token_ids", "input", 1).replace(*TRUNCATION)
        raise type(error)(f"{text}{hint}", "input") from error
    is_text = asked.encoding_format == BASE64
    data = [
        {"object": "embedding", "index": i, "embedding": written(each, kind, is_base64=is_text)}
        for i, each in enumerate(answer.results)
    ]
    usage = {"prompt_tokens": answer.num_tokens, "total_tokens": answer.num_tokens}
    return Reply.json({"object": "list", "data": data, "model": answer.model, "usage": usage})


async def _length(request: Request, model: str, asked: EmbeddingRequest) -> int | None:
    """The tokens of the model's longest text, where the request names a number of its own."""
    if (asked.truncate_prompt_tokens or 0) < 1:
        return None
    return (await find_model(request, model)).max_tokens


async def _prompt_name(request: Request, model: str, asked: EmbeddingRequest) -> str:
    """The prompt that the request names, or has by what its texts are for. Raises `HttpError`."""
    if not asked.input_type:
        return asked.prompt_name or ""
    if asked.prompt_name:
        raise invalid(
            "input_type stands in place of prompt_name, expected one of them", "input_type"
        )
    return prompt_for(await find_model(request, model), asked.input_type)
