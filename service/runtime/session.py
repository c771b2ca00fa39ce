"""The one door to ONNX Runtime: arrays in, arrays out; knows no request.

The three builds of ONNX Runtime are one import name, so `load_onnxruntime` checks
that a folder of packages has one of them only. BYTES tensors cross as `str`: the Python API has no
other way, and non-UTF-8 bytes are refused before they get here.
docs/how-to/cuda.md says what was verified on CUDA.
"""

import ctypes
import importlib
import importlib.metadata
import io
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from service.contract.accelerators import Accelerator
from service.contract.session_tuning import GRAPH_LEVELS, SessionTuning
from service.contract.tensors import BF16, BY_ONNX, BYTES, DATATYPES, Arrays, Signature, TensorSpec
from service.errors import LoadError
from service.runtime import cuda
from service.runtime.assignment import CPU_PROVIDER, AssignedNode, fallback
from service.runtime.binding import ONNX_BFLOAT16, Binding, Bound
from service.runtime.device_errors import failing_as_run, failure_of_run, reason_of_load
from service.runtime.shared_weights import SharedWeights

BUILDS = ("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino")
ERRORS_ONLY = 3  # of ONNX Runtime's levels of severity
CUDA_PROVIDER = "CUDAExecutionProvider"
logger = logging.getLogger(__name__)
HOST_MEMORY = "Cpu"  # as ONNX Runtime calls it
ENVIRONMENT_ARENA = "session.use_env_allocators"
NO_GRAPH = -1  # a run that is neither recorded as a CUDA graph nor repeated from one


class RunStop:
    """Ends a run early. `stop` may be called on any thread, before, during and after the run."""

    def __init__(self) -> None:
        self.is_stopped = False
        self._end: Callable[[], None] | None = None

    def stop(self) -> None:
        # Either this sees `_end`, or `then` sees `is_stopped`; both may.
        self.is_stopped = True
        if self._end is not None:
            self._end()

    def then(self, end: Callable[[], None]) -> None:
        """A function that ends the run; it may be called twice, and on another thread."""
        self._end = end
        if self.is_stopped:
            end()


class Session(Protocol):
    """A loaded graph. `run` may be called from several threads at once."""

    @property
    def signature(self) -> Signature: ...

    def run(
        self, inputs: Arrays, outputs: Sequence[str], stopping: RunStop | None = None
    ) -> list[np.ndarray]:
        """Compute the named outputs, in that order, or raise `ModelFailed`.

        `DeviceFailed` where no run will succeed any more. A run that is stopped raises soon.
        """
        ...


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """The options of one session."""

    device: str = "cpu"  # cpu or cuda
    device_id: int = 0
    num_threads: int = 1
    can_spin: bool = False  # idle threads poll for work instead of sleeping
    allows_cpu_nodes: bool = False  # on cuda: nodes without a kernel there run on the CPU
    spin_us: int = 0  # how long threads poll between two operators of a run; not between runs
    tuning: SessionTuning = field(default_factory=SessionTuning)


def load_onnxruntime() -> Any:
    """Import ONNX Runtime, or raise `LoadError` saying what to install or remove."""
    folders = [(build, folder) for build in BUILDS if (folder := _folder_of(build)) is not None]
    for _, folder in folders:
        # In folders of their own the first on the path is imported, and is whole.
        same = [other for other, beside in folders if beside == folder]
        if len(same) > 1:
            raise LoadError(
                f"{' and '.join(same)} are installed together and overwrite each other: "
                "uninstall all of them, then install one of attendant[cpu], attendant[gpu], "
                "attendant[openvino]"
            )
    try:
        return importlib.import_module("onnxruntime")
    except ImportError as error:
        raise LoadError(
            f"ONNX Runtime cannot be imported ({error}): "
            "pip install 'attendant[cpu]' or 'attendant[gpu]'"
        ) from error


def onnxruntime_version() -> str:
    return str(load_onnxruntime().__version__)


def _folder_of(distribution: str) -> str | None:
    """The folder that a distribution is installed in; None where it is not installed."""
    try:
        return str(importlib.metadata.distribution(distribution).locate_file(""))
    except importlib.metadata.PackageNotFoundError:
        return None


