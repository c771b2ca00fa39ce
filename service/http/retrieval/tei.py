"""`/embed` and `/similarity`, as text-embeddings-inference has them.

One of its servers has one model; here the path or `model` names one where several are served.
"""

from collections.abc import Iterator
from typing import ClassVar

import msgspec

from service.calls.texts import Embed, Embeddings, Similarities, Similarity
from service.http.numbers import Whole
from service.http.request import Reply, Request
from service.http.routes import Route
from service.http.shared.embedding_fields import unit_vector, width_in
from service.http.shared.inputs import Compared, Inputs, check_texts, refuse
from service.http.shared.models import name_of
from service.http.shared.names import TRUNCATE, names_of
from service.http.shared.paths import EMBED, SIMILARITY
from service.http.shared.peer_fields import Refusals, unsupported
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
    """Parameters of reading texts; the prompt is that of both sides."""

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
            _check_normalize(repository, name)
        call = Embed(
            model=name,
            texts=(await Inputs.of(request, asked.inputs)).texts,
            truncate=bool(asked.truncate),
            prompt_name=asked.prompt_name or "",
            dimensions=width_in(asked.dimensions),
            kinds=("dense",),
        )
        request.named = names_of("huggingface", Embed, cut=TRUNCATE)
        answer: Embeddings = await request.ask(EMBED, call)

        def made() -> list[list[float]]:
            vectors = [each.numbers for each in answer.results]
            return list(map(unit_vector, vectors)) if asked.normalize else vectors

        return await request.answer(made, answer.num_values)

    for base in BASES:
        yield Route("POST", f"{base}/embed", embed, EMBED, (TeiEmbedRequest,))
        yield Route("POST", f"{base}/similarity", compare, SIMILARITY, (TeiSimilarityRequest,))


def _check_normalize(repository: ModelRepository, name: str) -> None:
    """Raise `HttpError` for a model whose vectors have length 1 whatever a request says."""
    manifest = repository.find(name).interface.manifest
    if manifest is not None and manifest.embedder and manifest.embedder.is_normalized:
        raise unsupported("normalize", "false, but the model itself normalises its vectors")


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
    request.named = names_of("huggingface", Similarity, single=("texts",), cut=TRUNCATE)
    answer: Similarities = await request.ask(SIMILARITY, call)
    return Reply.json(answer.rows[0].numbers)
