"""The comparison of a folder's graph with its edited form on the same rows, alone and together.

A row alone has no padding; together the rows are padded, and have neighbours. Imports no PyTorch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from export.adopted.tasks import Adopted
from export.errors import ExportError, reason_of_runtime
from service.contract.tensors import Arrays
from service.errors import LoadError, ModelFailed
from service.runtime.session import OnnxSession, SessionOptions

LEAST_TOKENS = 8  # that every network of texts takes
MAX_DIFFERENCE = 1e-3  # of the edit, in parts of the largest value where that is above 1
MAX_IN_HALF = 2e-2  # where numbers have 11 bits
MAX_OF_NEIGHBOURS = 1e-3  # above it, rows run alone


@dataclass(frozen=True, slots=True)
class GraphComparison:
    """Largest differences of the edited graph: from the graph as it was, and by neighbours."""

    rows: int
    outputs: str
    size: int  # values of a row of the output
    edit: float
    neighbours: float | None  # None where rows cannot be together
    lengths: tuple[float, float] = (0.0, 0.0)  # the least and largest of rows of the output

    @property
    def runs_alone(self) -> bool:
        """Whether a row would change beside others, so that it has a run of its own."""
        return self.neighbours is None or not self.neighbours <= MAX_OF_NEIGHBOURS

    def __str__(self) -> str:
        text = f"compared with its own graph as it was: {self.outputs} of {self.rows} rows within"
        text += f" {self.edit:.0e}"
        if self.neighbours is None:
            return f"{text}; it takes one row at a time, so each row has a run of its own"
        if self.runs_alone:
            return (
                f"{text}; beside others a row moves by {self.neighbours:.0e}, so each row has a "
                "run of its own"
            )
        return f"{text}, and within {self.neighbours:.0e} beside others"

    def to_dict(self) -> dict[str, object]:
        """The comparison for a manifest."""
        return {
            "compared_with": "its own graph",
            "outputs": self.outputs,
            "max_difference": float(f"{self.edit:.0e}"),
            "runs_alone": self.runs_alone,
            "text": str(self),
        }


def compare(
    original: Path,
    edited: Path,
    adopted: Adopted,
    rows: Sequence[Arrays],
    originals: Callable[[Arrays], Arrays],
    together: Callable[[Sequence[Arrays]], Arrays] | None,
    *,
    is_half: bool,
) -> GraphComparison:
    """The comparison of two graphs on rows, [1, ...] each; `together` makes a batch of them.

    `originals` are the inputs of the graph as it was. Raises `ExportError` where one of the graphs
    cannot be run, or the edit changes what it gives.
    """
    first, second = opened(original), opened(edited)
    expected, alone = [], []
    for row in rows:
        given = _run(first, originals(row), adopted.originals)
        expected.append(adopted.expected(given, row.get("input_ids", np.zeros((1, 0)))[0]))
        alone.append(_run(second, row, (adopted.output,))[adopted.output])
    difference = _largest(alone, expected)
    limit = MAX_IN_HALF if is_half else MAX_DIFFERENCE
    what = "vectors" if adopted.output == "embedding" else "logits"
    if not difference <= limit:
        raise ExportError(
            f"the edited graph gives other {what} than the graph as it was: they differ by "
            f"{difference:.0e}, and at most {limit:.0e} is allowed"
        )
    size = alone[0].shape[-1]
    lengths = np.linalg.norm(np.concatenate(alone).astype(np.float64), axis=-1)
    neighbours = None
    if together is not None:
        neighbours = _beside_others(second, adopted, rows, alone, together)
    return GraphComparison(
        len(rows), what, size, difference, neighbours, (float(lengths.min()), float(lengths.max()))
    )


def longest_run(graph: Path, names: Sequence[str], most: int) -> int:
    """The most tokens, of `most` and its halves, of which a graph takes a row."""
    session = opened(graph)
    outputs = [each.name for each in session.signature.outputs]
    while most > LEAST_TOKENS:
        row = {name: np.ones((1, most), np.int64) for name in names}
        row = {name: ids * (name != "token_type_ids") for name, ids in row.items()}
        try:
            session.run(row, outputs)
        except ModelFailed:
            most //= 2
        else:
            break
    return most


def opened(graph: Path) -> OnnxSession:
    """A session of a graph. Raises `ExportError` where ONNX Runtime has none for it."""
    try:
        return OnnxSession(graph, SessionOptions())
    except LoadError as error:
        reason = reason_of_runtime(error)
        raise ExportError(f"ONNX Runtime cannot open the graph: {reason}") from error


def _beside_others(
    session: OnnxSession,
    adopted: Adopted,
    rows: Sequence[Arrays],
    alone: Sequence[np.ndarray],
    together: Callable[[Sequence[Arrays]], Arrays],
) -> float | None:
    """The largest difference of rows that run together; None where they cannot."""
    try:
        beside = _run(session, together(rows), (adopted.output,))[adopted.output]
    except ExportError:
        return None
    if len(beside) != sum(map(len, alone)):
        return None
    return _largest(np.split(beside, np.cumsum([len(each) for each in alone])[:-1]), alone)


def _run(session: OnnxSession, inputs: Arrays, outputs: Sequence[str]) -> dict[str, np.ndarray]:
    try:
        return dict(zip(outputs, session.run(inputs, outputs), strict=True))
    except ModelFailed as error:
        reason = reason_of_runtime(error)
        raise ExportError(f"the graph fails on a sample input: {reason}") from error


def _largest(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> float:
    """The largest difference, in parts of the largest value where that is above 1; NaN stays."""
    differences = [0.0]
    for one, other in zip(ours, theirs, strict=True):
        if one.shape != other.shape:
            raise ExportError(
                f"the edited graph gives {list(one.shape)} in place of {list(other.shape)}"
            )
        if one.size:
            scale = max(1.0, float(np.abs(other).max()))
            differences.append(float(np.abs(one.astype(np.float64) - other).max()) / scale)
    return float(np.max(differences))
