"""`/v1/embeddings`: a vector per text, as numbers or as base64 of little-endian float32."""

import base64
from typing import Any

import msgspec
import numpy as np
from attendant.v1 import text_pb2
from attendant.v1.generation_pb2 import TokenIds

from service.errors import InvalidArgument
from service.http.openai.fields import TRUNCATION, is_cut, named_texts, prompts_of
from service.http.openai.models import BASES, name_of
from service.http.request import Reply, Request
from service.http.routes import Route
from service.http.status import invalid

EMBED = "/attendant.v1.TextService/Embed"
FOREIGN_IDS = (
    ": the ids may be another tokenizer's, as LangChain's OpenAIEmbeddings sends them unless "
    "check_embedding_ctx_length is False"
)


class EmbeddingRequest(msgspec.Struct, kw_only=True):
    """The body, as OpenAI has it and vLLM adds to it."""

    input: msgspec.Raw
    model: str | None = None
    encoding_format: str | None = None
    dimensions: int | None = None
    truncate_prompt_tokens: int | None = None


def embedding_routes() -> tuple[Route, ...]:
    return tuple(
        Route("POST", f"{base}/embeddings", embed, EMBED, (EmbeddingRequest,)) for base in BASES
    )


async def embed(request: Request) -> Reply:
    asked = await request.json(EmbeddingRequest)
    if asked.encoding_format not in (None, "float", "base64"):
        raise invalid(
            f"encoding_format is '{asked.encoding_format[:64]}', expected float or base64",
            "encoding_format",
        )
    is_truncated = is_cut(asked.truncate_prompt_tokens)
    inputs = prompts_of(asked.input, "input", request.front.settings.max_texts)
    texts = [each for each in inputs if isinstance(each, str)]
    rows = [TokenIds(ids=each) for each in inputs if not isinstance(each, str)]
    if texts and rows:
        raise invalid("input has texts and token ids, expected one of them", "input")
    message = text_pb2.EmbedRequest(
        model=await name_of(request, asked.model),
        texts=texts,
        token_ids=rows,
        truncate=is_truncated,
    )
    try:
        with named_texts("input[{}]".format):
            answer = await request.ask(EMBED, message)
    except InvalidArgument as error:
        if error.field is None or not error.field.startswith("token_ids"):
            raise
        hint = FOREIGN_IDS if ", expected 0 to " in str(error) else ""
        text = str(error).replace("token_ids", "input", 1).replace(*TRUNCATION)
        raise type(error)(f"{text}{hint}", "input") from error
    width = len(answer.results[0].values)
    if asked.dimensions not in (None, width):
        raise invalid(
            f"dimensions is {asked.dimensions}, expected {width}: the model was not trained for "
            "shorter vectors",
            "dimensions",
        )
    is_text = asked.encoding_format == "base64"
    data = [
        {"object": "embedding", "index": index, "embedding": _written(each.values, is_text)}
        for index, each in enumerate(answer.results)
    ]
    usage = {"prompt_tokens": answer.num_tokens, "total_tokens": answer.num_tokens}
    return Reply.json({"object": "list", "data": data, "model": answer.model, "usage": usage})


def _written(values: Any, is_text: bool) -> str | list[float]:  # noqa: ANN401 - repeated floats
    if is_text:
        return base64.b64encode(np.array(values, "<f4").tobytes()).decode()
    return list(values)
