"""A graph over slots of another program's decoder, compared with that one before it is served.

Where rows change each other, the graph is made to say that a run has one row, and is compared
again; where that does not help, it is refused. Holds at most one copy of the weights at a time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import ModelProto, TensorProto

from export.adopted.decoders import over_slots, take_one_row
from export.adopted.decoders_ends import Names, ends_of, take_branch_with_past
from export.adopted.decoders_parity import (
    CHUNK_LIMIT,
    LIMITS,
    Differences,
    differences,
    greedy,
)
from export.adopted.rounding import rounded_precision, rounds_activations
from export.errors import ExportError
from service.contract.manifest import MODEL_FILENAME, Precision


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes that the files beside a graph state; 0 where they state none."""

    max_tokens: int
    head_size: int = 0
    vocab_size: int = 0
    window: int = 0


@dataclass(frozen=True, slots=True)
class AdoptedDecoder:
    """A graph over slots, which was written, and how it compares with what it was made of."""

    path: Path
    precision: Precision
    differences: Differences
    takes_one_row: bool
    vocab_size: int

    @property
    def certificate(self) -> str:
        """The comparison, for people."""
        found = self.differences
        rows = "each row in a run of its own" if self.takes_one_row else "rows together and alone"
        return (
            f"compared with the graph as it was: {found.same_tokens} of {found.num_tokens} tokens "
            f"equal, logits within {found.of_rows:.0e}, {rows}; in chunks within "
            f"{found.chunks:.0e}"
        )


def build_decoder(
    source: Path,
    model: ModelProto,
    place: Path,
    sizes: Sizes,
    names: Names | None = None,
    on_step: Callable[[str], None] = print,
) -> AdoptedDecoder:
    """Write a graph over slots into a folder where its external data are, and compare it.

    `model` is that of `source` without its external data, and is emptied. Raises `ExportError`
    where it is no decoder with a past, or computes something else.
    """
    take_branch_with_past(model)
    ends = ends_of(model, names, head_size=sizes.head_size, vocab_size=sizes.vocab_size)
    precision: Precision = rounded_precision(model) or ("fp16" if _is_half(model) else "fp32")
    limit, chunk_limit = _limits_of(model)
    path = place / MODEL_FILENAME
    over_slots(model, ends)
    onnx.save(model, path)
    model.Clear()  # the caller has it too
    on_step("running the graph as it is")
    expected = greedy(source, ends, sizes.max_tokens, sizes.window)
    on_step("comparing it with the graph over slots")
    found = differences(path, expected)
    takes_one_row = found.of_rows > limit
    if takes_one_row:
        on_step("comparing it with runs of one row")
        model = onnx.load(path, load_external_data=False)
        take_one_row(model)
        onnx.save(model, path)
        del model
        found = differences(path, expected)
    if found.of_rows > limit or found.chunks > chunk_limit:
        raise ExportError(
            f"{source.name} computes something else once its past is read from slots, even one row "
            f"at a time: logits differ by {found.of_rows:.1e} of the largest, at most {limit:.0e} "
            f"is allowed, and of a prompt in chunks by {found.chunks:.1e}, at most "
            f"{chunk_limit:.0e}; {found.same_tokens} of {found.num_tokens} tokens are equal"
        )
    return AdoptedDecoder(path, precision, found, takes_one_row, ends.vocab_size)


def _limits_of(model: ModelProto) -> tuple[float, float]:
    """The largest differences of rows, and of chunks, in parts of the largest logit."""
    limit = LIMITS["float16" if _is_half(model) else "float32"]
    return limit, CHUNK_LIMIT if rounds_activations(model) else limit


def _is_half(model: ModelProto) -> bool:
    """Whether it computes in float16 somewhere."""
    types = {tensor.data_type for tensor in model.graph.initializer}
    types |= {value.type.tensor_type.elem_type for value in model.graph.input}
    return TensorProto.FLOAT16 in types
