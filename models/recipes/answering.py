"""Train and judge a network that finds answers: its windows, their targets, and its figures.

A context that is longer than a row is read in windows that overlap, each beside the question. An
answer is learnt in each window that has all of it; of the others the target is the first token,
which stands for "not here" (Devlin et al. 2018, section 4.3).
"""

# ruff: noqa: N806 - suffixes are array layouts: B rows, S tokens

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import Encoding, Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from models.checkpoints.checkpoint import Checkpoint
from models.data.batches import padded, padded_inputs
from models.data.questions import Agreement, Answer, Question, QuestionDataset
from models.errors import DatasetError
from models.networks.readers import QuestionAnswerer
from models.recipes.finetune import Recipe
from models.training.evaluation import predict_rows
from models.training.supervised import Criterion

MAX_OVERLAP_TOKENS = 128  # of two windows; half of what they have of the context if that is less
MIN_CONTEXT_TOKENS = 8  # of a window, whatever the question takes
MAX_ANSWER_TOKENS = 30  # as in SQuAD's baselines


@dataclass(frozen=True, slots=True)
class Window:
    """One row: a question and a part of its context; `offsets` are [start, end) in the context.

    Tokens outside of the context have no offsets.
    """

    example: int
    ids: tuple[int, ...]
    type_ids: tuple[int, ...]
    offsets: tuple[tuple[int, int] | None, ...]
    target: tuple[int, int]  # the answer's first and last token; (0, 0): it is not here

    def span(self, first: int, last: int) -> tuple[int, int]:
        """[start, end) in the context, of the tokens from `first` to `last`."""
        start, end = self.offsets[first], self.offsets[last]
        assert start is not None, "a token of the context"
        assert end is not None, "a token of the context"
        return start[0], end[1]


@dataclass(frozen=True, slots=True)
class QuestionRows:
    """Windows of all questions, in their order."""

    examples: tuple[Question, ...]
    windows: tuple[Window, ...]
    pad_token_id: int

    def __len__(self) -> int:
        return len(self.windows)

    def lengths(self) -> list[int]:
        return [len(window.ids) for window in self.windows]

    def batch(self, indices: Sequence[int]) -> tuple[Tensor, ...]:
        """input_ids, attention_mask, token_type_ids [B, S]; start, end and length [B, 3]."""
        windows = [self.windows[i] for i in indices]
        inputs = padded_inputs([window.ids for window in windows], self.pad_token_id)
        types = padded([window.type_ids for window in windows], 0)
        return *inputs, types, torch.tensor([(*w.target, len(w.ids)) for w in windows])


@dataclass(frozen=True, slots=True)
class AnswerEvaluation:
    """SQuAD's measures, for questions with and without an answer; the loss is of windows."""

    loss: float
    answerable: Agreement
    unanswerable: Agreement
    overall: Agreement

    @property
    def num_rows(self) -> int:
        return self.overall.num_questions

    def parts(self) -> list[tuple[str, Agreement]]:
        return [
            ("with an answer", self.answerable),
            ("without one", self.unanswerable),
            ("all", self.overall),
        ]

    def scores(self) -> dict[str, float]:
        return {"exact_match": self.overall.exact_match, "f1": self.overall.f1}

    def to_dict(self) -> dict[str, Any]:
        parts = {
            name: {"exact_match": part.exact_match, "f1": part.f1, "questions": part.num_questions}
            for name, part in self.parts()
        }
        return {"rows": self.num_rows, "loss": self.loss, **self.scores(), "parts": parts}


def window_questions(
    dataset: QuestionDataset,
    labels: Sequence[str],  # noqa: ARG001 - there are none
    tokenizer: Tokenizer,
    max_tokens: int,
    pad_token_id: int,
) -> QuestionRows:
    windows = tuple(
        window
        for place, example in enumerate(dataset.examples)
        for window in _windows(dataset.name, place, example, tokenizer, max_tokens)
    )
    return QuestionRows(dataset.examples, windows, pad_token_id)


def _windows(
    name: str, place: int, example: Question, tokenizer: Tokenizer, max_tokens: int
) -> Iterator[Window]:
    question = tokenizer.encode(example.question, add_special_tokens=False)
    num_special = tokenizer.num_special_tokens_to_add(is_pair=True)
    room = max_tokens - num_special - len(question.ids)
    if room < MIN_CONTEXT_TOKENS:
        raise DatasetError(
            f"{name}:{example.line}: the question has {len(question.ids)} tokens, at most "
            f"{max_tokens - num_special - MIN_CONTEXT_TOKENS} leave room for a context"
        )
    for encoding in windows_of(tokenizer, question, example.context, room):
        offsets = tuple(
            span if sequence == 1 else None
            for span, sequence in zip(encoding.offsets, encoding.sequence_ids, strict=True)
        )
        target = _target(offsets, example.answers[0]) if example.answers else (0, 0)
        yield Window(place, tuple(encoding.ids), tuple(encoding.type_ids), offsets, target)


