"""Whether the rows of a foreign graph keep to themselves, so that callers may share its runs.

A run for several callers gives each its own rows of every output. That is right only where an
output has a row for each row of the inputs, and where that row does not depend on the others. A
file of ONNX promises neither. So the graph is run with rows alone and beside others while it loads.

There are three cases. The rows prove to be each other's, or not to be rows at all: the graph is not
batched. The trials show no fault: it is, unless its first axes have different names while one of
its operators chooses rows by their values. It cannot be tried: the names of its first axes decide.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from service.contract.tensors import Arrays, Signature
from service.errors import ModelFailed
from service.repository.row_trials import Dims, Trials, TrialStop, Values, dims_to_try
from service.runtime.session import Session

Outputs: TypeAlias = dict[str, np.ndarray]
MAX_TRIALS_S = 60.0

# Operators whose output has as many rows as the values of their inputs say.
CHOOSING = frozenset(("NonZero", "Compress", "Unique", "NonMaxSuppression"))
# Operators that quantize with one scale for the whole run, so that rows move each other a little.
SHARED_SCALE = frozenset(
    (
        "DynamicQuantizeLinear",
        "com.microsoft.DynamicQuantizeMatMul",
        "com.microsoft.DynamicQuantizeLSTM",
    )
)
MAX_SHARED_SCALE = 0.1  # of the largest value, that rows may move each other by such a scale
# Of an output's largest value: runs of different sizes use different kernels.
TOLERANCES = {"FP16": 2e-2, "BF16": 5e-2}
TOLERANCE = 1e-3
ENOUGH = 0.25  # of the time for trials: then no other kind of values is tried
MAX_NAMED = 6  # tensors in a message
MAX_ODD_WHOLE = 1e-3  # of whole numbers that may differ by 1: they were rounded


@dataclass(frozen=True, slots=True)
class RowCheck:
    """Result of a graph's trials: whether its rows are independent."""

    obstacle: str = ""  # why callers cannot share runs; empty if they can
    effect: float = 0.0  # of other rows on a row, where the obstacle is a shared scale only


@dataclass(slots=True)
class _Findings:
    """Findings of the trials so far."""

    obstacle: str = ""
    effect: float = 0.0  # the largest, as a share of the output's largest value
    affected: str = ""  # the output with that effect
    has_compared: bool = False  # rows that differ, alone and beside others
    obstacles_to_trial: list[str] = field(default_factory=list)  # why trials tell nothing


def check_rows(
    session: Session, stated: Dims, max_rows: int, max_s: float = MAX_TRIALS_S
) -> RowCheck:
    """Run a graph with rows alone and beside others.

    `stated` are the dims of a row that the configuration states. Where `max_rows` is 1, no row is
    ever beside another, and only the numbers of rows are looked at.
    """
    findings = _Findings()
    with TrialStop(max_s) as stopping:
        try:
            _try_rows(Trials(session, stopping), stated, max_rows, findings)
        except ModelFailed as error:
            late = f"they lasted longer than {max_s:g} s"
            findings.obstacles_to_trial.append(late if stopping.is_stopped else str(error))
    return _judged(session.signature, findings, max_rows)


def _judged(graph: Signature, findings: _Findings, max_rows: int) -> RowCheck:
    if findings.obstacle:
        return RowCheck(findings.obstacle)
    if findings.affected:
        percent = f"{100 * findings.effect:.2g} %"
        text = f"a row of output '{findings.affected}' changes by {percent} beside other rows"
        if graph.operators & SHARED_SCALE and findings.effect <= MAX_SHARED_SCALE:
            scaled = f"{text}: the graph quantizes with one scale for the whole run"
            return RowCheck(scaled, findings.effect)
        return RowCheck(text)
    if graph.row_axis:
        return RowCheck()
    choosing = sorted(graph.operators & CHOOSING)
    if choosing:
        return RowCheck(
            f"{axes_of(graph)}, and its operator {choosing[0]} gives as many rows as values say"
        )
    if not findings.has_compared and max_rows > 1:
        reason = findings.obstacles_to_trial[0] if findings.obstacles_to_trial else "no trial ran"
        return RowCheck(f"{axes_of(graph)}, and trials cannot tell whether they are one: {reason}")
    return RowCheck()


def axes_of(graph: Signature) -> str:
    """The first axes of a graph that do not have one name, in words."""
    tensors = (*graph.inputs, *graph.outputs)
    named = [
        f"that of '{spec.name}' is " + (f"'{spec.first_axis}'" if spec.first_axis else "unnamed")
        for spec in tensors[:MAX_NAMED]
    ]
    if len(tensors) > MAX_NAMED:
        named.append(f"and {len(tensors) - MAX_NAMED} more")
    return f"the first axes of the graph's tensors do not have one name ({', '.join(named)})"


