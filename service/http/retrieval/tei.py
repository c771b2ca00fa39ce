"""`/embed` and `/similarity`, as text-embeddings-inference has them.

One of its servers has one model; here the path or `model` names one where several are served.
"""

from collections.abc import Iterator
from typing import ClassVar

import msgspec

from service.calls.texts import Embed, Embeddings, Similarities, Similarity
from service.http.huggingface.fields import Inputs, check_texts, refuse
from service.http.huggingface.texts import (
    EMBED,
    SIMILARITY,
    WAY_OUT,
    Compared,
    check_normalize,
    unit_vector,
)
from service.http.numbers import Whole
from service.http.request import Reply, Request
from service.http.routes import Route
from service.http.shared.embedding_fields import width_in
from service.http.shared.models import name_of
from service.http.shared.names import names_of
from service.http.shared.peer_fields import Refusals
from service.http.shared.peer_tables import REFUSALS
from service.repository.repository import ModelRepository

BASES = ("", "/models/{model}")
CUT_AT_END = {"truncation_direction": "a text that is cut loses its end"}
ENDS = ("right", "Right")


class TeiEmbedRequest(msgspec.Struct, kw_only=True):
    """The body: vectors have length 1 unless it says otherwise."""

    REFUSED: ClassVar[Refusals] = REFUSALS["vectors"]

    inputs: msgspec.Raw
    model: str | None = None
    normalize: bool = True
    truncate: bool | None = None
    truncation_direction: str | None = None
    prompt_name: str | None = None
    dimensions: Whole | None = None


class TeiSimilarityParameters(msgspec.Struct):
    """How texts are read; the prompt is that of both sides."""

    truncate: bool | None = None
    truncation_direction: str | None = None
    prompt_name: str | None = None


class TeiSimilarityRequest(msgspec.Struct, kw_only=True):
    """The body: a text, and those that it is compared with."""

    inputs: Compared
    model: str | None = None
    parameters: TeiSimilarityParameters | None = None


def tei_routes(repository: ModelRepository) -> Iterator[Route]:
    """The routes for the embedders of a repository."""

    async def embed(request: Request) -> Reply:
        asked = await request.json(TeiEmbedRequest)
        refuse(asked, CUT_AT_END, harmless=ENDS)
        name = await name_of(request, asked.model)
        if not asked.normalize:
            check_normalize(repository.find(name).interface.manifest)
        call = Embed(
            model=name,
            texts=(await Inputs.of(request, asked.inputs)).texts,
            truncate=bool(asked.truncate),
            prompt_name=asked.prompt_name or "",
            dimensions=width_in(asked.dimensions),
            kinds=("dense",),
        )
        request.named = names_of("huggingface", Embed, cut=WAY_OUT)
        answer: Embeddings = await request.ask(EMBED, call)

        def made() -> list[list[float]]:
            vectors = [each.numbers for each in answer.results]
            return list(map(unit_vector, vectors)) if asked.normalize else vectors

        return await request.answer(made, answer.num_values)

    for base in BASES:
        yield Route("POST", f"{base}/embed", embed, EMBED, (TeiEmbedRequest,))
        yield Route("POST", f"{base}/similarity", compare, SIMILARITY, (TeiSimilarityRequest,))


async def compare(request: Request) -> Reply:
    """The cosine of a text with each of the others."""
    asked = await request.json(TeiSimilarityRequest)
    parameters = asked.parameters or TeiSimilarityParameters()
    refuse(parameters, CUT_AT_END, harmless=ENDS)
    check_texts(request, asked.inputs.sentences, "sentences")
    call = Similarity(
        model=await name_of(request, asked.model),
        texts=[asked.inputs.source_sentence],
        others=asked.inputs.sentences,
        truncate=bool(parameters.truncate),
        measure="cosine",
        prompt_name=parameters.prompt_name or "",
        others_prompt_name=parameters.prompt_name or "",
    )
    request.named = names_of("huggingface", Similarity, single=("texts",), cut=WAY_OUT)
    answer: Similarities = await request.ask(SIMILARITY, call)
    return Reply.json(answer.rows[0].numbers)