def windows_of(tokenizer: Tokenizer, question: Encoding, context: str, room: int) -> list[Encoding]:
    """The question beside each `room` tokens of the context, special tokens included."""
    whole = tokenizer.encode(context, add_special_tokens=False)
    whole.truncate(room, stride=min(MAX_OVERLAP_TOKENS, room // 2))
    return [tokenizer.post_process(question, part) for part in (whole, *whole.overflowing)]


def _target(offsets: Sequence[tuple[int, int] | None], answer: Answer) -> tuple[int, int]:
    """The tokens that have the answer's first and last character."""
    start = end = None
    for place, span in enumerate(offsets):
        if span is None:
            continue
        if span[0] <= answer.start < span[1]:
            start = place
        if span[0] < answer.end <= span[1]:
            end = place
    return (0, 0) if start is None or end is None else (start, end)


def span_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean cross entropy of where answers start and end, of packed [N, 2] and [B, 3]."""
    rows = torch.split(outputs, targets[:, 2].tolist())
    logits_BS2 = pad_sequence(list(rows), batch_first=True, padding_value=float("-inf"))
    losses = [F.cross_entropy(logits_BS2[..., i], targets[:, i]) for i in range(2)]
    return torch.stack(losses).mean()


def judge_answers(model: nn.Module, rows: QuestionRows) -> AnswerEvaluation:
    """Answer all questions: by the best span of all windows, or not at all."""
    logits = predict_rows(model, rows)
    said = best_answers(rows, logits)
    targets = torch.tensor([(*window.target, len(window.ids)) for window in rows.windows])
    judged = [
        (answer, [right.text for right in example.answers])
        for answer, example in zip(said, rows.examples, strict=True)
    ]
    return AnswerEvaluation(
        loss=span_loss(torch.cat(logits), targets).item(),
        answerable=Agreement.of(pair for pair in judged if pair[1]),
        unanswerable=Agreement.of(pair for pair in judged if not pair[1]),
        overall=Agreement.of(judged),
    )


def best_answers(rows: QuestionRows, logits: Sequence[Tensor]) -> list[str]:
    """An answer for each question; empty where none scores higher than there being none.

    A span scores the sum of its start's and its end's logit, and no answer the first token's two;
    it is no answer only if that holds in all windows.
    """
    best = [(float("-inf"), "")] * len(rows.examples)
    absent = [float("inf")] * len(rows.examples)
    for window, window_logits in zip(rows.windows, logits, strict=True):
        example = rows.examples[window.example]
        absent[window.example] = min(absent[window.example], float(window_logits[0].sum()))
        score, first, last = best_span(window_logits, window.offsets)
        if score > best[window.example][0]:
            start, end = window.span(first, last)
            best[window.example] = score, example.context[start:end]
    return [text if score > null else "" for (score, text), null in zip(best, absent, strict=True)]


def best_span(logits: Tensor, offsets: Sequence[tuple[int, int] | None]) -> tuple[float, int, int]:
    """Score, first and last token of the best span of context tokens; -inf where there is none."""
    is_context = torch.tensor([span is not None for span in offsets])
    start, end = logits.masked_fill(~is_context[:, None], float("-inf")).unbind(dim=1)
    scores = start[:, None] + end[None, :]
    allowed = torch.ones_like(scores, dtype=torch.bool).triu().tril(MAX_ANSWER_TOKENS - 1)
    scores = scores.masked_fill(~allowed, float("-inf"))
    place = int(scores.argmax())
    first, last = divmod(place, len(offsets))
    return float(scores[first, last]), first, last


def answerer_from(
    checkpoint: Checkpoint,
    data: QuestionDataset,  # noqa: ARG001 - any data has the same outputs
) -> tuple[QuestionAnswerer, tuple[str, ...]]:
    """Copy the network if it answers already, else put a fresh head on the encoder."""
    model = checkpoint.encoder_model
    if isinstance(model, QuestionAnswerer):
        return copy.deepcopy(model), ()
    return QuestionAnswerer(copy.deepcopy(model.encoder), model.config.dropout), ()


QUESTION_ANSWERING = Recipe(
    "question-answering",
    answerer_from,
    window_questions,
    lambda _: Criterion(span_loss, judge_answers, "f1"),
)
