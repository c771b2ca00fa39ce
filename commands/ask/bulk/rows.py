"""One text's result in a file: a row of an array, a JSON object, or columns of a table.

A row that has no result is NaN in an array, where its type has that, and else zero; null in a
table; and absent from JSON. Knows nothing of files or servers.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from commands.ask.message_json import json_fields

FLOAT_DIGITS = "%.9g"  # as many digits as tell every float32 from its neighbours


class Rows(ABC):
    """The results of one kind of request."""

    @property
    def array(self) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
        """The type and the shape of a row in an array; None where results are none."""
        return None

    def values_of(self, result: Any) -> Any:
        """A row of that array."""
        raise AssertionError(f"there is no array of {type(result)}")

    @abstractmethod
    def columns(self) -> dict[str, str]:
        """The types of a table's columns by their names, as `parquet_files.py` spells them."""

    @abstractmethod
    def cells_of(self, result: Any) -> tuple[Any, ...]:
        """The cells of these columns."""

    def json_of(self, line: int, result: Any) -> str:
        """A line of JSON."""
        return json.dumps({"line": line, **self.fields_of(result)}, ensure_ascii=False)

    def fields_of(self, result: Any) -> dict[str, Any]:
        """The fields of a line of JSON."""
        return json_fields(result)


@dataclass(frozen=True, slots=True)
class VectorRows(Rows):
    """Dense embeddings, in an encoding."""

    width: int  # values, or bytes of bits
    encoding: str = "float"

    @property
    def array(self) -> tuple[np.dtype[Any], tuple[int, ...]]:
        kinds = {"float": np.float32, "int8": np.int8, "binary": np.int8}
        return np.dtype(kinds.get(self.encoding, np.uint8)), (self.width,)

    def values_of(self, result: Any) -> Any:
        if self.encoding == "float":
            return result.values
        return np.frombuffer(result.encoded[0].values, self.array[0])

    def columns(self) -> dict[str, str]:
        return {"vector": f"vector {self.array[0]} {self.width}"}

    def cells_of(self, result: Any) -> tuple[Any, ...]:
        return (self.values_of(result),)

    def json_of(self, line: int, result: Any) -> str:
        """By hand: protobuf takes a millisecond for the values of one vector."""
        if self.encoding != "float":
            return super().json_of(line, result)
        numbers = result.numbers
        values = ", ".join([FLOAT_DIGITS] * len(numbers)) % tuple(numbers)
        truncated = "true" if result.is_truncated else "false"
        return (
            f'{{"line": {line}, "values": [{values}], "num_tokens": {result.num_tokens}, '
            f'"is_truncated": {truncated}}}'
        )


@dataclass(frozen=True, slots=True)
class LabelRows(Rows):
    """Labels with their scores; an array has all scores, in the order of the model's labels."""

    labels: tuple[str, ...]
    has_all: bool  # False: the best few

    @property
    def array(self) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
        return (np.dtype(np.float32), (len(self.labels),)) if self.has_all else None

    def values_of(self, result: Any) -> Any:
        scores = {each.label: each.score for each in result.labels}
        return [scores[label] for label in self.labels]

    def columns(self) -> dict[str, str]:
        return {"label": "text", "score": "float", "labels": "texts", "scores": "floats"}

    def cells_of(self, result: Any) -> tuple[Any, ...]:
        labels = [each.label for each in result.labels]
        scores = [each.score for each in result.labels]
        return labels[0], scores[0], labels, scores


class ScoreRows(Rows):
    """A score for each document."""

    @property
    def array(self) -> tuple[np.dtype[Any], tuple[int, ...]]:
        return np.dtype(np.float32), ()

    def values_of(self, result: Any) -> Any:
        return result.score

    def columns(self) -> dict[str, str]:
        return {"score": "float"}

    def cells_of(self, result: Any) -> tuple[Any, ...]:
        return (result.score,)

    def fields_of(self, result: Any) -> dict[str, Any]:
        fields = json_fields(result)
        del fields["index"]  # of its request
        return fields


class RankingRows(Rows):
    """The scores of a line's documents, in their order."""

    def columns(self) -> dict[str, str]:
        return {"scores": "floats"}

    def cells_of(self, result: Any) -> tuple[Any, ...]:
        return (self._scores_of(result),)

    def fields_of(self, result: Any) -> dict[str, Any]:
        return {"scores": [float(FLOAT_DIGITS % score) for score in self._scores_of(result)]}

    def _scores_of(self, result: Sequence[Any]) -> list[float]:
        return [document.score for document in result]


class EntityRows(Rows):
    """Entities of a text."""

    def columns(self) -> dict[str, str]:
        return {"entities": "entities"}

    def cells_of(self, result: Any) -> tuple[Any, ...]:
        return ([json_fields(entity) for entity in result.entities],)


class MessageRows(Rows):
    """Results of any kind, which only JSON has a form for."""

    def columns(self) -> dict[str, str]:
        return {}

    def cells_of(self, result: Any) -> tuple[Any, ...]:
        raise AssertionError(f"there are no columns of {type(result)}")
