"""The commands `models`, `classify` and `embed`."""

from typing import Annotated

import typer
from attendant.v1 import text_pb2 as pb

from commands.ask import tables
from commands.ask.client import Client
from commands.ask.model_table import ModelTable
from commands.ask.options import (
    MAX_UINT32,
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
    """List the models that a server serves."""
    with Client(*server) as client:
        show(client.models(), ModelTable, as_json)


@asks
def classify(
    model: Model,
    texts: Texts,
    top_k: Annotated[
        int,
        typer.Option(
            min=0,
            max=MAX_UINT32,
            envvar="ATTENDANT_TOP_K",
            help="Number of labels per text, most likely first; 0 prints all of them.",
        ),
    ] = 0,
    version: Version = "",
    truncate: Truncate = False,
    as_json: AsJson = False,
    as_ndjson: AsNdjson = False,
    server: Server = SERVER,
) -> None:
    """Classify texts."""
    with Client(*server) as client:
        answer_texts(
            texts,
            server.timeout_s,
            lambda part: client.ask(
                pb.ClassifyRequest(
                    model=model,
                    version=version,
                    texts=part,
                    truncate=truncate,
                    top_k=top_k,
                    all_scores=not top_k,
                )
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
    """Embed texts as vectors, and show how similar the texts are."""
    with Client(*server) as client:
        answer_texts(
            texts,
            server.timeout_s,
            lambda part: client.ask(
                pb.EmbedRequest(model=model, version=version, texts=part, truncate=truncate)
            ),
            tables.embeddings,
            as_json=as_json,
            as_ndjson=as_ndjson,
            draw_rows=tables.vectors,
        )


@asks
def score(
    model: Model,
    query: Annotated[str, typer.Argument(help="The first text of each pair.")],
    texts: Texts,
    version: Version = "",
    truncate: Truncate = False,
    as_json: AsJson = False,
    as_ndjson: AsNdjson = False,
    server: Server = SERVER,
) -> None:
    """Score how well each text matches a query, from 0 to 1."""
    with Client(*server) as client:
        answer_texts(
            texts,
            server.timeout_s,
            lambda part: client.ask(
                pb.ScorePairsRequest(
                    model=model,
                    version=version,
                    texts=[query] * len(part),
                    text_pairs=part,
                    truncate=truncate,
                )
            ),
            tables.scores,
            as_json=as_json,
            as_ndjson=as_ndjson,
        )
