"""What is claimed about a graph's nodes, from what ONNX Runtime says of them."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

from loadtests.gpu.context import Context, Run
from loadtests.gpu.parity import ANNOUNCED, announced, kernels_of, place
from service.runtime.assignment import CPU_PROVIDER, AssignedNode
from service.runtime.session import CUDA_PROVIDER

ON_CUDA = (
    AssignedNode("a0", "com.microsoft.MultiHeadAttention", CUDA_PROVIDER),
    AssignedNode("a1", "com.microsoft.MultiHeadAttention", CUDA_PROVIDER),
    AssignedNode("m0", "MatMul", CUDA_PROVIDER),
)
SHAPES = AssignedNode("s0", "Shape", CPU_PROVIDER)
PRINTED = """
\x1b[36mAttentionKernelOptions: FLASH_ATTENTION=1 MATH=1\x1b[0m
\x1b[36mOperator=MultiHeadAttention Node=a0 DataType=fp16 SdpaKernel=FLASH_ATTENTION\x1b[0m
\x1b[36mOperator=MultiHeadAttention DataType=fp16 SdpaKernel=MATH\x1b[0m
\x1b[36mOperator=GroupQueryAttention Node=a1 DataType=fp16 SdpaKernel=FLASH_ATTENTION\x1b[0m
"""


def claims(*nodes: AssignedNode, num_fused: int = 2, kernels: str = "") -> list[dict[str, Any]]:
    context = Context(Run(Path(), "cuda", is_tiny=True), "placement", 0.0)
    place(context, "model", nodes, num_fused, kernels_of(kernels))
    return list(context.findings["claims"])


def test_nodes_on_the_device_and_shapes_on_the_cpu_hold() -> None:
    found = claims(*ON_CUDA, SHAPES)
    assert [each["holds"] for each in found] == [True, True]
    assert [each["found"] for each in found] == ["0 of 4 nodes", "2 MultiHeadAttention"]


def test_a_node_that_computes_on_the_cpu_is_named() -> None:
    elsewhere, _ = claims(*ON_CUDA, AssignedNode("q7", "MatMulInteger", CPU_PROVIDER))
    assert not elsewhere["holds"]
    assert elsewhere["found"] == "1 of 4 nodes: q7 (MatMulInteger) by CPUExecutionProvider"


def test_attention_that_is_not_fused_or_not_on_the_device_is_missed() -> None:
    """A node of the standard's `Attention` without a kernel becomes products and softmax."""
    _, fused = claims(ON_CUDA[0], ON_CUDA[2])
    assert not fused["holds"]
    assert (fused["found"], fused["expected"]) == ("1 MultiHeadAttention", "2 nodes")
    on_cpu = AssignedNode("a1", "com.microsoft.MultiHeadAttention", CPU_PROVIDER)
    assert not any(each["holds"] for each in claims(ON_CUDA[0], on_cpu))


def test_kernels_of_attention_are_read_from_what_is_printed() -> None:
    assert kernels_of(PRINTED) == Counter(FLASH_ATTENTION=2, MATH=1)
    *_, kernel = claims(*ON_CUDA, kernels=PRINTED)
    assert (kernel["kind"], kernel["holds"]) == ("goal", False)
    *_, kernel = claims(*ON_CUDA, kernels=PRINTED.replace("MATH\x1b", "EFFICIENT_ATTENTION\x1b"))
    assert kernel["holds"]
    assert len(claims(*ON_CUDA)) == 2, "nothing is claimed of kernels that were not named"


def test_what_native_code_prints_is_caught_and_the_output_is_as_before() -> None:
    printed: list[str] = []
    with announced(printed):
        os.write(1, PRINTED.encode())
        assert os.environ[ANNOUNCED] == "1"
    assert printed == [PRINTED]
    assert ANNOUNCED not in os.environ
