"""The record of a task: how its models are run, and the form of requests and answers.

Every task is a record in a file of its own, and `table.py` has them all. Answers are made of plain
values, so that one answer serves messages of the typed API and JSON. Knows nothing of
messages, queues or sessions.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from service.calls.answers import LabelScore, Token
from service.calls.methods import ANSWERS, Record
from service.calls.record import Call
from service.contract.manifest import Manifest, TaskName
from service.contract.tensors import DATATYPES, Arrays, Signature, TensorSpec
from service.errors import InvalidArgument, invalid_field
from service.records import Timings
from service.text.tokenizer import EncodedText, Text, TextTokenizer

# The fields of an answer, by the names of its record.
Fields: TypeAlias = Mapping[str, Any]
Parameters: TypeAlias = Mapping[str, bool | int | float | str]  # of a tensor request
Outputs: TypeAlias = dict[str, np.ndarray]
# A name, or a number of an enumeration that has none.
Choice: TypeAlias = str | int

BYTES, FP32, INT32 = (DATATYPES[name] for name in ("BYTES", "FP32", "INT32"))
MAX_VALUES = 2**21  # of one answer, 8 MiB: it is made in a tenth of a second
TEXT = (TensorSpec("text", BYTES, (1,)),)


class TaskModel(Protocol):
    """The parts of a model that its task needs."""

    @property
    def name(self) -> str: ...

    @property
    def manifest(self) -> Manifest: ...


class TextTaskModel(TaskModel, Protocol):
    """A model that reads texts, as tasks see it."""

    @property
    def tokenizer(self) -> TextTokenizer: ...


@dataclass(frozen=True, slots=True)
class OutputRows:
    """One output of a graph for all texts, float32: rows per text, token or mask."""

    values: np.ndarray
    counts: list[int]  # of rows of `values`, by text

    def per_text(self) -> list[np.ndarray]:
        """Each text's rows of the output."""
        return np.split(self.values, list(accumulate(self.counts))[:-1]) if self.counts else []


@dataclass(frozen=True, slots=True)
class TextReply:
    """The outputs of a text model by name, and what went in."""

    outputs: Mapping[str, OutputRows]
    rows: list[EncodedText]
    timings: Timings

    @property
    def values(self) -> np.ndarray:
        """Values of the first output, which most tasks have alone."""
        return self._first.values

    def per_text(self) -> list[np.ndarray]:
        """Each text's rows of the first output."""
        return self._first.per_text()

    @property
    def num_rows(self) -> int:
        """The most of one output."""
        return max(len(output.values) for output in self.outputs.values())

    @property
    def num_values(self) -> int:
        """Number of values of all outputs."""
        return sum(output.values.size for output in self.outputs.values())

    @property
    def _first(self) -> OutputRows:
        return next(iter(self.outputs.values()))

    @property
    def totals(self) -> Fields:
        """The fields of an answer that are of all texts together."""
        return {"num_tokens": sum(row.num_tokens for row in self.rows)}


@dataclass(frozen=True, slots=True)
class Reading:
    """Needs of an answer beside what all get, and the bound of its texts."""

    has_vectors: bool = False  # those of tokens, which are computed where they are read
    # Texts after tokenizing and before they are queued; raises `InvalidArgument`.
    check: Callable[[Sequence[EncodedText]], None] = lambda _: None


@dataclass(frozen=True, slots=True)
class Ask:
    """One checked request of the typed API: what is computed, and what a reply is made into."""

    inputs: Sequence[Any]  # texts, or files of images
    answer: Callable[[Any], Fields]  # of the model's reply, those of the method's own
    num_bytes: int = 0  # that the inputs take beside the request's message, once decoded
    reading: Reading = field(default_factory=Reading)
    # Of inputs that its record has elsewhere than in `texts` and `text_pairs`, for errors.
    paths: Callable[[], Mapping[str, str]] = dict


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The shared parts of all models of a task."""

    name: TaskName
    verb: str  # as in "it cannot ..."
    signature: Callable[[Manifest], Signature]  # as clients see it, without the batch axis


def texts_of(inputs: Arrays) -> Sequence[Text]:
    """The texts, or the pairs, of a request's tensors."""
    texts = decode(inputs["text"])
    if "text_pair" not in inputs:
        return texts
    return list(zip(texts, decode(inputs["text_pair"]), strict=True))


def nothing_to_check(
    _model: TextTaskModel, _texts: Sequence[Text], _rows: Sequence[EncodedText]
) -> None:
    """Every text that the tokenizer takes is taken."""


