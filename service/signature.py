"""The tensors that a graph, or a model as its clients see it, takes and gives."""

from dataclasses import dataclass

from service.datatypes import Datatype


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output. `dims` may hold -1, and leave out the batch axis in a config."""

    name: str
    datatype: Datatype
    dims: tuple[int, ...]
    is_optional: bool = False  # inputs only
    reshape: tuple[int, ...] | None = None  # the graph's dims, where clients see others


@dataclass(frozen=True, slots=True)
class Signature:
    """A graph's inputs and outputs, with complete dims."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    overridable: tuple[TensorSpec, ...] = ()  # inputs that the graph has values for

    @property
    def can_batch(self) -> bool:
        """Whether every tensor has a free first axis."""
        return all(spec.dims[:1] == (-1,) for spec in self.inputs + self.outputs)
