"""Work of a job for each text: a request without its texts, and what the results are.

Plain values, so that it can be sent to other processes.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from commands.ask.bulk.rows import (
    EntityRows,
    LabelRows,
    MessageRows,
    RankingRows,
    Rows,
    ScoreRows,
    VectorRows,
)
from commands.ask.client.methods import message_of
from commands.ask.message_json import json_fields
from service.calls.models import ModelFacts, Models
from service.calls.reading import ClassifyTokens
from service.calls.texts import Classify, Embed, Rerank, ScorePairs
from service.errors import InvalidArgument, SettingError

BITS = 8  # of a byte, in binary encodings
UNSENT = ("texts", "documents")  # fields that each request fills

TextsCall: TypeAlias = Classify | ClassifyTokens | Embed | Rerank | ScorePairs


class Asking(Protocol):
    """A client of the typed API."""

    def ask(self, call: Any) -> Any: ...

    def models(self) -> Models: ...


@dataclass(frozen=True, slots=True)
class Work:
    """Requests of one kind to one version of a model."""

    call: TextsCall
    rows: Rows
    has_queries: bool = False  # a text is JSON of a query and its documents

    def ask(self, client: Asking) -> Callable[[Sequence[str]], Any]:
        """A function that sends texts as one request."""

        def ask(texts: Sequence[str]) -> Any:
            if self.has_queries:
                (text,) = texts
                query, documents = json.loads(text)
                return client.ask(self.call.also(query=query, documents=documents))
            field = "documents" if self.is_ranking else "texts"
            return client.ask(self.call.also(**{field: texts}))

        return ask

    @property
    def is_ranking(self) -> bool:
        return isinstance(self.call, Rerank)

    def results_of(self, answer: Any) -> list[Any]:
        """The results of an answer, in the order of its texts."""
        if not self.is_ranking:
            return list(answer.results)
        in_order = sorted(answer.results, key=lambda document: document.index)
        return [in_order] if self.has_queries else in_order

    def options(self) -> dict[str, Any]:
        """The fields of its requests, by which a job is told from another one."""
        fields = json_fields(self.call)
        for name in ("background", "version", *UNSENT):
            fields.pop(name, None)
        return {"request": message_of(self.call).DESCRIPTOR.full_name, **fields}


def work_of(call: TextsCall, model: ModelFacts, *, has_queries: bool = False) -> Work:
    """The work of a request without texts, pinned to the version of its model."""
    rows: Rows = ScoreRows()
    if has_queries:
        rows = RankingRows()
    elif isinstance(call, Embed):
        rows = _embedding_rows(call, model)
    elif isinstance(call, Classify):
        rows = LabelRows(tuple(model.labels), call.all_scores)
    elif isinstance(call, ClassifyTokens):
        rows = EntityRows()
    return Work(call.also(version=model.version), rows, has_queries)


def _embedding_rows(call: Embed, model: ModelFacts) -> Rows:
    kinds = {*call.kinds, *model.embedding_kinds[:1]}
    if kinds - {"dense"}:
        return MessageRows()
    encoding, width = str(call.encodings[0]), call.dimensions or model.embedding_size
    return VectorRows(-(-width // BITS) if encoding.endswith("binary") else width, encoding)


def served_model(client: Asking, name: str, version: str) -> ModelFacts:
    """A model's description, of the highest version where none is named.

    Raises `InvalidArgument` where it is not served.
    """
    served = [model for model in client.models().models if model.name == name]
    if version:
        served = [model for model in served if model.version == version]
    if not served:
        named = f"'{name}' version {version}" if version else f"'{name}'"
        raise InvalidArgument(f"model {named} is not served: 'attendant models' has those that are")
    return max(served, key=lambda model: int(model.version))


def check_form(rows: Rows, ending: str) -> None:
    """Raise `SettingError` for results that a table has no columns for."""
    if ending == ".parquet" and not rows.columns():
        raise SettingError(
            "--output ends with .parquet, and sparse weights and vectors of tokens have no "
            "columns: write .jsonl"
        )
