"""What the processor that runs the tests cannot do."""

from typing import Any

import pytest

from service.contract.manifest import Precision
from service.contract.precision import INT8_PRODUCTS
from service.runtime.cpus import cpu_flags

BLOCKS: tuple[Precision, ...] = ("int8-weights", "int4-weights")
# On AVX2 alone, ONNX Runtime rounds the activations of one row otherwise than those of several.
on_processors_of_blocks = pytest.mark.skipif(
    cpu_flags().isdisjoint(INT8_PRODUCTS),
    reason=f"the processor has none of {', '.join(INT8_PRODUCTS)}: neighbours change blocks",
)


def in_blocks(*values: Any) -> Any:
    """Parameters of a test whose weights are in blocks and whose rows have neighbours."""
    return pytest.param(*values, marks=on_processors_of_blocks)
