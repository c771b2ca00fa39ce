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
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from loadtests.compare.devices.machine import DTYPES
from loadtests.compare.devices.shapes import FUSED, Graph
from loadtests.gpu.context import Context
from loadtests.gpu.figures import LIMITS, Figures, Limits, largest, percent, same_best
from loadtests.gpu.kinds import KINDS, checkpoint_of
from loadtests.gpu.models import Model, graphs_as_they_come, wanted
from loadtests.gpu.references import Compared, Opening
from service.errors import LoadError, ModelFailed
from service.runtime.assignment import CPU_PROVIDER, SHAPE_OPERATORS, AssignedNode
from service.runtime.cpus import available_cpus
from service.runtime.session import CUDA_PROVIDER, SessionOptions, choose_device

PROVIDERS = {"cpu": CPU_PROVIDER, "cuda": CUDA_PROVIDER}
# Makes CUDA's attention print the kernel that it runs; read when a session is made.
ANNOUNCED = "ORT_ENABLE_ATTENTION_KERNEL_DEBUG_INFO"
KERNEL = re.compile(r"Operator=(\w+).*?SdpaKernel=(\w+)")
UNFUSED = "MATH"  # its name for products and softmax one after the other
MAX_NAMED = 5
TABLE = "Differences from PyTorch in float32, on the same inputs"
PLACES = "Nodes after optimization, as ONNX Runtime assigned them"


def run(context: Context) -> None:
    """The section's models; of a CPU, why bf16 is not among them."""
    compare_all(context, wanted(context.run, context.number))
    if (context.device, context.number) == ("cpu", 4):
        context.leave_out(f"all kinds in bf16: {KINDS['decoder'].obstacle('cpu', 'bf16')}")


def compare_all(context: Context, models: Sequence[Model]) -> None:
    """Compare all graphs of models as their exports come."""
    choose_device(context.device)  # raises the reason where the device cannot be used
    context.summarize(
        "Differences are relative to the outputs' size, their root mean square; two best values "
        "closer to each other than the precision rounds count as the same."
    )
    for model, graph, name in graphs_as_they_come(context, models):
        if (context.device, graph.layout) == ("cpu", "paged"):
            context.leave_out(f"{name}: the CPU provider has no PagedAttention")
            continue
        # CUDA's sessions have float32 as tf32.
        is_both = graph.precision == "fp32" and context.device == "cuda"
        for arithmetic in (graph.precision, "tf32") if is_both else (graph.precision,):
            check(context, model, graph, arithmetic)


def check(context: Context, model: Model, graph: Graph, arithmetic: str) -> None:
    """Compare a graph with its network, and look where its nodes are."""
    name = f"{model.kind} in {arithmetic}{f', {graph.layout}' if graph.layout else ''}"
    kind = KINDS[model.kind]
    options = session_options(context.device, is_exact=arithmetic == "fp32")
    # Nodes on the CPU are named below.
    opening = Opening(
        checkpoint_of(model.kind, is_tiny=context.is_tiny),
        graph,
        replace(options, allows_cpu_nodes=True),
    )
    limits, parts, printed = LIMITS[arithmetic], opening.parts, list[str]()
    parts.add("export", model.noted("seconds"))
    network = opening.checkpoint.model.to(torch_device(context.device))
    try:
        with announced(printed) if context.device == "cuda" else nullcontext(), parts.timed("run"):
            compared = kind.reference(opening)
        parts.add("run", -parts.seconds["open"])
        with parts.timed("reference"):
            expected = compared.by_network(network)
            figures = _figures(compared, expected, limits)
            theirs = _theirs(compared, expected, network, arithmetic)
    except (LoadError, ModelFailed) as error:
        if context.device == "cuda":
            context.check(f"{name} is as PyTorch", False, str(error))
        else:  # which has no kernels for some graphs
            context.leave_out(f"{name}: {error}")
        return
    finally:
        network.to("cpu")
    holds, found, expected_figures = figures.against(limits)
    context.check(f"{name} is as PyTorch", holds, f"{found}; {theirs}", expected_figures)
    context.row(
        TABLE,
        **{"model": name, "rows": figures.num_rows, "largest difference": figures.max_abs},
        **{"of the size": percent(figures.relative), "mean cosine": f"{figures.mean_cosine:.6f}"},
        **{"same best": same_best(figures), "limit": percent(limits.relative)},
        **{"PyTorch itself": theirs, **parts.cells()},
    )
    nodes = [node for session in opening.sessions for node in session.nodes]
    place(context, name, nodes, graph.num_fused, kernels_of("".join(printed)))
    for part in ("open", "run", "reference"):
        context.parts.add(part, parts.seconds[part])
    context.say(f"{name}: {found}; {theirs}")