@cache
def cuda_obstacle() -> str:
    """Why this process cannot use CUDA; empty if it can. Loads CUDA's libraries where it can."""
    ort = load_onnxruntime()
    available = ort.get_available_providers()
    if CUDA_PROVIDER not in available:
        return (
            f"this build of ONNX Runtime offers {available}: "
            "install attendant[gpu] on a machine with CUDA"
        )
    # At each session it would warn that no plugin has this provider, which is built in.
    ort.set_default_logger_severity(ERRORS_ONLY)
    with redirect_stdout(io.StringIO()):  # it prints what it does not find, and `cuda` says it
        ort.preload_dlls()
    return cuda.obstacle(ort.cuda_version)


def choose_device(device: str) -> str:
    """`auto` becomes cuda where it can be used, else cpu. Raises `LoadError` where cuda cannot."""
    if device == "auto":
        return "cpu" if cuda_obstacle() else "cuda"
    if device == "cuda" and cuda_obstacle():
        raise LoadError(f"device cuda is requested, but CUDA cannot be used: {cuda_obstacle()}")
    return device


def load_error(graph: Path | bytes, text: str, options: SessionOptions) -> LoadError:
    """The error of a graph that cannot be opened, or not be run at all, with a way out."""
    cuda_version = getattr(load_onnxruntime(), "cuda_version", "")
    free_memory = partial(cuda.memory, options.device_id, cuda_version)
    reason = reason_of_load(
        text,
        options.device,
        num_bytes_of(graph),
        cuda_version,
        free_memory if options.device == "cuda" else str,
    )
    return LoadError(f"{_name_of(graph)}: {reason}")


