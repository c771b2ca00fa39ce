"""The graphs of one export: `model.onnx`, and those of other precisions beside it.

The first precision must succeed. Each further one is written if it is accurate enough, and left
out with the reason otherwise.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import onnx

from export.errors import ExportError
from service.manifest import Precision, Variant


@dataclass(frozen=True, slots=True)
class Built:
    """A graph that was checked, and what was measured of it."""

    graph: onnx.ModelProto
    variant: Variant
    prefill: onnx.ModelProto | None = None  # of a decoder whose prompts have a graph of their own


@dataclass(frozen=True, slots=True)
class BuiltGraphs:
    """All graphs of a version."""

    main: Built
    others: tuple[Built, ...] = ()
    left_out: tuple[tuple[Precision, str], ...] = ()  # and why

    def manifest_fields(self) -> dict[str, Any]:
        """The manifest's entries of graphs."""
        return {
            **asdict(self.main.variant),
            "variants": tuple(built.variant for built in self.others),
            "left_out": dict(self.left_out),
        }


def build_graphs(
    precisions: Sequence[Precision],
    build: Callable[[Precision], Built],
    check_cost: Callable[[Variant], None],
) -> BuiltGraphs:
    """Build each, or raise `ExportError` where the first is refused.

    `check_cost` raises it for one that was not requested by name and is too inaccurate.
    """
    main = build(precisions[0])
    others: list[Built] = []
    left_out: list[tuple[Precision, str]] = []
    for precision in precisions[1:]:
        try:
            built = build(precision)
            check_cost(built.variant)
        except ExportError as error:
            left_out.append((precision, str(error)))
        else:
            others.append(built)
    return BuiltGraphs(main, tuple(others), tuple(left_out))
