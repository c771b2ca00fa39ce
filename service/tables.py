"""Answers as people like to see them: rich tables of the typed API's messages.

What comes from users or models goes in as `Text`: rich would read "[/b]" in a string as markup.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from attendant.v1 import text_pb2 as pb
from rich.table import Table
from rich.text import Text

from service.client import Trial

MAX_SIMILARITY_TEXTS = 12  # more columns than that fit no terminal


def models(response: pb.ListModelsResponse) -> Table:
    """One row per served version."""
    table = Table("model", "version", "task", "precision", "tokens", "gives", "origin")
    for model in response.models:
        gives = ", ".join(model.labels) or (f"{model.embedding_size} values, {model.pooling}")
        cells = (
            model.name,
            model.version,
            model.task,
            model.precision,
            str(model.max_tokens or ""),
            gives if model.max_tokens else "",
            model.origin,
        )
        table.add_row(*map(Text, cells))
    return table


def classifications(texts: Sequence[str], response: pb.ClassifyResponse) -> Table:
    """One row per text, its labels best first."""
    table = Table("text", "label", "scores", "tokens", caption=_caption(response))
    for text, result in zip(texts, response.results, strict=True):
        scores = "  ".join(f"{found.label} {found.score:.4f}" for found in result.labels)
        best = Text(result.labels[0].label, "bold")
        table.add_row(_short(text), best, Text(scores), str(result.num_tokens))
    return table


def embeddings(texts: Sequence[str], response: pb.EmbedResponse) -> Table:
    """One row per text: the vector's beginning, and its cosine with every other text."""
    vectors = np.array([result.values for result in response.results], np.float32)
    units = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    cosines = units @ units.T
    shown = min(len(texts), MAX_SIMILARITY_TEXTS)
    numbers = [str(index + 1) for index in range(shown)]
    table = Table("", "text", "vector", *(f"cos {n}" for n in numbers), caption=_caption(response))
    for index, text in enumerate(texts):
        start = " ".join(f"{value:+.3f}" for value in vectors[index, :3])
        similar = [f"{cosines[index, other]:.3f}" for other in range(shown)]
        table.add_row(str(index + 1), _short(text), f"{start} … ({vectors.shape[1]})", *similar)
    return table


def trials(found: Iterable[Trial]) -> Table:
    """What each model answered to its example, and how long that took."""
    table = Table("model", "version", "asked", "answered", "latency")
    for trial in found:
        table.add_row(
            Text(trial.model.name),
            trial.model.version,
            _short(trial.model.example),
            Text(trial.answer, "bold"),
            f"{trial.latency_s * 1e3:.1f} ms",
        )
    return table


def _caption(response: pb.ClassifyResponse | pb.EmbedResponse) -> str:
    timings = response.timings
    return (
        f"{response.model} version {response.version}, {response.num_tokens} tokens: "
        f"queue {timings.queue_seconds * 1e3:.1f} ms, "
        f"compute {timings.compute_seconds * 1e3:.1f} ms"
    )


def _short(text: str, width: int = 60) -> Text:
    return Text(text if len(text) <= width else f"{text[: width - 1]}…")
