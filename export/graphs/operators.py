"""The tracer's table of operators, made once for a process.

`torch.onnx.export` reads the source of 500 functions anew for each graph. That takes a second,
more than tracing a small network does, and an export traces several graphs. The table depends only
on the opset, and nothing changes it after it is made. Not for several threads at once.

What is borrowed of torch beside its promises, in this file alone, so its version is pinned in
pyproject.toml: `ONNXRegistry.from_torchlib`, which is exchanged for a moment, as torch has no
public way to hand the table over, and `TORCHLIB_OPSET`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from torch.onnx._internal.exporter import _constants
from torch.onnx._internal.exporter._registration import ONNXRegistry

_make_table = ONNXRegistry.from_torchlib


@contextmanager
def kept_operators() -> Iterator[None]:
    """A context in which the tracer takes the table that is kept."""
    ONNXRegistry.from_torchlib = staticmethod(_table)  # type: ignore[method-assign]
    try:
        yield
    finally:
        ONNXRegistry.from_torchlib = _make_table  # type: ignore[method-assign]


@cache
def _table(opset_version: int = _constants.TORCHLIB_OPSET) -> ONNXRegistry:
    return _make_table(opset_version)