class OnnxSession:
    """An `onnxruntime.InferenceSession`; `signature` is read once from the graph."""

    def __init__(
        self, graph: Path | bytes, options: SessionOptions, weights: SharedWeights | None = None
    ) -> None:
        """`weights` are those of another session, where the two graphs share them."""
        if weights is None and isinstance(graph, Path):
            weights = SharedWeights.beside(graph)
        self.weights = weights  # as long as the session, which looks into them
        self._ort = ort = load_onnxruntime()
        self._device = options.device
        self._device_id = options.device_id
        self._run_entries = options.tuning.run_entries
        name = _name_of(graph)
        providers = providers_for(options, ort.get_available_providers())
        ort_options = _ort_options(ort, options)
        if weights is not None:
            weights.give_to(ort_options)
        try:
            # Its fallback would open the graph again on the CPU, here or in the middle of a run.
            self._session = ort.InferenceSession(
                graph, ort_options, providers=providers, enable_fallback=0
            )
        except Exception as error:  # ORT's errors share no narrower base class
            raise load_error(graph, str(error), options) from error
        if weights is not None:
            weights.release()
        # ORT goes on without a provider whose library cannot be loaded.
        missing = [name for name, _ in providers if name not in self._session.get_providers()]
        if CUDA_PROVIDER in missing:
            reason = cuda_obstacle() or f"see the line of {CUDA_PROVIDER} in the log"
            raise LoadError(f"{name}: CUDA cannot be used: {reason}")
        if missing:
            raise LoadError(f"{name}: {missing[0]} cannot be used on this machine")
        if options.device == "cuda":
            self._check_assignment(name, options)
        self.signature = Signature(
            tuple(_tensor_spec(node) for node in self._session.get_inputs()),
            tuple(_tensor_spec(node) for node in self._session.get_outputs()),
            tuple(
                replace(_tensor_spec(node), is_optional=True)
                for node in self._session.get_overridable_initializers()
                if node.type in BY_ONNX  # weights may be of any type
            ),
            self._operators(),
        )
        taken = self.signature.inputs + self.signature.overridable
        self._bfloat16_inputs = _names_of(BF16, taken)
        self._bfloat16_outputs = _names_of(BF16, self.signature.outputs)
        strings = _names_of(BYTES, taken)
        if strings and self._bfloat16_outputs:  # they go through calls that exclude each other
            raise LoadError(
                f"{name}: ONNX Runtime's Python interface cannot take the BYTES input "
                f"'{min(strings)}' where there is a BF16 output, '{min(self._bfloat16_outputs)}'"
            )

    @property
    def nodes(self) -> list[AssignedNode]:
        """The nodes of the optimized graph by provider.

        Nodes that copy between devices are not among them, nor those of graphs within nodes.
        """
        return [
            AssignedNode(
                node.name,
                f"{node.domain}.{node.op_type}" if node.domain else node.op_type,
                part.ep_name,
            )
            for part in self._session.get_provider_graph_assignment_info()
            for node in part.get_nodes()
        ]

    def _operators(self) -> frozenset[str]:
        """Names of the graph's operators; none in a build of ONNX Runtime that does not say."""
        if not hasattr(self._session, "get_provider_graph_assignment_info"):
            return frozenset()
        return frozenset(node.operator for node in self.nodes)

    def _check_assignment(self, name: str, options: SessionOptions) -> None:
        if not (fallen := fallback(self.nodes)):
            return
        if not options.allows_cpu_nodes:
            raise LoadError(
                f"{name}: {fallen}; export the model with `attendant export --target cuda`, or "
                "accept this with the parameter allow_cpu_nodes in config.pbtxt"
            )
        logger.warning("%s: %s, and their tensors are copied in every run", name, fallen)

    def run(
        self, inputs: Arrays, outputs: Sequence[str], stopping: RunStop | None = None
    ) -> list[np.ndarray]:
        run_options = self._ort.RunOptions()
        run_options.log_severity_level = 4  # errors come back; clients could flood a log with them
        for key, value in self._run_entries:
            run_options.add_run_config_entry(key, value)
        if stopping is not None:
            stopping.then(partial(setattr, run_options, "terminate", True))
        try:
            return self._compute(inputs, outputs, run_options)
        except Exception as error:  # ORT's errors share no narrower base class
            raise failure_of_run(str(error), self._device) from error

    def _compute(
        self,
        inputs: Arrays,
        outputs: Sequence[str],
        run_options: Any,
    ) -> list[np.ndarray]:
        """Bfloat16 crosses as bits in ONNX Runtime's own values: NumPy has no such type.

        On a device inputs and the named outputs cross once, and nothing else does: a binding would
        save nothing, as shapes change with every batch.
        """
        value_class = self._ort.OrtValue
        as_bits = value_class.ortvalue_from_numpy_with_onnx_type
        feeds: dict[str, Any] = {
            name: as_bits(np.asarray(array, order="C"), ONNX_BFLOAT16)
            if name in self._bfloat16_inputs
            else array
            for name, array in inputs.items()
        }
        results: list[np.ndarray]
        if self._bfloat16_outputs.isdisjoint(outputs):
            results = self._session.run(list(outputs), feeds, run_options)
            return results
        values = {
            name: feed if isinstance(feed, value_class) else value_class.ortvalue_from_numpy(feed)
            for name, feed in feeds.items()
        }
        outputs_of_run = self._session.run_with_ort_values(list(outputs), values, run_options)
        return [
            _bits_of(value) if name in self._bfloat16_outputs else value.numpy()
            for name, value in zip(outputs, outputs_of_run, strict=True)
        ]

    @property
    def inputs_on_host(self) -> frozenset[str]:
        """The inputs that the graph reads in the host's memory, also where it runs on a device."""
        places = zip(
            self._session.get_inputs(), self._session.get_input_memory_infos(), strict=True
        )
        return frozenset(node.name for node, memory in places if memory.name == HOST_MEMORY)

    def bind(
        self,
        inputs: Mapping[str, Bound],
        outputs: Mapping[str, Bound],
        graph_id: int | None = None,
    ) -> Binding:
        """A run over memory that stays where it is; arrays must be C-contiguous.

        `graph_id` is of a session that keeps CUDA graphs: a run with a new number is recorded, one
        with a known number repeats what was recorded, and `NO_GRAPH` does neither.
        """
        if graph_id is None:
            return Binding(self._session, self._device, inputs, outputs)
        run_options = self._ort.RunOptions()
        run_options.add_run_config_entry("gpu_graph_id", str(graph_id))
        return Binding(self._session, self._device, inputs, outputs, run_options)

    def run_on_device(self, inputs: Arrays, output: str) -> Any:
        """One output, as ONNX Runtime's own value in the memory of the session's device."""
        binding = self._session.io_binding()
        with failing_as_run(self._device):
            for name, array in inputs.items():
                binding.bind_cpu_input(name, array)
            binding.bind_output(output, self._device, self._device_id)
            self._session.run_with_iobinding(binding)
        return binding.get_outputs()[0]


def _name_of(graph: Path | bytes) -> str:
    return graph.name if isinstance(graph, Path) else "graph"


def num_bytes_of(graph: Path | bytes) -> int:
    """The size of a graph with its weights, which may lie in files beside it."""
    if isinstance(graph, bytes):
        return len(graph)
    return sum(file.stat().st_size for file in graph.parent.glob(f"{graph.name}*"))


