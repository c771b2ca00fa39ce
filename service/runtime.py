"""The one door to ONNX Runtime: arrays in, arrays out; knows no request.

The three builds of ONNX Runtime are one import name, so `load_onnxruntime` checks
that exactly one is installed. BYTES tensors cross as `str`: the Python API has no
other way, and non-UTF-8 bytes are refused before they get here.
"""

import importlib
import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from service.datatypes import BY_ONNX
from service.errors import LoadError, ModelFailed
from service.model_config import Signature, TensorSpec
from service.request import Arrays

BUILDS = ("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino")
CPU_PROVIDER = "CPUExecutionProvider"
CUDA_PROVIDER = "CUDAExecutionProvider"


class Session(Protocol):
    """A loaded graph. `run` may be called from several threads at once."""

    @property
    def signature(self) -> Signature: ...

    def run(self, inputs: Arrays, outputs: Sequence[str]) -> list[np.ndarray]:
        """Compute the named outputs, in that order, or raise `ModelFailed`."""
        ...


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """How one session computes."""

    device: str = "cpu"  # cpu or cuda
    device_id: int = 0
    num_threads: int = 1
    can_spin: bool = False  # idle threads poll for work instead of sleeping


def load_onnxruntime() -> Any:  # noqa: ANN401 - the module has no type of its own
    """Import ONNX Runtime, or raise `LoadError` saying what to install or remove."""
    found = [build for build in BUILDS if _is_installed(build)]
    if len(found) > 1:
        raise LoadError(
            f"{' and '.join(found)} are installed together and overwrite each other: "
            f"uninstall all of them, then install one of attendant[cpu], attendant[gpu]"
        )
    try:
        return importlib.import_module("onnxruntime")
    except ImportError as error:
        raise LoadError(
            f"ONNX Runtime cannot be imported ({error}): "
            "pip install 'attendant[cpu]' or 'attendant[gpu]'"
        ) from error


def _is_installed(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def choose_device(wanted: str) -> str:
    """`auto` becomes cuda where this build has it, else cpu; the session tells of the machine."""
    available = load_onnxruntime().get_available_providers()
    if wanted == "auto":
        return "cuda" if CUDA_PROVIDER in available else "cpu"
    if wanted == "cuda" and CUDA_PROVIDER not in available:
        raise LoadError(
            f"device cuda is asked for, but this build of ONNX Runtime offers {available}: "
            "install attendant[gpu] on a machine with CUDA"
        )
    return wanted


class OnnxSession:
    """An `onnxruntime.InferenceSession`; `signature` is read once from the graph."""

    def __init__(self, graph: Path | bytes, options: SessionOptions) -> None:
        ort = load_onnxruntime()
        name = graph.name if isinstance(graph, Path) else "graph"
        try:
            self._session = ort.InferenceSession(
                graph, _ort_options(ort, options), providers=_providers(options)
            )
        except Exception as error:  # ORT's errors share no narrower base class
            raise LoadError(f"{name}: {error}") from error
        if options.device == "cuda" and CUDA_PROVIDER not in self._session.get_providers():
            # ORT would go on on the CPU, and say so only in its log.
            raise LoadError(f"{name}: CUDA cannot be used on this machine, see --device cpu")
        self.signature = Signature(
            tuple(_tensor_spec(node) for node in self._session.get_inputs()),
            tuple(_tensor_spec(node) for node in self._session.get_outputs()),
        )

    def run(self, inputs: Arrays, outputs: Sequence[str]) -> list[np.ndarray]:
        try:
            results: list[np.ndarray] = self._session.run(list(outputs), dict(inputs))
        except Exception as error:  # the same
            raise ModelFailed(str(error)) from error
        return results

    def bind(self, inputs: Arrays, outputs: Arrays) -> "Binding":
        """A run over arrays that stay where they are; they must be C-contiguous."""
        return Binding(self._session, inputs, outputs)


class Binding:
    """Inputs and outputs at fixed addresses: a run reads and writes them, and copies nothing.

    An output may be an input too, where the graph's operators allow it.
    """

    def __init__(self, session: Any, inputs: Arrays, outputs: Arrays) -> None:  # noqa: ANN401
        self._session = session
        self._binding = session.io_binding()
        self._arrays = (inputs, outputs)  # kept alive: the binding knows their addresses only
        for bind, arrays in (
            (self._binding.bind_input, inputs),
            (self._binding.bind_output, outputs),
        ):
            for name, array in arrays.items():
                assert array.flags.c_contiguous, f"'{name}' is not contiguous"
                bind(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)

    def run(self) -> None:
        """Compute, or raise `ModelFailed`; the outputs are then half written."""
        try:
            self._session.run_with_iobinding(self._binding)
        except Exception as error:  # ORT's errors share no narrower base class
            raise ModelFailed(str(error)) from error


def _ort_options(ort: Any, options: SessionOptions) -> Any:  # noqa: ANN401
    ort_options = ort.SessionOptions()
    ort_options.intra_op_num_threads = options.num_threads
    ort_options.inter_op_num_threads = 1
    spinning = "1" if options.can_spin else "0"
    ort_options.add_session_config_entry("session.intra_op.allow_spinning", spinning)
    if options.device == "cpu":
        # ORT's own fusion of addition and layer norm is slower than the two: docs/benchmarks.md.
        fusions = "SkipLayerNormFusion"
        ort_options.add_session_config_entry("optimization.disable_specified_optimizers", fusions)
    ort_options.log_severity_level = 3  # errors only: they come back as exceptions too
    return ort_options


def _providers(options: SessionOptions) -> list[Any]:
    if options.device == "cuda":
        return [(CUDA_PROVIDER, {"device_id": options.device_id}), CPU_PROVIDER]
    return [CPU_PROVIDER]


def _tensor_spec(node: Any) -> TensorSpec:  # noqa: ANN401
    if node.type not in BY_ONNX:
        raise LoadError(f"'{node.name}' is {node.type}: not supported")
    dims = tuple(dim if isinstance(dim, int) else -1 for dim in node.shape)
    return TensorSpec(node.name, BY_ONNX[node.type], dims)
