"""Sections 2, 4 and 10: every kind of model on the device beside PyTorch, and where its nodes are.

A graph is opened once. Its outputs are compared with those of its network in float32, within limits
of its precision; what PyTorch itself differs by in that precision stands beside them, and is what
the limits are to be set by. Of the same session ONNX Runtime says which provider took each node:
one without a kernel for CUDA would run on the CPU, and its tensors would be copied in every run. An
operator without a kernel may be replaced by the nodes of its definition, so the fused ones are
counted; of attention, CUDA says which kernel ran. docs/how-to/cuda.md says what was verified
on CUDA.
"""

import copy
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

import torch
from torch import nn

from loadtests.gpu.context import Context
from loadtests.gpu.figures import Figures, Outputs, compare, described, percent, worst
from loadtests.gpu.kinds import KINDS, MOST_USED
from loadtests.gpu.models import (
    FUSED,
    Graph,
    Model,
    as_they_come,
    models_of,
    other_kinds,
    rest_kinds,
)
from loadtests.gpu.references import Compared, Opening
from service.errors import LoadError, ModelFailed
from service.runtime.assignment import CPU_PROVIDER, SHAPE_OPERATORS, AssignedNode
from service.runtime.cpus import available_cpus
from service.runtime.session import CUDA_PROVIDER, SessionOptions, choose_device

DTYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}
PROVIDERS = {"cpu": CPU_PROVIDER, "cuda": CUDA_PROVIDER}
# Makes CUDA's attention print the kernel that it runs; read when a session is made.
ANNOUNCED = "ORT_ENABLE_ATTENTION_KERNEL_DEBUG_INFO"
KERNEL = re.compile(r"Operator=(\w+).*?SdpaKernel=(\w+)")
UNFUSED = "MATH"  # its name for products and softmax one after the other
MAX_NAMED = 5
TABLE = "Differences from PyTorch in float32, on the same inputs"
PLACES = "Nodes after optimization, as ONNX Runtime assigned them"


def most_used(context: Context) -> None:
    """The most used kinds in the precision that is served first."""
    compare_all(
        context, models_of(context.run, *[(kind, context.run.precision) for kind in MOST_USED])
    )


def others(context: Context) -> None:
    """The other kinds, then all of them in bf16."""
    compare_all(context, models_of(context.run, *other_kinds(context.run)))
    if context.device == "cpu":
        context.leave_out(f"all kinds in bf16: {KINDS['decoder'].obstacle('cpu', 'bf16')}")


def rest(context: Context) -> None:
    """What is left: float32 on a GPU, as it is and as it is served; half precision on a CPU."""
    compare_all(context, models_of(context.run, *rest_kinds(context.run)))


def compare_all(context: Context, models: Sequence[Model]) -> None:
    """Compare all graphs of models as their exports come."""
    choose_device(context.device)  # raises the reason where the device cannot be used
    context.summarize(
        "Differences are relative to the outputs' size, their root mean square; two best values "
        "closer to each other than the precision rounds count as the same."
    )
    for model in as_they_come(context, models):
        for graph in model.graphs():
            for arithmetic in arithmetics(graph, context.device):
                name = f"{model.kind} in {arithmetic}{f', {graph.layout}' if graph.layout else ''}"
                if (context.device, graph.layout) == ("cpu", "paged"):
                    context.leave_out(f"{name}: the CPU provider has no PagedAttention")
                elif context.is_over:
                    context.leave_out(f"{name}: no time was left")
                else:
                    check(context, name, model, graph, arithmetic)


def arithmetics(graph: Graph, device: str) -> tuple[str, ...]:
    """The ways in which a device computes a graph; tf32 is float32 as CUDA's sessions have it."""
    is_both = graph.precision == "fp32" and device == "cuda"
    return (graph.precision, "tf32") if is_both else (graph.precision,)


def check(context: Context, name: str, model: Model, graph: Graph, arithmetic: str) -> None:
    """Compare a graph with its network, and look where its nodes are."""
    kind = KINDS[model.kind]
    options = session_options(context.device, is_exact=arithmetic == "fp32")
    # Nodes on the CPU are named below.
    opening = Opening(
        kind.checkpoint(is_tiny=context.is_tiny),
        graph.path,
        replace(options, allows_cpu_nodes=True),
    )
    limits, parts, printed = kind.limits(arithmetic), opening.parts, list[str]()
    parts.add("export", model.noted("seconds"))
    network = opening.checkpoint.model.to(torch_device(context.device))
    try:
        with announced(printed) if context.device == "cuda" else nullcontext(), parts.timed("run"):
            compared = kind.reference(opening)
        parts.add("run", -parts.seconds["open"])
        with parts.timed("reference"):
            expected = compared.by_network(network)
            figures = _figures(compared, expected, limits.tie)
            theirs = _theirs(compared, expected, network, arithmetic, limits.tie)
    except (LoadError, ModelFailed) as error:
        if context.device == "cuda":
            context.check(f"{name} is as PyTorch", False, str(error))
        else:  # which has no kernels for some graphs
            context.leave_out(f"{name}: {error}")
        return
    finally:
        network.to("cpu")
    found = f"{figures}; {theirs}"
    context.check(f"{name} is as PyTorch", figures.is_within(limits), found, described(limits))
    context.row(
        TABLE,
        model=name,
        **_cells(figures),
        **{"limit": percent(limits.relative), "PyTorch itself": theirs},
        **parts.cells(),
    )
    nodes = tuple(node for session in opening.sessions for node in session.nodes)
    place(context, Placed(name, nodes, graph.num_fused, kernels_of("".join(printed))))
    for part in ("open", "run", "reference"):
        context.parts.add(part, parts.seconds[part])
    context.say(f"{name}: {found}")


