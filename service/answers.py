"""From the logits of tokens to the answers that a context has to a question (pure).

Each token has a logit for being an answer's first token and one for being its last. A span scores
their sum, and "no answer" the sum of the first token's two (Devlin et al. 2018, section 4.3). A
long context comes in overlapping windows. A span in several windows has the highest of its scores,
"no answer" the lowest, because an answer in one window is enough.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

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
    for (start, end), score in sorted(probabilities.items(), key=lambda found: -found[1]):
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