def _figures(compared: Compared, expected: list[np.ndarray], limits: Limits) -> Figures:
    pairs = zip(compared.by_graph, expected, strict=True)
    return largest(pairs, limits, is_choice=compared.is_choice)


def _theirs(
    compared: Compared, expected: list[np.ndarray], network: nn.Module, arithmetic: str
) -> str:
    """What PyTorch differs by from itself when it computes the same in the precision."""
    if arithmetic == "fp32":
        return "it is the same"
    torch.backends.cuda.matmul.allow_tf32 = arithmetic == "tf32"
    try:
        half = copy.deepcopy(network).to(DTYPES[arithmetic.replace("tf32", "fp32")])
        own = replace(compared, by_graph=compared.by_network(half))
        figures = _figures(own, expected, LIMITS[arithmetic])
    except (RuntimeError, NotImplementedError, TypeError) as error:  # no such kernel in PyTorch
        return f"not computed: {str(error).splitlines()[0][:100]}"
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
    best = f", same best {same}" if (same := same_best(figures)) else ""
    return f"PyTorch in {arithmetic} {percent(figures.relative)}, {figures.mean_cosine:.6f}{best}"


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


def place(
    context: Context,
    name: str,
    nodes: Sequence[AssignedNode],
    num_fused: int,
    kernels: Counter[str],
) -> None:
    """Claims that no node is elsewhere, that all fused ones are there, and fused kernels ran.

    There are `num_fused` by the manifest of the graph; kernels of attention are those that ran.
    """
    provider = PROVIDERS[context.device]
    others = [node for node in nodes if node.provider != provider]
    elsewhere = [node for node in others if node.operator not in SHAPE_OPERATORS]
    named = ", ".join(f"{node} by {node.provider}" for node in elsewhere[:MAX_NAMED])
    found = f"{len(elsewhere)} of {len(nodes)} nodes" + (f": {named}" if named else "")
    context.check(f"{name} computes no node elsewhere", not elsewhere, found, "0 nodes")
    operators = (n.operator.rpartition(".")[2] for n in nodes if n.provider == provider)
    fused = Counter(operator for operator in operators if operator in FUSED)
    context.check(
        f"{name} has its fused nodes on the device",
        fused.total() == num_fused,
        counted(fused),
        f"{num_fused} nodes",
    )
    if kernels:
        is_fused = UNFUSED not in kernels
        what = f"{name} runs a fused kernel of attention"
        context.check(what, is_fused, counted(kernels), f"not {UNFUSED}", "goal")
    context.row(
        PLACES,
        graph=name,
        **{"nodes there": len(nodes) - len(others)},
        **{"nodes elsewhere": counted(Counter(node.operator for node in others))},
        **{"fused": counted(fused), "kernels of attention": counted(kernels)},
    )


def counted(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "none"


@contextmanager
def announced(printed: list[str]) -> Iterator[None]:
    """Add what native code prints in the block; sessions that it opens name their kernels."""
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
            file.seek(0)
            printed.append(file.read().decode(errors="replace"))


def kernels_of(text: str) -> Counter[str]:
    """How often each kernel of attention ran."""
    return Counter(kernel for _, kernel in KERNEL.findall(text))
