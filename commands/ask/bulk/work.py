"""Work of a job for each text: a request without its texts, and what the results are.

Plain values, so that it can be sent to other processes.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from attendant.v1 import reading_pb2, text_pb2
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from commands.ask.bulk.rows import (
    EntityRows,
    LabelRows,
    MessageRows,
    RankingRows,
    Rows,
    ScoreRows,
    VectorRows,
)
from commands.ask.message_json import json_fields
from service.errors import InvalidArgument, SettingError

BITS = 8  # of a byte, in binary encodings
UNSENT = ("texts", "documents", "query")  # fields that each request fills, or a line does


class Asking(Protocol):
    """A client of the typed API."""

    def ask(self, request: Message) -> Any: ...

    def models(self) -> text_pb2.ListModelsResponse: ...


@dataclass(frozen=True, slots=True)
class Work:
    """Requests of one kind to one version of a model."""

    request_name: str
    request: bytes
    rows: Rows
    has_queries: bool = False  # a text is JSON of a query and its documents

    def ask(self, client: Asking) -> Callable[[Sequence[str]], Any]:
        """A function that sends texts as one request."""
        kind = _REQUESTS[self.request_name]

        def ask(texts: Sequence[str]) -> Any:
            request: Any = kind.FromString(self.request)
            if self.has_queries:
                (text,) = texts
                request.query, documents = json.loads(text)
                request.documents.extend(documents)
            else:
                field = "documents" if self.is_ranking else "texts"
                getattr(request, field).extend(texts)
            return client.ask(request)

        return ask

    @property
    def is_ranking(self) -> bool:
        return bool(self.request_name == text_pb2.RerankRequest.DESCRIPTOR.full_name)

    def results_of(self, response: Any) -> list[Any]:
        """The results of a response, in the order of its texts."""
        if not self.is_ranking:
            return list(response.results)
        in_order = sorted(response.results, key=lambda document: document.index)
        return [in_order] if self.has_queries else in_order

    def options(self) -> dict[str, Any]:
        """The fields of its requests, by which a job is told from another one."""
        request: Any = _REQUESTS[self.request_name].FromString(self.request)
        fields = json_fields(request)
        for name in ("background", "version", *UNSENT[:2]):
            fields.pop(name, None)
        return {"request": self.request_name, **fields}


def work_of(request: Any, model: text_pb2.Model, *, has_queries: bool = False) -> Work:
    """The work of a request without texts, pinned to the version of its model."""
    request.version = model.version
    name = request.DESCRIPTOR.full_name
    if has_queries:
        rows: Rows = RankingRows()
    elif name == text_pb2.EmbedRequest.DESCRIPTOR.full_name:
        rows = _embedding_rows(request, model)
    elif name == text_pb2.ClassifyRequest.DESCRIPTOR.full_name:
        rows = LabelRows(tuple(model.labels), request.all_scores)
    elif name == reading_pb2.ClassifyTokensRequest.DESCRIPTOR.full_name:
        rows = EntityRows()
    else:
        rows = ScoreRows()
    return Work(name, request.SerializeToString(deterministic=True), rows, has_queries)


def _embedding_rows(request: Any, model: text_pb2.Model) -> Rows:
    kinds = list(request.kinds) or [text_pb2.EmbeddingKind.EMBEDDING_KIND_DENSE]
    is_dense = kinds == [text_pb2.EmbeddingKind.EMBEDDING_KIND_DENSE]
    if not is_dense or (model.embedding_kinds and model.embedding_kinds[0] != "dense"):
        return MessageRows()
    encoding = text_pb2.EmbeddingEncoding.Name(request.encodings[0])
    encoding = encoding.removeprefix("EMBEDDING_ENCODING_").lower()
    width = request.dimensions or model.embedding_size
    return VectorRows(-(-width // BITS) if encoding.endswith("binary") else width, encoding)


def served_model(client: Asking, name: str, version: str) -> text_pb2.Model:
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


_REQUESTS: dict[str, type[Message]] = {
    message.full_name: GetMessageClass(message)
    for file in (text_pb2, reading_pb2)
    for message in file.DESCRIPTOR.message_types_by_name.values()
    if message.name.endswith("Request")
}
