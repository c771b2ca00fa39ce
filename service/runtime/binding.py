"""Runs over memory that stays where it is: the host's, or a device's.

A run that is bound reads its inputs and writes its outputs at fixed addresses, so nothing is copied
that lives there: the keys and values of a cache are read and extended in place. On the host such
memory is a NumPy array. On a device it is a `DeviceArray` of `service/runtime/device_memory.py`;
both give a range of their first axis by slicing. Small inputs are written into arrays of the host
in both cases, and sent before each run.

Knows nothing of what is computed. One thread only.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from service.contract.tensors import BF16, Datatype
from service.runtime.device_errors import failing_as_run, failure_of_run

ONNX_BFLOAT16 = 16  # TensorProto.BFLOAT16


@dataclass(frozen=True, slots=True)
class DeviceArray:
    """Memory of a tensor on a device, or of a range of its first axis; never read from here."""

    device: str  # as ONNX Runtime calls it
    device_id: int
    datatype: Datatype
    shape: tuple[int, ...]
    address: int
    owner: object  # kept alive, and the memory with it

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.datatype.dtype.itemsize

    def __getitem__(self, rows: slice) -> "DeviceArray":
        """Neighbouring entries of the first axis, at the same place in memory."""
        first, end, step = rows.indices(len(self))
        assert step == 1, "neighbours only"
        assert first <= end, "from the first to the last"
        shape = (end - first, *self.shape[1:])
        row_bytes = self.nbytes // len(self)
        address = self.address + first * row_bytes
        return DeviceArray(self.device, self.device_id, self.datatype, shape, address, self.owner)


Bound = np.ndarray | DeviceArray


@dataclass(frozen=True, slots=True)
class Inputs:
    """Small inputs of a run: `arrays` are to be written, `bound` is what the run reads."""

    arrays: dict[str, np.ndarray]
    bound: Mapping[str, Bound]
    send: Callable[[], None]  # to be called between the two


class Binding:
    """Inputs and outputs at fixed addresses: a run reads and writes them, and copies nothing.

    An output may be an input too, where the graph's operators allow it.
    """

    def __init__(
        self,
        session: Any,  # noqa: ANN401 - ONNX Runtime's
        device: str,  # that computes
        inputs: Mapping[str, Bound],
        outputs: Mapping[str, Bound],
        run_options: Any = None,  # noqa: ANN401 - the same
    ) -> None:
        self._session = session
        self._device = device
        self._run_options = run_options
        self._binding = session.io_binding()
        self._bound: dict[str, Bound] = {}  # kept alive: the binding knows their addresses only
        self.bind(inputs, outputs)

    def bind(self, inputs: Mapping[str, Bound], outputs: Mapping[str, Bound]) -> None:
        """Bind further inputs and outputs, or others in the place of some.

        Inputs that lie elsewhere than the graph reads them are copied there. Raises `ModelFailed`.
        """
        with failing_as_run(self._device):
            for name, array in inputs.items():
                self._binding.bind_input(name, *_place_of(name, array))
            for name, array in outputs.items():
                self._binding.bind_output(name, *_place_of(name, array))
        self._bound |= {**inputs, **{f"{name} as output": each for name, each in outputs.items()}}

    def run(self) -> None:
        """Compute, or raise `ModelFailed`; the outputs are then half written."""
        try:
            self._session.run_with_iobinding(self._binding, self._run_options)
        except Exception as error:  # ORT's errors share no narrower base class
            raise failure_of_run(str(error), self._device) from error


def _place_of(name: str, array: Bound) -> tuple[str, int, Any, tuple[int, ...], int]:
    """Device, its number, element type, shape and address, as ONNX Runtime takes them."""
    if isinstance(array, np.ndarray):
        assert array.flags.c_contiguous, f"'{name}' is not contiguous"
        return "cpu", 0, array.dtype.type, array.shape, array.ctypes.data
    is_bfloat16 = array.datatype.name == BF16
    element_type = ONNX_BFLOAT16 if is_bfloat16 else array.datatype.dtype.type
    return array.device, array.device_id, element_type, array.shape, array.address
