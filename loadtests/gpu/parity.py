"""Section 2: every kind of model that is exported, on the device beside PyTorch in float32.

Each graph of each precision is compared. What the exporter or the device refuses is told with the
reason; on a GPU a graph that does not load is a failure, on the CPU, which has no kernels for some
graphs, it is not. docs/cuda.md says what was verified on CUDA.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from loadtests.gpu.claims import Claim, is_true
from loadtests.gpu.context import Context, Findings
from loadtests.gpu.device import session_options, torch_device
from loadtests.gpu.exports import (
    CACHED,
    PRECISIONS,
    Graph,
    Model,
    all_kinds,
    checkpoint_of,
    export_models,
    sizes_of,
)
from loadtests.gpu.figures import LIMITS, Figures, compare, described, percent, worst
from loadtests.gpu.references import outputs_of
from service.contract.manifest import Precision
from service.errors import LoadError, ModelFailed

# On the CPU a tiny run exports these in half precision too, which is slow there and proves little.
TINY_HALF = ("classification", "decoder")


@dataclass(frozen=True, slots=True)
class Case:
    """A graph of a model, to be compared in one way."""

    graph: Graph
    arithmetic: str  # one of LIMITS

    @property
    def kind(self) -> str:
        return self.graph.model.kind

    @property
    def layout(self) -> str:
        return self.graph.layout

    @property
    def name(self) -> str:
        layout = f", {self.layout}" if self.layout else ""
        return f"{self.kind} in {self.arithmetic}{layout}"


def run(context: Context) -> Findings:
    """Figures of every graph beside its limits."""
    session_options(context)  # raises the reason where the device cannot be used
    left_out = not_wanted(context)
    results: list[tuple[Case, Figures | None, str]] = []
    for model in export_models(context, wanted(context)):
        if model.reason:
            left_out.append(f"{model.name} is not exported: {model.reason}")
            continue
        for case in cases_of(model, context):
            if obstacle := case.graph.obstacle(context.device):
                left_out.append(f"{case.name}: {obstacle}")
                continue
            if context.is_over:
                left_out.append(f"{case.name}: no time was left")
                continue
            figures, problem = _measure(case, context)
            results.append((case, figures, problem))
            context.say(f"{case.name}: {figures or problem}")
    return _findings(context, results, left_out)


def wanted(context: Context) -> list[tuple[str, Precision]]:
    """The kinds and precisions to compare, the most used ones first."""
    order: Sequence[Precision] = (
        ("fp16", "fp32", "bf16") if context.device == "cuda" else PRECISIONS
    )
    return [
        (kind, precision)
        for precision in order
        for kind in all_kinds()
        if not _why_not(context, kind, precision)
    ]


def not_wanted(context: Context) -> list[str]:
    """Sentences about the others."""
    reasons: dict[str, list[str]] = {}
    for precision in PRECISIONS:
        for kind in all_kinds():
            if reason := _why_not(context, kind, precision):
                reasons.setdefault(reason, []).append(f"{kind}-{precision}")
    return [f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]


def _why_not(context: Context, kind: str, precision: Precision) -> str:
    if context.device == "cuda":
        is_missing = precision == "fp32" and kind in CACHED
        return "CUDA's GroupQueryAttention has no float32" if is_missing else ""
    if precision == "bf16":
        return "the CPU provider has no kernels for bfloat16"
    if context.is_tiny and precision == "fp16" and kind not in TINY_HALF:
        return "a tiny run on the CPU leaves out most of float16"
    return ""


def cases_of(model: Model, context: Context) -> Iterator[Case]:
    for graph in model.graphs():
        yield Case(graph, model.precision)
        if model.precision == "fp32" and context.device == "cuda":  # as it is served, see LIMITS
            yield Case(graph, "tf32")


def _measure(case: Case, context: Context) -> tuple[Figures | None, str]:
    """Figures, or why there are none."""
    checkpoint = checkpoint_of(case.kind, sizes_of(context))
    try:
        options = session_options(context, is_exact=case.arithmetic == "fp32")
        pairs = outputs_of(case.kind, checkpoint, case.graph.path, options, torch_device(context))
    except (LoadError, ModelFailed) as error:
        return None, str(error)
    return worst([compare(pair, LIMITS[case.arithmetic].tie) for pair in pairs]), ""


def _findings(
    context: Context, results: Sequence[tuple[Case, Figures | None, str]], left_out: list[str]
) -> Findings:
    claims: list[Claim] = []
    rows: list[list[str]] = []
    data: list[dict[str, Any]] = []
    for case, figures, problem in results:
        claim = f"{case.name} is as PyTorch"
        if figures is None:
            if context.device == "cuda":
                claims.append(is_true(claim, False, problem))
            else:
                left_out.append(f"{case.name}: {problem}")
            continue
        limits = LIMITS[case.arithmetic]
        holds = figures.is_within(limits)
        found = is_true(claim, holds, str(figures), described(limits))
        claims.append(found | {"in_table": True})
        rows.append([*_row(case, figures), described(limits), "yes" if holds else "**no**"])
        data.append(_data(case, figures, holds=holds))
    compared = {case.kind for case, figures, _ in results if figures is not None}
    missing = [kind for kind in all_kinds() if kind not in compared]
    left = f"not {', '.join(missing)}" if missing else ""
    claims.append(is_true("every kind of model was compared", not missing, left))
    table = {
        "title": "Differences from PyTorch in float32, on the same inputs",
        "columns": [
            *("model", "computed in", "layout", "rows", "largest difference", "of the size"),
            *("lowest cosine", "mean cosine", "same best", "allowed", "holds"),
        ],
        "rows": rows,
    }
    summary = [
        f"{len(rows)} graphs of {len(compared)} kinds of model were compared.",
        "The size of outputs is their root mean square; two best values that are closer to each "
        "other than the precision rounds count as the same. The default layout is that of packed "
        "rows for encoders of texts, and of slots for decoders.",
    ]
    return {
        "summary": summary,
        "claims": claims,
        "tables": [table],
        "left_out": left_out,
        "figures": data,
    }


def _row(case: Case, figures: Figures) -> list[str]:
    same = "" if figures.agreement is None else percent(figures.agreement)
    return [
        *(case.kind, case.arithmetic, case.layout or "default", str(figures.num_rows)),
        *(f"{figures.max_abs:.2e}", percent(figures.relative)),
        *(f"{figures.min_cosine:.6f}", f"{figures.mean_cosine:.6f}", same),
    ]


def _data(case: Case, figures: Figures, *, holds: bool) -> dict[str, Any]:
    numbers = {key: value if value == value else None for key, value in asdict(figures).items()}
    where = {"kind": case.kind, "arithmetic": case.arithmetic, "layout": case.layout}
    return {**where, **numbers, "holds": holds}
