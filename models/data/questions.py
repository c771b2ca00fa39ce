"""Read questions about contexts, and where their answers are.

Knows nothing about models or tokenizers. The formats:

    .json             SQuAD's: `data`, of `paragraphs`, of a `context` and `qas`
    .jsonl, .ndjson   one object per line with `question`, `context` and `answers`

An answer has a `text` and the character where it starts, `answer_start`; all of a question's
answers are right, and the first is learnt. A question without any has none in its context.

How well an answer agrees with the right ones, by the measures of SQuAD (pure).

Rajpurkar et al. 2016: texts are compared without case, punctuation and articles. An answer is an
exact match or not; its F1 is that of the words it shares with a right answer. Of several right
answers the best agrees. To a question without an answer only the empty one is right (SQuAD 2.0).
"""

import json
import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from models.data.datasets import Examples, reading, split_groups
from models.errors import DatasetError


@dataclass(frozen=True, slots=True)
class Answer:
    """Characters [start, start + len(text)) of a context."""

    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass(frozen=True, slots=True)
class Question:
    """`line` is where it stands in its file: the line, or in SQuAD's format the how manieth."""

    line: int
    question: str
    context: str
    answers: tuple[Answer, ...]

    @property
    def content(self) -> tuple[object, ...]:
        answers = tuple((answer.text, answer.start) for answer in self.answers)
        return self.question, self.context, answers


@dataclass(frozen=True, slots=True)
class QuestionDataset(Examples[Question]):
    """Questions with their contexts and answers."""

    def split(self, fractions: Sequence[float], seed: int) -> list["QuestionDataset"]:
        """Return what remains, then a held-out part per fraction; no two share a context."""
        contexts = [example.context for example in self.examples]
        return list(map(self.at, split_groups(self.name, contexts, fractions, seed)))

    def check(self, held_out: Sequence["QuestionDataset"]) -> None:  # noqa: ARG002 - any will do
        if not any(example.answers for example in self.examples):
            raise DatasetError(f"{self.name} has no question with an answer")


def read_questions(path: Path) -> QuestionDataset:
    readers = {".json": _read_squad, ".jsonl": _read_lines, ".ndjson": _read_lines}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise DatasetError(f"{path}: the name must end in one of {', '.join(readers)}")
    with reading(path):
        content = path.read_text(encoding="utf-8-sig")
    examples = tuple(reader(path, content))
    if not examples:
        raise DatasetError(f"{path} holds no questions")
    return QuestionDataset(path.name, examples)


def _read_squad(path: Path, content: str) -> Iterator[Question]:
    number = 0
    try:
        for article in json.loads(content)["data"]:
            for paragraph in article["paragraphs"]:
                for asked in paragraph["qas"]:
                    number += 1
                    values = {"context": paragraph["context"], **asked}
                    if asked.get("is_impossible"):
                        values["answers"] = []
                    yield _question(path, number, values)
    except json.JSONDecodeError as error:
        raise DatasetError(f"{path}: not JSON: {error}") from error
    except (KeyError, TypeError) as error:
        raise DatasetError(
            f"{path}: expected data, of paragraphs, of a context and qas, as in SQuAD; "
            f"after {number} questions: {error!r}"
        ) from error


def _read_lines(path: Path, content: str) -> Iterator[Question]:
    for line, row in enumerate(content.split("\n"), start=1):
        if not row.strip():
            continue
        try:
            values = json.loads(row)
        except json.JSONDecodeError as error:
            raise DatasetError(f"{path}:{line}: not JSON: {error}") from error
        if not isinstance(values, dict):
            raise DatasetError(f"{path}:{line}: expected an object with question and context")
        yield _question(path, line, values)


def _question(path: Path, line: int, values: Mapping[str, Any]) -> Question:
    question, context = values.get("question"), values.get("context")
    for name, text in (("question", question), ("context", context)):
        if not isinstance(text, str) or not text.strip():
            raise DatasetError(f"{path}:{line}: expected a {name}, a string that is not empty")
    assert isinstance(question, str)
    assert isinstance(context, str)
    try:
        answers = tuple(
            Answer(str(each["text"]), int(each["answer_start"])) for each in values["answers"]
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DatasetError(
            f"{path}:{line}: expected answers, a list of objects with text and answer_start"
        ) from error
    for answer in answers:
        if not answer.text or answer.start < 0 or context[answer.start : answer.end] != answer.text:
            found = context[max(0, answer.start) : answer.end]
            raise DatasetError(
                f"{path}:{line}: the answer {answer.text!r} is not at character {answer.start} of "
                f"the context, which has {found!r} there"
            )
    return Question(line, question, context, answers)


ARTICLES = re.compile(r"\b(a|an|the)\b")
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True, slots=True)
class Agreement:
    """Means over questions, from 0 to 1."""

    exact_match: float
    f1: float
    num_questions: int

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, Sequence[str]]]) -> Self:
        """The scores of (answer, right answers) pairs; no right answer means that there is none."""
        found = [(exact_match(said, right), f1(said, right)) for said, right in pairs]
        count = max(1, len(found))
        exact, agreed = (sum(pair[i] for pair in found) / count for i in range(2))
        return cls(exact, agreed, len(found))


def exact_match(said: str, right: Sequence[str]) -> float:
    return float(any(normalized(said) == normalized(answer) for answer in right or [""]))


def f1(said: str, right: Sequence[str]) -> float:
    return max(
        _f1(normalized(said).split(), normalized(answer).split()) for answer in right or [""]
    )


def normalized(text: str) -> str:
    """In lower case, without punctuation and articles, one space between words."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(NO_PUNCTUATION)).split())


def _f1(said: Sequence[str], right: Sequence[str]) -> float:
    if not said or not right:
        return float(said == right)
    shared = (Counter(said) & Counter(right)).total()
    return 2 * shared / (len(said) + len(right))
