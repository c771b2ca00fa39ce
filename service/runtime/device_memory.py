"""Memory of a device: allocated once, zeroed, copied there, and read in small parts.

Everything goes through graphs of one operator (`small_graphs.py`), which the session's own provider
runs: it allocates as much as is asked for, and a copy of many ranges is one run. With device `cpu`
the same code works on the host's memory; tests use that. Unverified on CUDA: docs/how-to/cuda.md.

One thread only.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from service.contract.session_tuning import SessionTuning
from service.contract.tensors import DATATYPES, Arrays, Datatype
from service.runtime import small_graphs
from service.runtime.binding import DeviceArray, Inputs
from service.runtime.device_errors import failing_as_run
from service.runtime.memory import Graph, RowReader, Spec
from service.runtime.session import OnnxSession, SessionOptions

ALIGNMENT = 256  # bytes; CUDA's own allocations begin at such addresses
BYTES_TYPE = DATATYPES["UINT8"]
# ONNX Runtime would take the next power of two of what is asked for, up to twice the cache.
ALLOCATION = (("arena_extend_strategy", "kSameAsRequested"),)


class DeviceMemory:
    """Tensors on one device. Raises `LoadError` where the device cannot be used."""

    def __init__(self, device: str, device_id: int = 0) -> None:
        self.device = device
        self._device_id = device_id
        tuning = SessionTuning(cuda_options=ALLOCATION if device == "cuda" else ())
        self._options = SessionOptions(device, device_id, tuning=tuning)
        self._zeros = OnnxSession(small_graphs.zeros(), self._options)
        self._rows = OnnxSession(small_graphs.chosen_rows(), self._options)
        self._copies: dict[int, OnnxSession] = {}  # by the number of ranges

    def zeros(self, shape: Sequence[int], datatype: Datatype) -> DeviceArray:
        """A tensor of zeros. Raises `OutOfMemory` where there is too little."""
        num_bytes = prod(shape) * datatype.dtype.itemsize
        return self._array(self._block(num_bytes), 0, tuple(shape), datatype)

    def inputs(self, arrays: Arrays, on_host: Collection[str] = ()) -> Inputs:
        """Inputs of these shapes and types: one block on the device, sent by one copy.

        A graph reads those `on_host` in the host's memory, and ONNX Runtime says which; with
        device `cpu` these are all, and they are sent nevertheless.
        """
        kept = set(on_host) if self.device != "cpu" else set()
        sent = {name: array for name, array in arrays.items() if name not in kept}
        sizes = {name: -(-array.nbytes // ALIGNMENT) * ALIGNMENT for name, array in sent.items()}
        staged = np.zeros(sum(sizes.values()), np.uint8)
        block = self._block(staged.size)
        written: dict[str, np.ndarray] = {name: arrays[name] for name in kept & arrays.keys()}
        bound: dict[str, np.ndarray | DeviceArray] = dict(written)
        offset = 0
        for name, array in sent.items():
            part = staged[offset : offset + array.nbytes]
            written[name] = part.view(array.dtype).reshape(array.shape)
            bound[name] = self._array(block, offset, array.shape, _type_of(array.dtype))
            offset += sizes[name]

        def send() -> None:
            with failing_as_run(self.device):
                block.update_inplace(staged)

        return Inputs(written, bound, send)

    def copy_rows(
        self, arrays: Sequence[Any], source: int, target: int, tokens: slice, axis: int
    ) -> None:
        """Copy tokens from one entry of the first axis to another, in all arrays by one run.

        Tokens that lie along the second axis are copied alone, others with their whole entry.
        """
        pairs = []
        for array in arrays:
            rows = array[source : source + 1], array[target : target + 1]
            first, last = (tokens.start or 0, tokens.stop) if axis == 1 else (0, array.shape[1])
            size = rows[0].nbytes // array.shape[1]
            pairs.append([_bytes_of(row, first * size, (last - first) * size) for row in rows])
        session = self._copies.get(len(pairs))
        if session is None:
            graph = small_graphs.copies(len(pairs))
            session = self._copies[len(pairs)] = OnnxSession(graph, self._options)
        sources = {f"from_{index}": source for index, (source, _) in enumerate(pairs)}
        targets = {f"to_{index}": target for index, (_, target) in enumerate(pairs)}
        session.bind(sources, targets).run()

    def run_rows(
        self,
        graph: Graph,
        inputs: Arrays,
        outputs: Mapping[str, Any],
        lengths: Sequence[int],
        before: Sequence[int],
    ) -> None:
        """Run a graph of tokens [N, S], whose outputs are computed where they are kept."""
        del lengths, before
        sent = self.inputs(inputs, graph.inputs_on_host)
        for name, array in inputs.items():
            sent.arrays[name][:] = array
        sent.send()
        graph.bind(sent.bound, outputs).run()

    def read_logits(self, rows: DeviceArray, beside: Mapping[str, Spec]) -> RowReader:
        """A reader of single rows, float32 [N, V], and of the outputs `beside` them."""
        indices, fetch = np.arange(len(rows)), partial(self.chosen_rows, rows)
        if not beside:
            return RowReader(indices, fetch, {}, dict)
        outputs = self.outputs(beside)
        return RowReader(indices, fetch, outputs.bound, outputs.read)

    def prefixes(self, buffers: Sequence[DeviceArray], num_tokens: int, max_bytes: int) -> None:
        """None: parts of rows stay on the device."""
        del buffers, num_tokens, max_bytes

    def chosen_rows(self, rows: DeviceArray, places: np.ndarray) -> np.ndarray:
        """Rows of a float32 tensor [N, V], by their places, int64, in the host's memory."""
        chosen = np.empty((len(places), rows.shape[1]), np.float32)
        if len(places):
            # An input that is elsewhere than the graph reads it is copied when it is bound.
            self._rows.bind({"rows": rows, "places": places}, {"chosen": chosen}).run()
        return chosen

    def outputs(self, specs: Mapping[str, Spec]) -> "Outputs":
        """Small outputs of these shapes and types: one block on the device, read by one copy."""
        sizes = {
            name: -(-prod(shape) * datatype.dtype.itemsize // ALIGNMENT) * ALIGNMENT
            for name, (shape, datatype) in specs.items()
        }
        block = self._block(sum(sizes.values()))
        bound: dict[str, DeviceArray] = {}
        offset = 0
        for name, (shape, datatype) in specs.items():
            bound[name] = self._array(block, offset, tuple(shape), datatype)
            offset += sizes[name]
        return Outputs(self.device, block, bound)

    def _block(self, num_bytes: int) -> Any:  # noqa: ANN401 - ONNX Runtime's OrtValue
        shape = np.array([num_bytes], np.int64)
        return self._zeros.run_on_device({"shape": shape}, "zeros")

    def _array(
        self,
        block: Any,  # noqa: ANN401 - the same
        offset: int,
        shape: tuple[int, ...],
        datatype: Datatype,
    ) -> DeviceArray:
        address = block.data_ptr() + offset
        return DeviceArray(self.device, self._device_id, datatype, shape, address, block)


class Outputs:
    """Small outputs of a run, side by side in one block."""

    def __init__(self, device: str, block: Any, bound: Mapping[str, DeviceArray]) -> None:  # noqa: ANN401 - the same
        self._device = device
        self._block = block
        self.bound = bound

    def read(self) -> dict[str, np.ndarray]:
        """Outputs of the last run, in the host's memory. Raises `ModelFailed`."""
        with failing_as_run(self._device):
            data = self._block.numpy()
        start = self._block.data_ptr()
        arrays: dict[str, np.ndarray] = {}
        for name, each in self.bound.items():
            offset = each.address - start
            part = data[offset : offset + each.nbytes]
            arrays[name] = part.view(each.datatype.dtype).reshape(each.shape)
        return arrays


def _bytes_of(array: DeviceArray, offset: int, num_bytes: int) -> DeviceArray:
    """A part of a tensor's memory, as bytes."""
    address = array.address + offset
    return DeviceArray(
        array.device, array.device_id, BYTES_TYPE, (num_bytes,), address, array.owner
    )


def _type_of(dtype: np.dtype) -> Datatype:
    return next(each for each in DATATYPES.values() if each.dtype == dtype)
