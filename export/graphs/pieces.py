"""A graph that is run over rows piece by piece: the weights of one piece are in memory at a time.

A piece is a graph of some nodes, one after the other. What later pieces read of its values is kept
for each row until then. Pieces end where few values are passed on, as between two layers; a small
graph is one piece. Knows nothing of what a graph computes.
"""

import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import accumulate

import onnx
from onnx import NodeProto, helper

from export.graphs.files import save, without_weights
from export.graphs.tensors import Array, new_folder, size_of
from service.contract.manifest import MODEL_FILENAME
from service.contract.tensors import TensorSpec
from service.runtime.cpus import available_cpus
from service.runtime.session import OnnxSession, SessionOptions

MAX_BYTES = 2**30  # of the weights of a piece; those of one node may take more
Feed = Callable[[Sequence[TensorSpec]], Mapping[str, Array]]  # a row's values of a graph's inputs


class Pieces:
    """The pieces of a graph up to the last of the values that are wanted of it.

    Logits of all tokens of a text would take more time than the rest.
    """

    def __init__(
        self, model: onnx.ModelProto, wanted: Collection[str], max_bytes: int = MAX_BYTES
    ) -> None:
        self._model, self._wanted = model, wanted
        nodes = list(model.graph.node)
        made_at = {name: place for place, node in enumerate(nodes) for name in node.output if name}
        self._nodes = nodes[: 1 + max(made_at[name] for name in wanted)]
        self._reads = [_read_by(node) for node in self._nodes]
        last_read = {name: place for place, names in enumerate(self._reads) for name in names}
        self._passed_until = {name: last_read.get(name, -1) for name in made_at}
        sizes = {tensor.name: size_of(tensor) for tensor in model.graph.initializer}
        changes = [0] * (len(self._nodes) + 1)  # of the number of values passed on behind a node
        for name, place in made_at.items():
            if place < last_read.get(name, -1):
                changes[place] += 1
                changes[last_read[name]] -= 1
        num_bytes = [sum(sizes.get(name, 0) for name in names) for names in self._reads]
        self._parts = _parts(num_bytes, list(accumulate(changes)), max_bytes)

    def __len__(self) -> int:
        return len(self._parts)

    def run(
        self,
        rows: Sequence[Feed],
        see: Callable[[str, Array], None],
        on_row: Callable[[], None] = lambda: None,
    ) -> Iterator[list[str]]:
        """The wanted values that each piece gave, after `see` was called with those of all rows."""
        states: list[dict[str, Array]] = [{} for _ in rows]
        for part in self._parts:
            made = [name for node in self._nodes[part] for name in node.output if name]
            given = [name for name in made if name in self._wanted]
            passed = [name for name in made if self._passed_until[name] >= part.stop]
            outputs = list(dict.fromkeys((*given, *passed)))
            session = self._session(part, outputs, states[0])
            for feed, state in zip(rows, states, strict=True):
                inputs = session.signature.inputs
                feeds = {spec.name: state[spec.name] for spec in inputs if spec.name in state}
                feeds |= feed([spec for spec in inputs if spec.name not in state])
                values = dict(zip(outputs, session.run(feeds, outputs), strict=True))
                for name in given:
                    see(name, values[name])
                for name in [name for name in state if self._passed_until[name] < part.stop]:
                    del state[name]
                state |= {name: values[name] for name in passed}
                on_row()
            del session
            yield given

    def _session(
        self, part: slice, outputs: Sequence[str], state: Mapping[str, Array]
    ) -> OnnxSession:
        """Some nodes, which give these values; `state` has the types of those passed to them."""
        whole, piece = self._model.graph, without_weights(self._model)
        graph, read = piece.graph, set().union(*self._reads[part])
        del graph.node[:], graph.input[:], graph.output[:], graph.value_info[:]
        graph.node.extend(self._nodes[part])
        graph.initializer.extend(tensor for tensor in whole.initializer if tensor.name in read)
        graph.input.extend(value for value in whole.input if value.name in read)
        graph.input.extend(
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(value.dtype), [None] * value.ndim
            )
            for name, value in state.items()
            if name in read
        )
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
        folder = new_folder()
        try:
            save(piece, folder / MODEL_FILENAME)
            options = SessionOptions(num_threads=available_cpus())
            return OnnxSession(folder / MODEL_FILENAME, options)
        finally:
            shutil.rmtree(folder)


def _read_by(node: NodeProto) -> set[str]:
    """The values that a node reads, also within its branches and loops."""
    inner = [attribute.g for attribute in node.attribute if attribute.HasField("g")]
    return set(node.input).union(*(_read_by(each) for graph in inner for each in graph.node))


def _parts(num_bytes: Sequence[int], num_passed: Sequence[int], max_bytes: int) -> list[slice]:
    """Nodes of each piece, by the weights of each node and the values passed on behind it.

    A piece that is not the last has at least half of the weights that would fit.
    """
    parts: list[slice] = []
    start = 0
    while start < len(num_bytes):
        sums = list(accumulate(num_bytes[start:]))
        fitting = max(1, sum(total <= max_bytes for total in sums))
        end = start + fitting
        if end < len(num_bytes):
            least = sums[fitting - 1] / 2
            ends = [start + 1 + n for n, total in enumerate(sums[:fitting]) if total >= least]
            end = min(ends, key=lambda each: (num_passed[each - 1], -each))
        parts.append(slice(start, end))
        start = end
    return parts