@dataclass(frozen=True, slots=True)
class GraphOutput:
    """A tensor that graphs of a task give."""

    name: str
    dims: Callable[[Manifest], tuple[int, ...]]  # of a row of it; -1 where anything goes
    rows: Literal["text", "token", "mask", "vector"] = "text"  # what a row of it is of
    is_given: Callable[[Manifest], bool] = lambda _: True  # by a model with that manifest

    def num_rows(self, inputs: Arrays, manifest: Manifest) -> int:
        """The rows that a text has of it, [1, S] in the inputs."""
        if self.rows == "text":
            return 1
        if self.rows == "token":
            return inputs["input_ids"].size
        if self.rows == "vector":
            return int(inputs["vector_mask"].sum())
        return int((inputs["input_ids"] == manifest.mask_token_id).sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTask(Task):
    """A task of batched texts, whose graph takes token ids and gives one tensor or several."""

    outputs: tuple[GraphOutput, ...]
    is_alone: bool = False  # whether a text shares no run with others
    # Of a reply: reading tokens takes about a microsecond each, and a hop to another thread 100.
    inline_rows: int = 1_024
    tokenizer: type[TextTokenizer] = TextTokenizer
    texts_of: Callable[[Arrays], Sequence[Text]] = texts_of
    # What is read of a tensor request's texts, by its parameters; raises `InvalidArgument`.
    prompted: Callable[[TextTaskModel, Parameters, Sequence[Text]], Sequence[Text]] = (
        lambda _model, _parameters, texts: texts
    )
    # Texts after tokenizing and before they are queued; raises `InvalidArgument`.
    check: Callable[[TextTaskModel, Sequence[Text], Sequence[EncodedText]], None] = nothing_to_check
    # What a tensor request's parameters make of a reply; raises `InvalidArgument` for others.
    tensors: Callable[[TextTaskModel, Parameters], Callable[[Sequence[Text], TextReply], Outputs]]

    @property
    def needs_encodings(self) -> bool:
        """Whether answers tell of tokens: where in a text they are."""
        return self.outputs[0].rows != "text" or self.is_alone

    def outputs_of(self, manifest: Manifest) -> tuple[GraphOutput, ...]:
        """The tensors that the graph of such a model gives, the first by default."""
        return tuple(output for output in self.outputs if output.is_given(manifest))


@dataclass(frozen=True, slots=True)
class Method:
    """One method of the typed API."""

    task: Task
    call: type[Call]
    ask: Callable[[Any, Any], Ask]  # of a call and a model of the task; raises `InvalidArgument`

    @property
    def name(self) -> str:
        """The name that it has there."""
        return self.call.__name__

    @property
    def answer(self) -> Record:
        """The record of its answers."""
        return ANSWERS[self.call]


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities along the last axis, float32."""
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probabilities: np.ndarray = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return probabilities


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Sigmoid of each number; large ones of either sign do not overflow."""
    scores: np.ndarray = np.float32(0.5) * (np.tanh(logits * np.float32(0.5)) + 1)
    return scores


# What makes scores of logits, by `Manifest.scores_by`.
SCORES: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "softmax": softmax,
    "sigmoid": sigmoid,
    "identity": lambda logits: logits,
}


def ranked(scores: np.ndarray, labels: Sequence[str], count: int) -> list[list[LabelScore]]:
    """The `count` labels of each row with the highest scores, best first."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    return [
        [LabelScore(labels[index], row[index]) for index in best]
        for row, best in zip(scores.tolist(), order.tolist(), strict=True)
    ]


def label_count(top_k: int, num_labels: int, *, all_scores: bool) -> int:
    """The number of labels requested for each input."""
    if all_scores and top_k:
        raise invalid_field("top_k", f"is {top_k} and all_scores is set: give one of them")
    if top_k > num_labels:
        raise invalid_field("top_k", f"is {top_k}, the model has {num_labels} labels")
    return num_labels if all_scores else top_k or 1


def chosen(name: str, choice: Choice, choices: Sequence[str], default: str) -> str:
    """A choice by its name, the default for none; `InvalidArgument` for an unknown number."""
    if isinstance(choice, int):
        raise invalid_field(name, f"is {choice}, expected 0 to {len(choices)}")
    return choice or default


def row_fields(row: EncodedText) -> dict[str, Any]:
    """The fields of every answer for a text."""
    return {"num_tokens": row.num_tokens, "is_truncated": row.is_truncated}


def tokens_of(row: EncodedText) -> list[Token]:
    """The tokens of a text, and where in it they are."""
    encoding = row.encoding
    assert encoding is not None, "the tokenizer of such a model keeps them"
    tokens = zip(encoding.ids, encoding.tokens, encoding.offsets, strict=True)
    return [Token(token_id, piece, start, end) for token_id, piece, (start, end) in tokens]


def column(values: Sequence[Any], dtype: Any) -> np.ndarray:  # noqa: ANN401 - what NumPy takes
    """[N, 1]: one value for each text."""
    array = np.empty(len(values), dtype)
    array[:] = values
    return array[:, None]


def decode(array: np.ndarray) -> list[str]:
    """The texts of a BYTES tensor, or `InvalidArgument` where one is not UTF-8."""
    try:
        return [element.decode() for element in array.ravel().tolist()]
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"a BYTES element is not UTF-8: {error}") from error
