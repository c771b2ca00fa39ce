"""`/v1/embeddings`: a vector per text, as numbers or as base64 of little-endian float32."""

from typing import Any, ClassVar, TypeVar

import msgspec
from msgspec.structs import replace

from service.calls.texts import Embed, Embeddings
from service.http.numbers import Whole
from service.http.request import Reply, Request
from service.http.routes import Route
from service.http.shared.embedding_fields import (
    BASE64,
    FLOAT,
    encoding_of,
    prompt_for,
    width_in,
    written,
)
from service.http.shared.fields import is_cut, prompts_of
from service.http.shared.models import BASES, find_model, name_of
from service.http.shared.names import CUT, names_of
from service.http.shared.paths import EMBED
from service.http.shared.peer_fields import Refusals, unsupported
from service.http.shared.peer_tables import REFUSALS
from service.http.status import invalid

T = TypeVar("T")
UNIT = ("use_activation", "normalize", "normalized")
# Other names of fields: Jina's and Voyage's.
SAME = {
    "input_type": ("task",),
    "dimensions": ("output_dimension",),
    "embedding_type": ("output_dtype",),
}
# Fields of the record that have several names in a body.
NAMED_OTHERWISE = ("encodings", "embedding_type"), ("dimensions", "dimensions")
FOREIGN_IDS = (
    ": the ids may be another tokenizer's, as LangChain's OpenAIEmbeddings sends them unless "
    "check_embedding_ctx_length is False"
)


class EmbeddingRequest(msgspec.Struct, kw_only=True):
    """The body, as OpenAI has it, and vLLM, Jina and Voyage add to it."""

    REFUSED: ClassVar[Refusals] = REFUSALS["embeddings"]

    input: msgspec.Raw
    model: str | None = None
    encoding_format: str | None = None
    dimensions: Whole | None = None
    truncate_prompt_tokens: Whole | None = None
    prompt_name: str | None = None
    input_type: str | None = None  # what the texts are for
    embedding_type: str | None = None
    # Jina's and Voyage's names of the same
    task: str | None = None
    truncate: bool | None = None
    truncation: bool | None = None
    output_dimension: Whole | None = None
    output_dtype: str | None = None
    # Vectors of length 1: vLLM's names, and Jina's
    use_activation: bool | None = None
    normalize: bool | None = None
    normalized: bool | None = None

    def value_of(self, name: str, kind: type[T]) -> T | None:
        """A field's value by whichever of its names it is given. Raises `HttpError` for two."""
        named = {
            each: value
            for each in (name, *SAME[name])
            if (value := getattr(self, each)) is not None
        }
        if len(named) > 1:
            first, second, *_ = named
            raise invalid(f"{second} is set beside {first}, expected one of them", second)
        value = next(iter(named.values()), None)
        assert value is None or isinstance(value, kind), "each of its names has the same type"
        return value

    def name_of(self, name: str) -> str:
        """The name by which the field is given."""
        return next((each for each in SAME[name] if getattr(self, each) is not None), name)

    def has_unit_vectors(self, kind: str) -> bool:
        """Whether the request says that vectors have length 1. Raises `HttpError`."""
        named = {name: getattr(self, name) for name in UNIT if getattr(self, name) is not None}
        for name, value in named.items():
            if not value:
                raise unsupported(name, "false: vectors are as the model was exported")
            if kind not in (FLOAT, BASE64):
                raise unsupported(name, f"true: {kind} has the vectors of the model")
        return bool(named)

    def is_cut(self, max_tokens: int | None) -> bool:
        """Whether long texts are cut. Raises `HttpError`."""
        names = [name for name in ("truncate", "truncation") if getattr(self, name) is not None]
        if names and self.truncate_prompt_tokens is not None:
            raise invalid(
                f"{names[0]} is set beside truncate_prompt_tokens, expected one of them", names[0]
            )
        if names:
            return bool(getattr(self, names[0]))
        return is_cut(self.truncate_prompt_tokens, max_tokens)


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
    kind = asked.value_of("embedding_type", str) or FLOAT
    is_unit = asked.has_unit_vectors(kind)
    call = Embed(
        model=name,
        truncate=asked.is_cut(await _length(request, name, asked)),
        prompt_name=await _prompt_name(request, name, asked),
        dimensions=width_in(asked.value_of("dimensions", int), asked.name_of("dimensions")),
        encodings=(encoding_of(kind, asked.name_of("embedding_type")),),
        kinds=("dense",),
    )
    most = request.front.settings.max_texts
    inputs = await request.work(lambda: _inputs(asked.input, most))
    names = {name: asked.name_of(name_in_body) for name, name_in_body in NAMED_OTHERWISE}
    request.named = names_of("openai", Embed, names, cut=CUT, tokenizer=FOREIGN_IDS)
    answer: Embeddings = await request.ask(EMBED, replace(call, **inputs))
    form = {"is_base64": asked.encoding_format == BASE64, "is_unit": is_unit}

    def made() -> dict[str, Any]:
        data = [
            {"object": "embedding", "index": i, "embedding": written(each, kind, **form)}
            for i, each in enumerate(answer.results)
        ]
        usage = {"prompt_tokens": answer.num_tokens, "total_tokens": answer.num_tokens}
        return {"object": "list", "data": data, "model": name, "usage": usage}

    return await request.answer(made, answer.num_values)


def _inputs(raw: msgspec.Raw, most: int) -> dict[str, Any]:
    """The texts, or the token ids, that a field has. Raises `HttpError`."""
    inputs = prompts_of(raw, "input", most)
    texts = [each for each in inputs if isinstance(each, str)]
    token_ids = [each for each in inputs if not isinstance(each, str)]
    if texts and token_ids:
        raise invalid("input has texts and token ids, expected one of them", "input")
    return {"texts": texts, "token_ids": token_ids}


async def _length(request: Request, model: str, asked: EmbeddingRequest) -> int | None:
    """The tokens of the model's longest text, where the request names a number of its own."""
    if (asked.truncate_prompt_tokens or 0) < 1:
        return None
    return (await find_model(request, model)).max_tokens


async def _prompt_name(request: Request, model: str, asked: EmbeddingRequest) -> str:
    """The prompt that the request names, or has by what its texts are for. Raises `HttpError`."""
    purpose, name = asked.value_of("input_type", str), asked.name_of("input_type")
    if not purpose:
        return asked.prompt_name or ""
    if asked.prompt_name:
        raise invalid(f"{name} stands in place of prompt_name, expected one of them", name)
    return prompt_for(await find_model(request, model), purpose, name)
