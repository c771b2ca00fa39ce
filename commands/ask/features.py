"""`attendant features` and `attendant similarity`: what models make of texts on the way."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import typer
from attendant.v1 import features_pb2, text_pb2

from commands.ask import tables
from commands.ask.client import Client
from commands.ask.in_flight import Answered
from commands.ask.lines import Texts as GivenTexts
from commands.ask.options import (
    SERVER,
    AsJson,
    Model,
    Server,
    Texts,
    Truncate,
    Version,
    asks,
    console,
)
from commands.ask.texts import Ask, AsNdjson, answer_texts, answers, output_of, texts_of
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
            envvar="ATTENDANT_LAYERS",
            help="Which hidden states, the embeddings being the first layer. By default the last, "
            "which knows most of the context.",
        ),
    ] = "last",
    pooling: Annotated[
        Literal["mean", "cls", "none"],
        typer.Option(
            envvar="ATTENDANT_POOLING",
            help="mean, the default, or cls, the first token's, for a vector per text; none for "
            "one per token.",
        ),
    ] = "mean",
    weights: Annotated[
        list[float] | None,
        typer.Option(
            envvar="ATTENDANT_WEIGHTS",
            help="Of --layers mix: one per layer, embeddings first; give the flag once for each.",
        ),
    ] = None,
    word: Annotated[
        str,
        typer.Option(
            envvar="ATTENDANT_WORD",
            help="Show, in place of vectors, how alike this word is to itself in the texts, by "
            "cosine of its tokens' vectors: the same word has others where its context differs.",
        ),
    ] = "",
    version: Version = "",
    truncate: Truncate = False,
    as_json: AsJson = False,
    as_ndjson: AsNdjson = False,
    server: Server = SERVER,
) -> None:
    """Ask a served model for the hidden states of texts, by layer, per token or pooled."""
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
    """The similarity of a word's vectors: cosines of its first occurrences in texts."""
    import numpy as np  # heavy, and all commands are read together

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
        Literal["cosine", "dot", "scaled_dot"],
        typer.Option(
            envvar="ATTENDANT_MEASURE",
            help="cosine, the default, compares directions; dot lengths too; scaled_dot divides "
            "that by the square root of the number of values, as attention does.",
        ),
    ] = "cosine",
    version: Version = "",
    truncate: Truncate = False,
    as_json: AsJson = False,
    as_ndjson: AsNdjson = False,
    server: Server = SERVER,
) -> None:
    """Ask a served embedder how alike texts are, each with each: all of them, or none."""
    with Client(*server) as client:
        embedded = list(
            _gathered(
                texts_of(texts),
                server.timeout_s,
                lambda part: client.ask(
                    text_pb2.EmbedRequest(
                        model=model, version=version, texts=part, truncate=truncate
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
    """The answers to all texts, or `InvalidArgument` where those are too many, or none."""
    count = 0
    for answered, _ in answers(texts, patience_s, ask):
        count += len(answered.lines)
        if count > MAX_COMPARED_TEXTS:
            raise InvalidArgument(
                f"there are more than {MAX_COMPARED_TEXTS} {texts.noun}s, which is the limit where "
                "each is compared with each"
            )
        yield answered
    if not count:
        raise InvalidArgument("there are no texts, expected at least one")


class Likeness:
    """Rows of the matrix of all texts, in parts: the server embeds each text once."""

    def __init__(self, embedded: Sequence[Answered[text_pb2.EmbedResponse]], measure: str) -> None:
        import numpy as np  # heavy, and all commands are read together

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
        """A part's rows: which texts are most like each."""
        rows = [row.values for row in response.rows]
        first, self._num_drawn = self._num_drawn, self._num_drawn + len(texts)
        return tables.most_alike(texts, rows, self._numbers, first)
