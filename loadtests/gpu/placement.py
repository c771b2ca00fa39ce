"""Section 3: whether every node of every graph is computed on the device, and attention is fused.

ONNX Runtime says which provider took each node of a session. A node without a kernel for CUDA would
run on the CPU, and its tensors would be copied in every run; only nodes that compute shapes may be
there. An operator without a kernel may also be replaced by the many nodes of its definition, so the
fused ones are counted. Of attention, CUDA also says which of its kernels it ran.

What was verified on CUDA is in docs/cuda.md.
"""

import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from loadtests.gpu.claims import Claim, is_true
from loadtests.gpu.context import Context, Findings
from loadtests.gpu.device import session_options, torch_device
from loadtests.gpu.exports import Graph, checkpoint_of, export_models, sizes_of
from loadtests.gpu.parity import wanted
from loadtests.gpu.references import outputs_of
from service.errors import LoadError, ModelFailed
from service.generation.decoders.decoder import PREFILL_SUFFIX
from service.generation.decoders.encoder_decoder import ENCODER_FILENAME
from service.runtime.assignment import CPU_PROVIDER, SHAPE_OPERATORS, AssignedNode
from service.runtime.session import CUDA_PROVIDER, OnnxSession

FUSED = ("Attention", "MultiHeadAttention", "GroupQueryAttention", "PagedAttention", "LSTM")
PROVIDERS = {"cpu": CPU_PROVIDER, "cuda": CUDA_PROVIDER}
RECORDED = ("session.record_ep_graph_assignment_info", "1")
# Makes CUDA's attention print the kernel that it runs; read when a session is made.
ANNOUNCED = "ORT_ENABLE_ATTENTION_KERNEL_DEBUG_INFO"
KERNEL = re.compile(r"Operator=(\w+).*?SdpaKernel=(\w+)")
UNFUSED = "MATH"  # its name for products and softmax one after the other
MAX_NAMED = 5


@dataclass(frozen=True, slots=True)
class Placed:
    """A graph with its nodes by provider, and the kernels of attention that ran."""

    name: str
    nodes: tuple[AssignedNode, ...]
    num_fused: int  # as its manifest says
    kernels: Counter[str]

    def elsewhere(self, provider: str) -> list[AssignedNode]:
        """Nodes of other providers, but for those of shapes."""
        return [
            node
            for node in self.nodes
            if node.provider != provider and node.operator not in SHAPE_OPERATORS
        ]

    def fused(self, provider: str) -> Counter[str]:
        """Fused nodes of the provider, by operator without its domain."""
        names = (
            node.operator.rpartition(".")[2] for node in self.nodes if node.provider == provider
        )
        return Counter(name for name in names if name in FUSED)


def run(context: Context) -> Findings:
    """Claims about each graph that can be opened on the device."""
    session_options(context)  # raises the reason where the device cannot be used
    findings: Findings = {"claims": [], "left_out": []}
    placed: list[Placed] = []
    for model in export_models(context, wanted(context)):
        if model.reason:
            findings["left_out"].append(f"{model.name} is not exported: {model.reason}")
            continue
        for graph in model.graphs():
            obstacle = graph.obstacle(context.device)
            if obstacle or context.is_over:
                findings["left_out"].append(f"{graph.name}: {obstacle or 'no time was left'}")
                continue
            try:
                placed.append(_place(graph, context))
            except (LoadError, ModelFailed) as error:
                if context.device == "cuda":
                    claim = is_true(f"{graph.name} can be opened", False, str(error))
                    findings["claims"].append(claim)
                else:
                    findings["left_out"].append(f"{graph.name}: {error}")
    context.say(f"{len(placed)} graphs were read")
    provider = PROVIDERS[context.device]
    findings["claims"] += [claim for each in placed for claim in claims_of(each, provider)]
    findings["tables"] = [_table(placed, provider)]
    findings["summary"] = [
        f"{len(placed)} graphs have {sum(len(each.nodes) for each in placed)} nodes after "
        f"optimization, {sum(n.provider == provider for p in placed for n in p.nodes)} of them on "
        f"{context.device}."
    ]
    return findings


