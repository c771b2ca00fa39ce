"""`attendant features` and `attendant similarity`: what models make of texts on the way."""

from typing import Annotated, Literal

import typer
from attendant.v1 import features_pb2
from rich.table import Table

from service import tables
from service.cli_common import (
    SERVER,
    AsJson,
    Model,
    Server,
    Texts,
    Truncate,
    Version,
    asks,
    given_texts,
    show,
)
from service.client import FeatureClient

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
    server: Server = SERVER,
) -> None:
    """Ask a served model for the hidden states of texts, by layer, per token or pooled."""
    texts = given_texts(texts)
    with FeatureClient(*server) as client:
        response = client.extract(
            model,
            texts,
            layers=layers,
            pooling="none" if word else pooling,
            weights=weights or (),
            version=version,
            truncate=truncate,
        )

    def draw(found: features_pb2.ExtractFeaturesResponse) -> Table:
        return tables.word_in_texts(texts, word, found) if word else tables.features(texts, found)

    show(response, draw, as_json)


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
    server: Server = SERVER,
) -> None:
    """Ask a served embedder how alike texts are, each with each."""
    texts = given_texts(texts)
    with FeatureClient(*server) as client:
        response = client.similarity(
            model, texts, measure=measure, version=version, truncate=truncate
        )
    show(response, lambda found: tables.similarities(texts, found), as_json)
