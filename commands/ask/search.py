"""`attendant search`: the texts of a file that are most like a query, by their vectors.

The file is embedded once, into an index beside it; a query is embedded, compared with all, and the
best are put in order by a reranker where one is served.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from commands.ask.asked import Asked
from commands.ask.client.client import Client
from commands.ask.options import console
from commands.ask.shown import tables
from service.calls.models import ModelFacts
from service.calls.texts import Embed, Rerank
from service.errors import InvalidArgument, SettingError

if TYPE_CHECKING:
    from commands.ask.bulk.index import Found, Index

QUERY_PROMPTS = ("query", "search_query", "retrieval.query")
TEXT_PROMPTS = ("document", "passage", "search_document", "retrieval.passage")
MAX_FOUND = 1_000
RERANKING = "pair-scoring"


def search(
    asked: Asked,
    file: Annotated[
        Path,
        typer.Argument(help="File of texts: .txt with one a line, .jsonl, .csv, .tsv or .parquet."),
    ],
    query: Annotated[list[str], typer.Argument(help="What is searched for; several are several.")],
    model: Annotated[
        str,
        typer.Option(
            envvar="ATTENDANT_SEARCH_MODEL",
            help="The embedder; where one alone is served, it.",
        ),
    ] = "",
    reranker: Annotated[
        str,
        typer.Option(
            envvar="ATTENDANT_SEARCH_RERANKER",
            help="The model that puts the best texts in order: by default the first that is "
            "served for it, if any; 'none' keeps the order of the vectors.",
        ),
    ] = "",
    top: Annotated[
        int,
        typer.Option(
            envvar="ATTENDANT_SEARCH_TOP", help="Number of texts to show.", min=1, max=MAX_FOUND
        ),
    ] = 10,
    candidates: Annotated[
        int,
        typer.Option(
            envvar="ATTENDANT_SEARCH_CANDIDATES",
            help="Number of texts that the reranker reads.",
            min=1,
            max=MAX_FOUND,
        ),
    ] = 50,
    field: Annotated[
        str,
        typer.Option(
            envvar="ATTENDANT_SEARCH_FIELD",
            help="The field, or column, of the text in .jsonl, .csv, .tsv and .parquet.",
        ),
    ] = "text",
    index: Annotated[
        Path | None,
        typer.Option(
            envvar="ATTENDANT_SEARCH_INDEX",
            help="Folder of the vectors, which is made; by default FILE.index. Interrupted, it "
            "goes on by the same command; of another file or model, it is made anew.",
        ),
    ] = None,
) -> None:
    from commands.ask.bulk.index import checked_source, prepared_index

    if not all(each.strip() for each in query):
        raise SettingError("QUERY is empty, expected a text")
    source = checked_source(file, field)
    folder = (index or file.with_name(f"{file.name}.index")).absolute()
    with asked.client() as client:
        served = client.models().models
        embedder = _chosen(served, "embedding", model, "--model")
        call = Embed(
            model=embedder.name,
            version=embedder.version,
            prompt_name=_prompt(embedder, TEXT_PROMPTS),
            encodings=("float",),
            truncate=True,
            background=True,
        )
        patience_s = asked.server.timeout_s
        found = prepared_index(folder, source, client, (call, embedder), patience_s)
        ranker = None if reranker == "none" else _reranker(served, reranker)
        for each in query:
            _show(_found(found, client, embedder, ranker, each, top, candidates), each, asked)


def _chosen(served: Sequence[ModelFacts], task: str, name: str, flag: str) -> ModelFacts:
    """The served model of that task. Raises `InvalidArgument`."""
    models = [each for each in served if each.task == task]
    named = [each for each in models if each.name == name] if name else models
    if name and not named:
        raise InvalidArgument(
            f"{flag} is '{name}', expected a served model of the task {task}: "
            f"{_names(models) or 'none is served'}"
        )
    if len({each.name for each in named}) != 1:
        raise InvalidArgument(
            f"{flag} is not given, expected it where {_names(models) or 'no model'} "
            f"{'are' if models else 'is'} served for the task {task}"
        )
    return max(named, key=lambda each: int(each.version))


def _reranker(served: Sequence[ModelFacts], name: str) -> ModelFacts | None:
    """The reranker of that name, or the first that is served; None without any."""
    first = next((each.name for each in served if each.task == RERANKING), "")
    return _chosen(served, RERANKING, name or first, "--reranker") if name or first else None


def _names(models: list[ModelFacts]) -> str:
    return ", ".join(dict.fromkeys(f"'{each.name}'" for each in models))


def _prompt(embedder: ModelFacts, names: tuple[str, ...]) -> str:
    """The first of the names by which a model has a prompt; empty for its default one."""
    known = {prompt.name for prompt in embedder.prompts}
    return next((name for name in names if name in known), "")


def _found(
    index: "Index",
    client: Client,
    embedder: ModelFacts,
    ranker: ModelFacts | None,
    query: str,
    top: int,
    candidates: int,
) -> "tuple[list[Found], ModelFacts]":
    """The best texts with their lines and scores, and the model whose order they are in."""
    import numpy as np

    from commands.ask.bulk.index import Found

    answer = client.ask(
        Embed(
            model=embedder.name,
            version=embedder.version,
            texts=[query],
            prompt_name=_prompt(embedder, QUERY_PROMPTS),
            truncate=True,
        )
    )
    vector = np.asarray(answer.results[0].values, np.float32)
    best = index.nearest(vector, top if ranker is None else max(top, candidates))
    texts = index.texts_of([line for line, _ in best])
    if ranker is None or not best:
        return [Found(line, texts[line], score) for line, score in best], embedder
    ranking = client.ask(
        Rerank(
            model=ranker.name,
            version=ranker.version,
            query=query,
            documents=[texts[line] for line, _ in best],
            truncate=True,
            top_n=top,
        )
    )
    return [
        Found(best[each.index][0], texts[best[each.index][0]], each.score)
        for each in ranking.results
    ], ranker


def _show(found: "tuple[list[Found], ModelFacts]", query: str, asked: Asked) -> None:
    results, model = found
    if not asked.as_json:
        console.print(tables.found(query, results, model))
        return
    rows = [{"line": each.line, "score": each.score, "text": each.text} for each in results]
    told = {"query": query, "model": model.name, "version": model.version, "results": rows}
    print(json.dumps(told, ensure_ascii=False))  # noqa: T201