def _try_rows(trials: Trials, stated: Dims, max_rows: int, findings: _Findings) -> None:
    """Fill `findings`. Raises `ModelFailed` where no trial runs, or time is over."""
    kinds: tuple[Values, ...] = ("wide", "small", "still")
    failure: ModelFailed | None = None
    for dims in dims_to_try(trials.signature, stated):
        num_kinds = 0
        for values in kinds:
            rows = trials.rows(dims, values)
            try:
                alone = [trials.run([row]) for row in (*rows, rows[0])]
            except ModelFailed as error:
                if trials.stopping.is_stopped:
                    raise
                failure = failure or error
                continue
            _compare(trials, rows, alone, max_rows, findings)
            num_kinds += 1
            if findings.obstacle or trials.stopping.passed_share > ENOUGH:
                return
            if num_kinds == 2:
                break
        if num_kinds:
            _count_extremes(trials, dims, max_rows, findings)
            return
    raise failure or ModelFailed("its inputs are too large to be made up")


def _compare(
    trials: Trials,
    rows: Sequence[Arrays],
    alone: Sequence[Outputs],
    max_rows: int,
    findings: _Findings,
) -> None:
    """Rows `alone`, the first of them twice, with those in both orders and all together."""
    findings.obstacle = next(filter(None, (_miscount(run, 1) for run in alone)), "")
    if findings.obstacle or max_rows == 1:
        return
    effects = _effects(trials.signature, alone[0], alone[-1])
    random = {name for name, effect in effects if effect}  # outputs
    last = len(rows) - 1
    for order in ([0, last], [last, 0], list(range(len(rows)))[:max_rows]):
        try:
            together = trials.run([rows[place] for place in order])
        except ModelFailed as error:
            if trials.stopping.is_stopped:
                raise
            findings.obstacle = f"it runs with 1 row, but fails with {len(order)}: {error}"
            return
        each = [alone[place] for place in order]
        findings.obstacle = _miscount(together, len(order)) or _misshape(each, together)
        if findings.obstacle:
            return
        joined = {name: np.concatenate([run[name] for run in each]) for name in together}
        for name, effect in _effects(trials.signature, joined, together):
            if name not in random and effect > findings.effect:
                findings.effect, findings.affected = effect, name
    if random:
        findings.obstacles_to_trial.append(f"two runs of one row differ in '{min(random)}'")
    elif _differ(rows) and any(map(_tells, alone)):
        findings.has_compared = True


def _count_extremes(trials: Trials, dims: Dims, max_rows: int, findings: _Findings) -> None:
    """Rows that a graph which chooses among rows might leave out; only their number counts."""
    kinds: tuple[Values, ...] = ("zeros", "high", "low")
    rows = [trials.rows(dims, values)[0] for values in kinds]
    batches = [[row] for row in rows]
    if max_rows > 1:
        batches.append(rows[:max_rows])
    for batch in batches:
        try:
            outputs = trials.run(batch)
        except ModelFailed:  # such values are not for every graph
            continue
        findings.obstacle = findings.obstacle or _miscount(outputs, len(batch))


def _miscount(outputs: Outputs, num_rows: int) -> str:
    """Which output has another number of rows than the inputs; empty if none."""
    for name, output in outputs.items():
        if output.shape[:1] != (num_rows,):
            rows = "1 row" if num_rows == 1 else f"{num_rows} rows"
            return f"output '{name}' has shape {list(output.shape)} for inputs of {rows}"
    return ""


def _misshape(alone: Sequence[Outputs], together: Outputs) -> str:
    """Which output's rows have another shape alone than together; empty if none."""
    for name, output in together.items():
        for run in alone:
            if run[name].shape[1:] != output.shape[1:]:
                return (
                    f"a row of output '{name}' has shape {list(run[name].shape[1:])} alone, and "
                    f"{list(output.shape[1:])} beside other rows"
                )
    return ""


def _effects(graph: Signature, expected: Outputs, observed: Outputs) -> Iterator[tuple[str, float]]:
    """The difference of each output, as a share of its largest value; 0 where it is rounding."""
    for spec in graph.outputs:
        tolerance = TOLERANCES.get(spec.datatype.name, TOLERANCE)
        effect = _difference(expected[spec.name], observed[spec.name])
        yield spec.name, effect if effect > tolerance else 0.0


def _difference(expected: np.ndarray, observed: np.ndarray) -> float:
    """The largest difference of two outputs, as a share of the largest value."""
    if expected.shape != observed.shape:
        return 1.0
    if expected.dtype.kind not in "iuf":
        return float(not np.array_equal(expected, observed))
    first, second = expected.astype(np.float64), observed.astype(np.float64)
    is_finite = np.isfinite(first)
    if not np.array_equal(is_finite, np.isfinite(second)):
        return 1.0
    first, second = first[is_finite], second[is_finite]
    differences = np.abs(first - second)
    if not differences.any():
        return 0.0
    if expected.dtype.kind == "f":
        return float(differences.max() / np.abs(first).max()) if first.any() else 1.0
    are_few = np.count_nonzero(differences) <= MAX_ODD_WHOLE * first.size
    return 0.0 if are_few and differences.max() <= 1 else 1.0


def _differ(rows: Sequence[Arrays]) -> bool:
    return any(not np.array_equal(rows[0][name], rows[-1][name]) for name in rows[0])


def _tells(outputs: Outputs) -> bool:
    """Whether some output has a value that other rows could have changed."""
    return any(
        output.size > 0 and (output.dtype.kind != "f" or bool(np.isfinite(output).any()))
        for output in outputs.values()
    )