def _ort_options(ort: Any, options: SessionOptions) -> Any:
    tuning = options.tuning
    ort_options = ort.SessionOptions()
    ort_options.intra_op_num_threads = options.num_threads
    ort_options.inter_op_num_threads = 1
    if tuning.is_parallel:
        ort_options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
        ort_options.inter_op_num_threads = tuning.num_inter_threads or options.num_threads
    ort_options.enable_cpu_mem_arena = tuning.has_arena
    ort_options.enable_mem_pattern = tuning.has_pattern
    level = GRAPH_LEVELS[tuning.graph_level]
    ort_options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    spinning = "1" if options.can_spin or options.spin_us else "0"
    ort_options.add_session_config_entry("session.intra_op.allow_spinning", spinning)
    if options.spin_us and not options.can_spin:
        spin_us = str(options.spin_us)
        ort_options.add_session_config_entry("session.intra_op.spin_duration_us", spin_us)
        ort_options.add_session_config_entry("session.force_spinning_stop", "1")
    if options.device == "cpu":
        # ORT's own fusion of addition and layer norm is slower than the two: decision 0028.
        fusions = "SkipLayerNormFusion"
        ort_options.add_session_config_entry("optimization.disable_specified_optimizers", fusions)
        if tuning.has_arena:
            _make_arena()
            ort_options.add_session_config_entry(ENVIRONMENT_ARENA, "1")
    ort_options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    for key, value in tuning.session_entries:
        ort_options.add_session_config_entry(key, value)
    ort_options.log_severity_level = ERRORS_ONLY  # they come back as exceptions too
    return ort_options


@cache
def _make_arena() -> None:
    """One arena of the host's memory for all sessions that run on it: decision 0044."""
    ort = load_onnxruntime()
    kind, memory = ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, ort.OrtMemType.DEFAULT
    ort.create_and_register_allocator(ort.OrtMemoryInfo(HOST_MEMORY, kind, 0, memory), None)


def providers_for(
    options: SessionOptions, available: Sequence[str]
) -> list[tuple[str, dict[str, str]]]:
    """ONNX Runtime's providers with their options, the first one that can compute a node does.

    Raises `LoadError` for one that this build does not have, or that has no device.
    """
    tuning = options.tuning
    if options.device == "cuda":
        device_id = {"device_id": str(options.device_id)}
        cuda = Accelerator(CUDA_PROVIDER, tuning.cuda_options)
        gpu = [
            (each.provider, dict(each.options) | device_id)
            for each in (*tuning.gpu_accelerators, cuda)
        ]
    elif tuning.needs_gpu:
        raise LoadError(
            "config.pbtxt asks for a GPU in optimization.execution_accelerators or parameters, but "
            f"the model runs on the CPU; this build of ONNX Runtime offers {list(available)}"
        )
    else:
        gpu = []
    threads = {"num_of_threads": str(options.num_threads)}  # as OpenVINO, the only one, calls it
    cpu = [(each.provider, threads | dict(each.options)) for each in tuning.cpu_accelerators]
    providers = [*gpu, *cpu, (CPU_PROVIDER, {})]
    for name, _ in providers:
        if name not in available:
            raise LoadError(
                f"config.pbtxt asks for {name}, but this build of ONNX Runtime offers "
                f"{list(available)}"
            )
    return providers


def _tensor_spec(node: Any) -> TensorSpec:
    if node.type not in BY_ONNX:
        raise LoadError(f"'{node.name}' is {node.type}: not supported")
    dims = tuple(dim if isinstance(dim, int) else -1 for dim in node.shape)
    first = node.shape[0] if dims[:1] == (-1,) else ""
    return TensorSpec(node.name, BY_ONNX[node.type], dims, first_axis=first or "")


def _names_of(datatype: str, specs: Sequence[TensorSpec]) -> frozenset[str]:
    return frozenset(spec.name for spec in specs if spec.datatype.name == datatype)


def _bits_of(value: Any) -> np.ndarray:
    """A copy of the memory of a bfloat16 value."""
    num_bytes = value.tensor_size_in_bytes()
    raw = ctypes.string_at(value.data_ptr(), num_bytes) if num_bytes else b""
    return np.frombuffer(raw, DATATYPES[BF16].dtype).reshape(value.shape())
