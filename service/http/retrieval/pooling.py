"""Sparse vectors in the shape of text-embeddings-inference, and vLLM's `/pooling`.

`/embed_sparse` answers the weights of each text by token id; `/pooling` a vector per text, or one
per token.
"""

import time
from typing import Any, ClassVar, Literal
from uuid import uuid4

import msgspec

from service.calls.texts import Embed, Embedding, Embeddings, Kind, SparseVector
from service.http.numbers import Whole
from service.http.request import Reply, Request
from service.http.retrieval.scores import BASES, usage_of
from service.http.routes import Route
from service.http.shared.embedding_fields import whole_in
from service.http.shared.fields import is_cut, texts_of
from service.http.shared.models import find_model, name_of
from service.http.shared.names import CUT, TRUNCATE, names_of
from service.http.shared.paths import EMBED
from service.http.shared.peer_fields import Refusals, unsupported
from service.http.shared.peer_tables import REFUSALS

Values = dict[str, Any]
KINDS: dict[str, Kind] = {"embed": "dense", "token_embed": "token_vectors"}


class SparseRequest(msgspec.Struct, kw_only=True):
    """The body of TEI's clients; `top_k` is Attendant's own."""

    REFUSED: ClassVar[Refusals] = REFUSALS["sparse vectors"]

    inputs: msgspec.Raw
    model: str | None = None
    truncate: bool | None = None
    truncation_direction: str | None = None
    prompt_name: str | None = None
    top_k: Whole | None = None


class PoolingRequest(msgspec.Struct, kw_only=True):
    """The body of vLLM's clients."""

    REFUSED: ClassVar[Refusals] = REFUSALS["pooling"]

    input: msgspec.Raw
    model: str | None = None
    task: Literal["embed", "token_embed"] | None = None
    encoding_format: str | None = None
    truncate_prompt_tokens: Whole | None = None


def pooling_routes() -> tuple[Route, ...]:
    routes: list[Route] = []
    for base in BASES:
        routes += [
            Route("POST", f"{base}/embed_sparse", embed_sparse, EMBED, (SparseRequest,)),
            Route("POST", f"{base}/pooling", pool, EMBED, (PoolingRequest,)),
        ]
    return tuple(routes)


async def embed_sparse(request: Request) -> Reply:
    asked = await request.json(SparseRequest)
    if asked.truncation_direction not in (None, "right", "Right"):
        raise unsupported("truncation_direction", "a text that is cut loses its end")
    most = request.front.settings.max_texts
    call = Embed(
        model=await name_of(request, asked.model),
        texts=await request.work(lambda: texts_of(asked.inputs, "inputs", most)),
        truncate=bool(asked.truncate),
        prompt_name=asked.prompt_name or "",
        kinds=("sparse",),
        top_k=0 if asked.top_k is None else whole_in(asked.top_k, "top_k", 0),
    )
    request.named = names_of("huggingface", Embed, cut=TRUNCATE)
    answer: Embeddings = await request.ask(EMBED, call)
    return await request.answer(
        lambda: [_pairs(result.sparse) for result in answer.results], answer.num_values
    )


def _pairs(sparse: SparseVector | None) -> list[Values]:
    assert sparse is not None, "it is asked for"
    pairs = zip(sparse.token_ids, sparse.numbers, strict=True)
    return [{"index": token_id, "value": weight} for token_id, weight in pairs]


async def pool(request: Request) -> Reply:
    asked = await request.json(PoolingRequest)
    if asked.encoding_format not in (None, "float"):
        raise unsupported("encoding_format", "float is the only one")
    name = await name_of(request, asked.model)
    model = await find_model(request, name)
    task = asked.task or ("token_embed" if "token_vectors" in model.embedding_kinds else "embed")
    most = request.front.settings.max_texts
    call = Embed(
        model=name,
        texts=await request.work(lambda: texts_of(asked.input, "input", most)),
        truncate=is_cut(asked.truncate_prompt_tokens, model.max_tokens),
        kinds=(KINDS[task],),
    )
    request.named = names_of("openai", Embed, cut=CUT)
    answer: Embeddings = await request.ask(EMBED, call)

    def made() -> Values:
        data = [
            {"index": index, "object": "pooling", "data": _values(result)}
            for index, result in enumerate(answer.results)
        ]
        head = {"id": f"pool-{uuid4().hex}", "object": "list", "created": int(time.time())}
        return {**head, "model": answer.model, "data": data, "usage": usage_of(answer.num_tokens)}

    return await request.answer(made, answer.num_values)


def _values(result: Embedding) -> list[float] | list[list[float]]:
    if result.token_vectors:
        return [vector.numbers for vector in result.token_vectors]
    return result.numbers
