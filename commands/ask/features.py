"""`attendant features` and `attendant similarity`: hidden states, and similarity of texts."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import typer
from attendant.v1 import features_pb2, text_pb2

from commands.ask.client.client import Client
from commands.ask.in_flight import Answered
from commands.ask.lines import Texts as GivenTexts
from commands.ask.options import (
    SERVER,
    AsJson,
    Dimensions,
    Model,
    PromptName,
    Server,
    Texts,
    Truncate,
    Version,
    asks,
    console,
)
from commands.ask.shown import tables
from commands.ask.shown.outputs import output_of
from commands.ask.texts import Ask, AsNdjson, answer_texts, answers, texts_of
from service.errors import InvalidArgument

MAX_COMPARED_TEXTS = 16_384  # each with each: 2^28 values, of which a request's rows are held

Layers = Literal[
    "first", "last", "second_to_last", "sum_last_four", "concat_last_four", "sum_all", "mix"
]


@asks
def features(
    model: Model,
    texts: Texts,
    layers: Annotated[
        Layers,
        typer.Option(
            envvar="ATTENDANT_FEATURES_LAYERS",
            help="Which hidden states to return. The first layer is the embeddings; the last one "
            "depends most on the context.",
        ),
    ] = "last",
    pooling: Annotated[
        Literal["mean", "cls", "none"],
        typer.Option(
            envvar="ATTENDANT_POOLING",
            help="How to make one vector per text: mean over its tokens, or cls, the first token's "
            "vector. With none, one vector per token is returned.",
        ),
    ] = "mean",
    weights: Annotated[
        list[float] | None,
        typer.Option(
            envvar="ATTENDANT_WEIGHTS",
            help="Weight of a layer for --layers mix; give the flag once per layer, embeddings "
            "first.",
        ),
    ] = None,
    word: Annotated[
        str,
        typer.Option(
            envvar="ATTENDANT_WORD",
            help="Instead of vectors, show the cosine similarity of this word's vectors in the "
            "texts: the same word has different vectors in different contexts.",
        ),
    ] = "",
    version: Version = "",
    truncate: Truncate = False,
    as_json: AsJson = False,
    as_ndjson: AsNdjson = False,
    server: Server = SERVER,
) -> None:
    with Client(*server) as client:

        def ask(part: Sequence[str]) -> features_pb2.ExtractFeaturesResponse:
            request = features_pb2.ExtractFeaturesRequest(
                model=model,
                version=version,
                texts=part,
                truncate=truncate,
                layers=f"LAYERS_{layers.upper()}",
                pooling="POOLING_NONE" if word else f"POOLING_{pooling.upper()}",
                weights=weights or (),
            )
            response: features_pb2.ExtractFeaturesResponse = client.ask(request)
            return response

        if word and not (as_json or as_ndjson):
            console.print(_word_in_texts(texts, server.timeout_s, word, ask))
            return
        answer_texts(
            texts, server.timeout_s, ask, tables.features, as_json=as_json, as_ndjson=as_ndjson
        )


def _word_in_texts(given: Sequence[str], patience_s: float, word: str, ask: Ask) -> tables.Table:
    """Cosine similarities of a word's first occurrences in the texts."""
    import numpy as np  # imported late: few commands need it

    from service.serving.tasks.texts import similarity as likeness_of

    texts: list[str] = []
    vectors: list[np.ndarray] = []
    for answered in _gathered(texts_of(given), patience_s, ask):
        part = [line.text for line in answered.lines]
        texts += part
        vectors += tables.word_vectors(part, word, answered.response)
    matrix = np.stack(vectors)
    return tables.likeness(texts, likeness_of("cosine", matrix, matrix).tolist())


@asks
def similarity(
    model: Model,
    texts: Texts,
    measure: Annotated[
        Literal["cosine", "dot", "scaled_dot", "euclidean", "manhattan"],
        typer.Option(
            envvar="ATTENDANT_MEASURE",
            help="How to compare vectors: cosine compares directions; dot is the dot product; "
            "scaled_dot divides it by the square root of the vector size, as attention does; "
            "euclidean and manhattan are distances, negative.",
        ),
    ] = "cosine",
    prompt_name: PromptName = "",
    dimensions: Dimensions = 0,
    version: Version = "",
    truncate: Truncate = False,
    as_json: AsJson = False,
    as_ndjson: AsNdjson = False,
    server: Server = SERVER,
) -> None:
    with Client(*server) as client:
        embedded = list(
            _gathered(
                texts_of(texts),
                server.timeout_s,
                lambda part: client.ask(
                    text_pb2.EmbedRequest(
                        model=model,
                        version=version,
                        texts=part,
                        truncate=truncate,
                        prompt_name=prompt_name,
                        dimensions=dimensions,
                    )
                ),
            )
        )
    likeness = Likeness(embedded, measure)
    output = output_of(
        texts,
        tables.similarities,
        likeness.draw,
        "rows",
        as_json=as_json,
        as_ndjson=as_ndjson,
    )
    with output:
        for part in likeness:
            output.write(part.lines, part.response, is_only=len(embedded) == 1)


def _gathered(texts: GivenTexts, patience_s: float, ask: Ask) -> Iterator[Answered[Any]]:
    """The answers to all texts. Raises `InvalidArgument` if there are none or too many."""
    count = 0
    for answered, _ in answers(texts, patience_s, ask):
        count += len(answered.lines)
        if count > MAX_COMPARED_TEXTS:
            raise InvalidArgument(
                f"there are more than {MAX_COMPARED_TEXTS} {texts.noun}s, which is the limit if "
                "each is compared with every other"
            )
        yield answered
    if not count:
        raise InvalidArgument("there are no texts, expected at least one")


class Likeness:
    """Rows of the similarity matrix, in parts; the server embeds each text once."""

    def __init__(self, embedded: Sequence[Answered[text_pb2.EmbedResponse]], measure: str) -> None:
        import numpy as np  # imported late: few commands need it

        self._embedded = embedded
        self._measure = measure
        self._vectors = [
            np.array([result.values for result in part.response.results], np.float32)
            for part in embedded
        ]
        self._all = np.concatenate(self._vectors)
        self._numbers = [line.number for part in embedded for line in part.lines]
        self._num_drawn = 0

    def __iter__(self) -> Iterator[Answered[features_pb2.SimilarityResponse]]:
        from service.serving.tasks.texts import similarity as likeness_of

        for part, vectors in zip(self._embedded, self._vectors, strict=True):
            answered = part.response
            rows = likeness_of(self._measure, vectors, self._all).tolist()
            response = features_pb2.SimilarityResponse(
                model=answered.model,
                version=answered.version,
                num_tokens=answered.num_tokens,
                timings=answered.timings,
                rows=[features_pb2.SimilarityRow(values=row) for row in rows],
            )
            yield Answered(part.lines, response)

    def draw(self, texts: Sequence[str], response: features_pb2.SimilarityResponse) -> tables.Table:
        """A part's rows: the most similar texts of each text."""
        rows = [row.values for row in response.rows]
        first, self._num_drawn = self._num_drawn, self._num_drawn + len(texts)
        return tables.most_alike(texts, rows, self._numbers, first)
