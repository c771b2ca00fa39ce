"""Commands that ask a server for its models, and for labels or vectors of texts."""

from typing import Annotated

import typer

from commands.ask import tables
from commands.ask.client import TextClient
from commands.ask.options import (
    SERVER,
    AsJson,
    Model,
    Server,
    Texts,
    Truncate,
    Version,
    asks,
    show,
)
from commands.ask.texts import AsNdjson, answer_texts


@asks
def models(
    as_json: AsJson = False,
    server: Server = SERVER,
) -> None:
    """List the models that a server offers."""
    with TextClient(*server) as client:
        show(client.list_models(), tables.models, as_json)


@asks
def classify(
    model: Model,
    texts: Texts,
    top_k: Annotated[
        int,
        typer.Option(
            min=0,
            envvar="ATTENDANT_TOP_K",
            help="Labels per text, best first; 0, the default, prints all of them.",
        ),
    ] = 0,
    version: Version = "",
    truncate: Truncate = False,
    as_json: AsJson = False,
    as_ndjson: AsNdjson = False,
    server: Server = SERVER,
) -> None:
    """Ask a served classifier for the labels of texts."""
    with TextClient(*server) as client:
        answer_texts(
            texts,
            server.timeout_s,
            lambda part: client.classify(
                model, part, version=version, top_k=top_k, truncate=truncate
            ),
            tables.classifications,
            as_json=as_json,
            as_ndjson=as_ndjson,
        )


@asks
def embed(
    model: Model,
    texts: Texts,
    version: Version = "",
    truncate: Truncate = False,
    as_json: AsJson = False,
    as_ndjson: AsNdjson = False,
    server: Server = SERVER,
) -> None:
    """Ask a served embedder for the vectors of texts, and show how similar they are."""
    with TextClient(*server) as client:
        answer_texts(
            texts,
            server.timeout_s,
            lambda part: client.embed(model, part, version=version, truncate=truncate),
            tables.embeddings,
            as_json=as_json,
            as_ndjson=as_ndjson,
            draw_rows=tables.vectors,
        )
