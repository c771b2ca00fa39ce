"""The commands `models`, `classify`, `embed` and `score`."""

from collections.abc import Sequence
from typing import Annotated, Literal

import typer
from attendant.v1 import text_pb2 as pb

from commands.ask.bulk.options import (
    NO_FILES,
    Files,
    OptionalTexts,
    answer_file,
    given,
    input_of,
    takes_files,
)
from commands.ask.client.client import Client
from commands.ask.options import (
    MAX_UINT32,
    SERVER,
    AsJson,
    Dimensions,
    Model,
    PromptName,
    RawScores,
    Server,
    Texts,
    Truncate,
    Version,
    asks,
    show,
)
from commands.ask.shown import embedding_tables, tables
from commands.ask.shown.model_table import ModelTable
from commands.ask.texts import AsNdjson, answer_texts


@asks
def models(
    as_json: AsJson = False,
    server: Server = SERVER,
) -> None:
    with Client(*server) as client:
        show(client.models(), ModelTable, as_json)


@asks
@takes_files
def classify(
    model: Model,
    texts: OptionalTexts = None,
    top_k: Annotated[
        int,
        typer.Option(
            min=0,
            max=MAX_UINT32,
            envvar="ATTENDANT_CLASSIFY_TOP_K",
            help="Number of labels per text, most likely first; 0 prints all of them.",
        ),
    ] = 0,
    version: Version = "",
    truncate: Truncate = False,
    as_json: AsJson = False,
    as_ndjson: AsNdjson = False,
    files: Files = NO_FILES,
    server: Server = SERVER,
) -> None:

    def request(part: Sequence[str] = ()) -> pb.ClassifyRequest:
        return pb.ClassifyRequest(
            model=model,
            version=version,
            texts=part,
            truncate=truncate,
            top_k=top_k,
            all_scores=not top_k,
        )

    path = input_of(files, texts, is_json=as_json or as_ndjson)
    if path is not None:
        answer_file(path, files, server, request())
        return
    with Client(*server) as client:
        answer_texts(
            given(texts),
            server.timeout_s,
            lambda part: client.ask(request(part)),
            tables.classifications,
            as_json=as_json,
            as_ndjson=as_ndjson,
        )


@asks
@takes_files
def embed(
    model: Model,
    texts: OptionalTexts = None,
    kind: Annotated[
        Literal["dense", "sparse", "token-vectors"] | None,
        typer.Option(
            envvar="ATTENDANT_KIND",
            help="What is answered: dense, one vector; sparse, weights of words; or token-vectors, "
            "one vector per token. By default the first that the model has.",
        ),
    ] = None,
    top_k: Annotated[
        int,
        typer.Option(
            min=0,
            max=MAX_UINT32,
            envvar="ATTENDANT_EMBED_TOP_K",
            help="With --kind sparse, number of weights per text, heaviest; 0 takes all of them.",
        ),
    ] = 0,
    prompt_name: PromptName = "",
    prompt: Annotated[
        str | None,
        typer.Option(
            envvar="ATTENDANT_PROMPT",
            help="Text to put in front of each text, in place of a prompt of the model; '' for "
            "nothing.",
        ),
    ] = None,
    dimensions: Dimensions = 0,
    encoding: Annotated[
        Literal["float", "int8", "uint8", "binary", "ubinary"],
        typer.Option(
            envvar="ATTENDANT_ENCODING",
            help="How vectors are written: int8 and uint8 in 256 steps of each value's range, "
            "binary and ubinary a bit per value. In JSON the bytes are base64.",
        ),
    ] = "float",
    version: Version = "",
    truncate: Truncate = False,
    as_json: AsJson = False,
    as_ndjson: AsNdjson = False,
    files: Files = NO_FILES,
    server: Server = SERVER,
) -> None:
    has_pieces = kind == "sparse"
    name, is_float = (kind or "").replace("-", "_").upper(), encoding == "float"

    def request(part: Sequence[str] = ()) -> pb.EmbedRequest:
        return pb.EmbedRequest(
            model=model,
            version=version,
            texts=part,
            truncate=truncate,
            prompt_name=prompt_name,
            prompt=prompt,
            dimensions=dimensions,
            encodings=[f"EMBEDDING_ENCODING_{encoding.upper()}"],
            kinds=[f"EMBEDDING_KIND_{name}"] if name else [],
            top_k=top_k,
            with_pieces=has_pieces,
        )

    def ask(part: Sequence[str]) -> pb.EmbedResponse:
        nonlocal has_pieces
        response: pb.EmbedResponse = client.ask(request(part))
        is_sparse = any(result.HasField("sparse") for result in response.results)
        if is_sparse and not has_pieces:  # by default: the first answer alone is asked for again
            has_pieces = True
            response = client.ask(request(part))
        return response

    path = input_of(files, texts, is_json=as_json or as_ndjson)
    if path is not None:
        answer_file(path, files, server, request())
        return
    with Client(*server) as client:
        answer_texts(
            given(texts),
            server.timeout_s,
            ask,
            embedding_tables.of_kind(tables.embeddings if is_float else tables.encoded_vectors),
            as_json=as_json,
            as_ndjson=as_ndjson,
            draw_rows=embedding_tables.of_kind(
                tables.vectors if is_float else tables.encoded_vectors
            ),
        )


@asks
def score(
    model: Model,
    query: Annotated[str, typer.Argument(help="The first text of each pair.")],
    texts: Texts,
    raw_scores: RawScores = None,
    version: Version = "",
    truncate: Truncate = False,
    as_json: AsJson = False,
    as_ndjson: AsNdjson = False,
    server: Server = SERVER,
) -> None:
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
                    raw_scores=raw_scores,
                )
            ),
            tables.scores,
            as_json=as_json,
            as_ndjson=as_ndjson,
        )
