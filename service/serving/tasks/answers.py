"""The answers that a context has to a question, from the logits of its tokens.

Each token has a logit for being an answer's first token and one for being its last. A span scores
their sum, and "no answer" the sum of the first token's two (Devlin et al. 2018, section 4.3). A
long context comes in overlapping windows. A span in several windows has the highest of its scores,
"no answer" the lowest, because an answer in one window is enough.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from service.calls import reading as calls
from service.contract.tensors import Arrays, Signature, TensorSpec
from service.errors import invalid_field
from service.serving.tasks.task import (
    BYTES,
    FP32,
    INT32,
    Ask,
    Fields,
    GraphOutput,
    Method,
    Outputs,
    TextReply,
    TextTask,
    TextTaskModel,
    column,
    decode,
)
from service.text.tokenizer import EncodedText, Text, WindowTokenizer

MAX_ANSWER_TOKENS = 30  # where a request does not say, as in SQuAD's baselines
NUM_BEST = 20  # spans of each window that probabilities are among, and answers at most


@dataclass(frozen=True, slots=True)
class Window:
    """One row: float32 logits [tokens, 2], and where each token is, [tokens, 2] in characters."""

    logits: np.ndarray
    offsets: np.ndarray
    is_context: np.ndarray  # [tokens]; an answer has no others


@dataclass(frozen=True, slots=True)
class Answer:
    """Characters [start, end) of a context; `score` is a probability."""

    start: int
    end: int
    score: float


@dataclass(frozen=True, slots=True)
class Answers:
    """The best spans, and how likely it is that there is no answer; together at most 1."""

    spans: list[Answer]  # best first
    no_answer_score: float

    @property
    def is_answered(self) -> bool:
        return bool(self.spans) and self.spans[0].score >= self.no_answer_score


def answers_of(windows: Sequence[Window], max_answer_tokens: int, count: int = 1) -> Answers:
    """The best answers that do not overlap, `count` at most."""
    scores: dict[tuple[int, int], float] = {}
    for window in windows:
        for score, first, last in best_spans(window, max_answer_tokens):
            span = int(window.offsets[first, 0]), int(window.offsets[last, 1])
            scores[span] = max(score, scores.get(span, score))
    none = min(float(window.logits[0].sum()) for window in windows)
    highest = max([none, *scores.values()])
    probabilities = {span: np.exp(score - highest) for span, score in scores.items()}
    total = sum(probabilities.values()) + np.exp(none - highest)
    chosen: list[Answer] = []
    for (start, end), score in sorted(probabilities.items(), key=lambda scored: -scored[1]):
        if len(chosen) == count:
            break
        if all(end <= other.start or other.end <= start for other in chosen):
            chosen.append(Answer(start, end, float(score / total)))
    return Answers(chosen, float(np.exp(none - highest) / total))


def best_spans(window: Window, max_answer_tokens: int) -> list[tuple[float, int, int]]:
    """Score, first and last token of the best spans inside of the context, best first."""
    blocked = np.where(window.is_context, np.float32(0), np.float32(-np.inf))
    start, end = window.logits[:, 0] + blocked, window.logits[:, 1] + blocked
    num_tokens = len(start)
    # One row for each length: the spans that start at a token and have that many tokens more.
    longest = min(max_answer_tokens, num_tokens)
    scores = np.full((longest, num_tokens), -np.inf, np.float32)
    for more in range(longest):
        scores[more, : num_tokens - more] = start[: num_tokens - more] + end[more:]
    flat = scores.ravel()
    best = np.argpartition(-flat, min(NUM_BEST, len(flat)) - 1)[:NUM_BEST]
    return [
        (float(flat[place]), int(place % num_tokens), int(place % num_tokens + place // num_tokens))
        for place in best[np.argsort(-flat[best], kind="stable")]
        if np.isfinite(flat[place])
    ]


def _answers(reply: TextReply, max_answer_tokens: int, count: int) -> list[Answers]:
    """The answers to each question, whose context may have been read in several windows."""
    windows: dict[int, list[Window]] = {}
    for row, logits in zip(reply.rows, reply.per_text(), strict=True):
        assert row.encoding is not None, "the task's rows are of tokens"
        is_context = np.array([part == 1 for part in row.encoding.sequence_ids])
        window = Window(logits, np.array(row.encoding.offsets), is_context)
        windows.setdefault(row.text_index, []).append(window)
    return [answers_of(of_text, max_answer_tokens, count) for of_text in windows.values()]


def _ask(call: calls.Answer, model: TextTaskModel) -> Ask:
    longest, count = call.max_answer_tokens, call.top_k
    max_tokens = model.manifest.max_tokens
    if longest > max_tokens:
        raise invalid_field("max_answer_tokens", f"is {longest}, the model takes {max_tokens}")
    if count > NUM_BEST:
        raise invalid_field("top_k", f"is {count}, expected at most {NUM_BEST}")
    context, must_answer = call.context, call.must_answer

    def answer(reply: TextReply) -> Fields:
        (answers,) = _answers(reply, longest or MAX_ANSWER_TOKENS, count or 1)
        spans = answers.spans if must_answer or answers.is_answered else []
        return {
            "answers": [
                calls.SpanAnswer(context[span.start : span.end], span.start, span.end, span.score)
                for span in spans
            ],
            "no_answer_score": answers.no_answer_score,
            "num_windows": len(reply.rows),
            "windows": list(map(_window, reply.rows)),
        }

    def paths() -> dict[str, str]:
        return {"texts[]": "question", "text_pairs[]": "context"}

    return Ask([(call.question, context)], answer, paths=paths)


def _window(row: EncodedText) -> calls.ContextWindow:
    assert row.encoding is not None, "the task's rows are of tokens"
    pairs = zip(row.encoding.sequence_ids, row.encoding.offsets, strict=True)
    places = [offsets for part, offsets in pairs if part == 1]
    return calls.ContextWindow(places[0][0], places[-1][1]) if places else calls.ContextWindow()


def _questions_of(inputs: Arrays) -> Sequence[Text]:
    questions, contexts = (decode(inputs[name]) for name in ("question", "context"))
    return list(zip(questions, contexts, strict=True))


def _tensors(texts: Sequence[Text], reply: TextReply) -> Outputs:
    """The best answer to each question; empty, with the score of there being none."""
    best = [
        answers.spans[0] if answers.is_answered else Answer(0, 0, answers.no_answer_score)
        for answers in _answers(reply, MAX_ANSWER_TOKENS, 1)
    ]
    spans = [
        pair[1][each.start : each.end].encode() for pair, each in zip(texts, best, strict=True)
    ]
    return {
        "answer": column(spans, object),
        "score": column([each.score for each in best], np.float32),
        "start": column([each.start for each in best], np.int32),
        "end": column([each.end for each in best], np.int32),
    }


QUESTION_ANSWERING = TextTask(
    name="question-answering",
    verb="answer questions",
    # One value of being the start of an answer, one of being its end.
    outputs=(GraphOutput("logits", lambda _: (2,), "token"),),
    signature=lambda _: Signature(
        (TensorSpec("question", BYTES, (1,)), TensorSpec("context", BYTES, (1,))),
        (
            TensorSpec("answer", BYTES, (1,)),
            TensorSpec("score", FP32, (1,)),
            TensorSpec("start", INT32, (1,)),
            TensorSpec("end", INT32, (1,)),
        ),
    ),
    tokenizer=WindowTokenizer,
    texts_of=_questions_of,
    tensors=lambda _model, _parameters: _tensors,
)
METHODS = (Method(QUESTION_ANSWERING, calls.Answer, _ask),)
