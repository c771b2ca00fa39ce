"""Whether a graph on CUDA is computed there: which of its nodes ONNX Runtime gave to the CPU.

A node without a CUDA kernel runs on the CPU, and its tensors are copied there and back in every
run. ONNX Runtime also moves nodes to the CPU that compute shapes, whose numbers are few and are
needed there; it names the operator of a node, not its types, so those are told by their operators
(the idea is that of `GetCpuPreferredNodes` in its sources). Pure.
docs/how-to/cuda.md says what was verified on CUDA.
"""

from collections.abc import Iterable
from dataclasses import dataclass

CPU_PROVIDER = "CPUExecutionProvider"
MAX_NAMED = 5  # nodes in a message
# What shapes and indices are computed with. Of attention, products, norms and quantization there
# is none, so a graph that lacks their kernels is found.
SHAPE_OPERATORS = frozenset(
    (
        *("Shape", "Size", "Constant", "ConstantOfShape", "Range", "Identity", "Cast"),
        *("Gather", "GatherND", "Slice", "Concat", "Split", "Squeeze", "Unsqueeze"),
        *("Reshape", "Flatten", "Transpose", "Expand", "Tile", "Where", "NonZero"),
        *("Add", "Sub", "Mul", "Div", "Mod", "Neg", "Abs", "Floor", "Ceil", "Min", "Max"),
        *("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Not"),
        *("CumSum", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceSum"),
        *("MemcpyFromHost", "MemcpyToHost"),
    )
)


@dataclass(frozen=True, slots=True)
class AssignedNode:
    """A node of an optimized graph, and the provider that computes it."""

    name: str
    operator: str  # with its domain in front, where that is not ONNX's
    provider: str

    def __str__(self) -> str:
        return f"{self.name or 'a node without a name'} ({self.operator})"


def fallback(nodes: Iterable[AssignedNode]) -> str:
    """Which nodes beside those of shapes the CPU computes; empty if there are none."""
    nodes = list(nodes)
    fallen = [
        node
        for node in nodes
        if node.provider == CPU_PROVIDER and node.operator not in SHAPE_OPERATORS
    ]
    if not fallen:
        return ""
    named = ", ".join(map(str, fallen[:MAX_NAMED]))
    more = f" and {len(fallen) - MAX_NAMED} more" if len(fallen) > MAX_NAMED else ""
    return f"{len(fallen)} of {len(nodes)} nodes would run on the CPU: {named}{more}"