def claims_of(placed: Placed, provider: str) -> Iterator[Claim]:
    """That no node is elsewhere, that all fused ones are there, and that fused kernels ran."""
    elsewhere = placed.elsewhere(provider)
    named = ", ".join(f"{node} by {node.provider}" for node in elsewhere[:MAX_NAMED])
    found = f"{len(elsewhere)} of {len(placed.nodes)} nodes" + (f": {named}" if named else "")
    is_there = is_true(f"{placed.name} computes no node elsewhere", not elsewhere, found, "0 nodes")
    fused = placed.fused(provider)
    is_fused = is_true(
        f"{placed.name} has its fused nodes on the device",
        fused.total() == placed.num_fused,
        _counted(fused),
        f"{placed.num_fused} nodes",
    )
    yield from ({**claim, "in_table": True} for claim in (is_there, is_fused))
    if placed.kernels:
        yield is_true(
            f"{placed.name} runs a fused kernel of attention",
            UNFUSED not in placed.kernels,
            _counted(placed.kernels),
            f"not {UNFUSED}",
        ) | {"kind": "goal"}


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "none"


def _place(graph: Graph, context: Context) -> Placed:
    """Open a graph and those beside it, and run it once where its kernels can be heard of."""
    options = session_options(context)
    options = replace(options, allows_cpu_nodes=True)  # they are to be named
    if context.device == "cpu":  # where a session does not record this by itself
        tuning = replace(options.tuning, session_entries=(RECORDED,))
        options = replace(options, tuning=tuning)
    path, model = graph.path, graph.model
    files = [path, path.with_suffix(PREFILL_SUFFIX), path.with_name(ENCODER_FILENAME)]
    nodes = [node for file in files if file.is_file() for node in OnnxSession(file, options).nodes]
    kernels: Counter[str] = Counter()
    if context.device == "cuda":
        checkpoint = checkpoint_of(model.kind, sizes_of(context))
        with announced() as printed:
            outputs_of(model.kind, checkpoint, path, options, torch_device(context))
        kernels = kernels_of("".join(printed))
    fused = model.manifest.graphs[path.name].fused
    return Placed(graph.name, tuple(nodes), sum(fused.get(each, 0) for each in FUSED), kernels)


@contextmanager
def announced() -> Iterator[list[str]]:
    """What native code printed, once the block has ended; sessions in it name their kernels."""
    before = os.environ.get(ANNOUNCED)
    os.environ[ANNOUNCED] = "1"
    sys.stdout.flush()
    kept, printed = os.dup(1), list[str]()
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            yield printed
        finally:
            os.dup2(kept, 1)
            os.close(kept)
            if before is None:
                del os.environ[ANNOUNCED]
            else:
                os.environ[ANNOUNCED] = before
            file.seek(0)
            printed.append(file.read().decode(errors="replace"))


def kernels_of(text: str) -> Counter[str]:
    """How often each kernel of attention ran."""
    return Counter(kernel for _, kernel in KERNEL.findall(text))


def _table(placed: Sequence[Placed], provider: str) -> dict[str, object]:
    rows = []
    for each in placed:
        others = Counter(node.operator for node in each.nodes if node.provider != provider)
        checks = (claim for claim in claims_of(each, provider) if claim["kind"] == "check")
        holds = all(claim["holds"] for claim in checks)
        rows.append(
            [
                each.name,
                len(each.nodes) - others.total(),
                _counted(others),
                _counted(each.fused(provider)),
                each.num_fused,
                _counted(each.kernels) if each.kernels else "not said",
                "yes" if holds else "**no**",
            ]
        )
    return {
        "title": "Nodes after optimization, as ONNX Runtime assigned them",
        "columns": [
            *("graph", "nodes there", "nodes elsewhere", "fused", "expected"),
            *("kernels of attention", "holds"),
        ],
        "rows": rows,
    }