def _figures(compared: Compared, expected: Sequence[object], tie: float) -> Figures:
    pairs = zip(compared.by_graph, expected, strict=True)
    return worst([compare(Outputs(*pair, compared.is_choice), tie) for pair in pairs])  # type: ignore[arg-type]


def _theirs(
    compared: Compared, expected: Sequence[object], network: nn.Module, arithmetic: str, tie: float
) -> str:
    """What PyTorch differs by from itself when it computes the same in the precision."""
    if arithmetic == "fp32":
        return "it is the same"
    torch.backends.cuda.matmul.allow_tf32 = arithmetic == "tf32"
    try:
        half = copy.deepcopy(network).to(DTYPES[arithmetic])
        own = replace(compared, by_graph=compared.by_network(half))
        figures = _figures(own, expected, tie)
    except (RuntimeError, NotImplementedError, TypeError) as error:  # no such kernel in PyTorch
        return f"not computed: {str(error).splitlines()[0][:100]}"
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
    same = "" if figures.agreement is None else f", same best {percent(figures.agreement)}"
    return f"PyTorch in {arithmetic} {percent(figures.relative)}, {figures.mean_cosine:.6f}{same}"


def _cells(figures: Figures) -> dict[str, object]:
    return {
        "rows": figures.num_rows,
        "largest difference": figures.max_abs,
        "of the size": percent(figures.relative),
        "mean cosine": f"{figures.mean_cosine:.6f}",
        "same best": "" if figures.agreement is None else percent(figures.agreement),
    }


def session_options(device: str, *, is_exact: bool = False) -> SessionOptions:
    """Options for a session on a device; `LoadError` where it cannot be used.

    Exact is float32 as it is: CUDA's sessions would round it to TF32 for its products.
    """
    options = SessionOptions(device=choose_device(device), num_threads=available_cpus())
    if is_exact and device == "cuda":
        tuning = replace(options.tuning, cuda_options=(("use_tf32", "0"),))
        return replace(options, tuning=tuning)
    return options


def torch_device(device: str) -> torch.device:
    """The same for PyTorch, whose float32 is then float32 in all of its products."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    return torch.device(device)


@dataclass(frozen=True, slots=True)
class Placed:
    """A graph with its nodes by provider, and the kernels of attention that ran."""

    name: str
    nodes: tuple[AssignedNode, ...]
    num_fused: int  # as its manifest says
    kernels: Counter[str]


def place(context: Context, placed: Placed) -> None:
    """Claims that no node is elsewhere, that all fused ones are there, and fused kernels ran."""
    name, provider = placed.name, PROVIDERS[context.device]
    others = [node for node in placed.nodes if node.provider != provider]
    elsewhere = [node for node in others if node.operator not in SHAPE_OPERATORS]
    named = ", ".join(f"{node} by {node.provider}" for node in elsewhere[:MAX_NAMED])
    found = f"{len(elsewhere)} of {len(placed.nodes)} nodes" + (f": {named}" if named else "")
    context.check(f"{name} computes no node elsewhere", not elsewhere, found, "0 nodes")
    operators = (n.operator.rpartition(".")[2] for n in placed.nodes if n.provider == provider)
    fused = Counter(operator for operator in operators if operator in FUSED)
    context.check(
        f"{name} has its fused nodes on the device",
        fused.total() == placed.num_fused,
        counted(fused),
        f"{placed.num_fused} nodes",
    )
    if placed.kernels:
        is_fused = UNFUSED not in placed.kernels
        what = f"{name} runs a fused kernel of attention"
        context.check(what, is_fused, counted(placed.kernels), f"not {UNFUSED}")
        context.findings["claims"][-1]["kind"] = "goal"
    context.row(
        PLACES,
        graph=name,
        **{"nodes there": len(placed.nodes) - len(others)},
        **{"nodes elsewhere": counted(Counter(node.operator for node in others))},
        **{"fused": counted(fused), "kernels of attention": counted(placed.kernels)},
    )


def counted(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "none"


@contextmanager
def announced(printed: list[str]) -> Iterator[None]:
    """Add what native code prints in the block; sessions that it opens name their kernels."""
    before = os.environ.get(ANNOUNCED)
    os.environ[ANNOUNCED] = "1"
    sys.stdout.flush()
    kept = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            yield
        finally:
            os.dup2(kept, 1)
            os.close(kept)
            del os.environ[ANNOUNCED]
            if before is not None:
                os.environ[ANNOUNCED] = before
            file.seek(0)
            printed.append(file.read().decode(errors="replace"))


def kernels_of(text: str) -> Counter[str]:
    """How often each kernel of attention ran."""
    return Counter(kernel for _, kernel in KERNEL.findall(text))
