"""`attendant features` and `attendant similarity`: what models make of texts on the way."""

from typing import Annotated, Literal

import typer

from service import tables
from service.cli_common import (
    DEFAULT_ADDRESS,
    Address,
    AsJson,
    Model,
    Texts,
    TimeoutS,
    Truncate,
    Version,
    given_texts,
    show,
    with_access,
)
from service.client import NO_ACCESS, Access, FeatureClient

Layers = Literal[
    "first", "last", "second_to_last", "sum_last_four", "concat_last_four", "sum_all", "mix"
]


@with_access
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
    version: Version = "",
    truncate: Truncate = False,
    address: Address = DEFAULT_ADDRESS,
    timeout_s: TimeoutS = 30.0,
    as_json: AsJson = False,
    access: Access = NO_ACCESS,
) -> None:
    """Ask a served model for the hidden states of texts, by layer, per token or pooled."""
    texts = given_texts(texts)
    with FeatureClient(address, timeout_s, access) as client:
        response = client.extract(
            model,
            texts,
            layers=layers,
            pooling=pooling,
            weights=weights or (),
            version=version,
            truncate=truncate,
        )
    show(response, lambda found: tables.features(texts, found), as_json)


@with_access
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
    address: Address = DEFAULT_ADDRESS,
    timeout_s: TimeoutS = 30.0,
    as_json: AsJson = False,
    access: Access = NO_ACCESS,
) -> None:
    """Ask a served embedder how alike texts are, each with each."""
    texts = given_texts(texts)
    with FeatureClient(address, timeout_s, access) as client:
        response = client.similarity(
            model, texts, measure=measure, version=version, truncate=truncate
        )
    show(response, lambda found: tables.similarities(texts, found), as_json)
