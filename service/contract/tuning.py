"""How ONNX Runtime computes a model, as `config.pbtxt` says: Triton's parameters and accelerators.

Names and values are checked against the tables below, so that a file cannot set options without
effect, load code or write files. Knows nothing of sessions.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelOptimizationPolicy

from service.contract.precision import CHOICES
from service.errors import LoadError

MAX_THREADS = 1_024
MAX_JSON = 1_024  # characters of a value that is JSON
MAX_SHOWN = 100  # characters of a wrong value in its message

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Accelerator:
    """An execution provider by ONNX Runtime's name, with its options."""

    provider: str
    options: Pairs = ()


@dataclass(frozen=True, slots=True)
class SessionTuning:
    """A configuration's options for its session."""

    precision: str = ""  # of the graph that is opened; "" leaves it to the server
    num_inter_threads: int = 0  # for branches of the graph; 0 is as many as within an operator
    is_parallel: bool = False  # branches of the graph run at once
    has_arena: bool = True
    has_pattern: bool = True
    graph_level: int = 0  # Triton's numbers, see GRAPH_LEVELS
    session_entries: Pairs = ()
    run_entries: Pairs = ()
    gpu_accelerators: tuple[Accelerator, ...] = ()  # tried before CUDA
    cuda_options: Pairs = ()
    cpu_accelerators: tuple[Accelerator, ...] = ()  # tried before the CPU

    @property
    def needs_gpu(self) -> bool:
        return bool(self.gpu_accelerators or self.cuda_options)


Read = Callable[[str, str], str]  # a field's path and its value to ONNX Runtime's option


def _refusal(path: str, value: str, expected: str) -> LoadError:
    return LoadError(f"config.pbtxt: {path} is '{value[:MAX_SHOWN]}', expected {expected}")


def _value(expected: str, parse: Callable[[str], str | None]) -> Read:
    """A rule: `parse` gives ONNX Runtime's option, or None for an invalid value."""

    def read(path: str, value: str) -> str:
        parsed = parse(value)
        if parsed is None:
            raise _refusal(path, value, expected)
        return parsed

    return read


def _meaning(expected: str, meanings: Mapping[str, str]) -> Read:
    """A rule for words and numbers, in any case."""
    return _value(expected, lambda value: meanings.get(value.lower()))


def _one_of(*names: str, expected: str = "") -> Read:
    meanings = {name.lower(): name for name in names}
    return _meaning(expected or f"one of {', '.join(names)}", meanings)


def _whole(high: int) -> Read:
    def parse(value: str) -> str | None:
        is_short = value.isascii() and value.isdecimal() and len(value) <= len(str(2**63))
        return value if is_short and int(value) <= high else None

    return _value(f"a whole number of at most {high}", parse)


def _like(pattern: str, expected: str) -> Read:
    return _value(expected, lambda value: value if re.fullmatch(pattern, value) else None)


def _properties(devices: Mapping[str, Mapping[str, Read]], expected: str) -> Read:
    """A rule for a JSON object of devices' properties: `{"CPU": {"NUM_STREAMS": "2"}}`.

    OpenVINO would take a file's path in its place, and properties that name libraries and folders:
    the object is written anew, with nothing that was not looked at.
    """

    def read(path: str, value: str) -> str:
        refusal = _refusal(path, value, expected)
        try:
            given = json.loads(value) if len(value) <= MAX_JSON else None
        except (ValueError, RecursionError) as error:
            raise refusal from error
        if not isinstance(given, dict):
            raise refusal
        written: dict[str, dict[str, str]] = {}
        for device, properties in given.items():
            rules = devices.get(device)
            if rules is None or not isinstance(properties, dict):
                raise refusal
            for name, stated in properties.items():
                if name not in rules or not isinstance(stated, str | int):
                    raise refusal
                inner = rules[name](f"{path}: {device}.{name}", str(stated))
                written.setdefault(device, {})[name] = inner
        return json.dumps(written, sort_keys=True)

    return read


def _each(rule: Read, names: str) -> dict[str, Read]:
    return dict.fromkeys(names.split(), rule)


_SWITCH_TEXT = "0, 1, false or true"
_SWITCH = _meaning(_SWITCH_TEXT, {"0": "0", "1": "1", "false": "0", "true": "1"})
_OPENVINO_SWITCH = _meaning(
    _SWITCH_TEXT, {"0": "false", "1": "true", "false": "false", "true": "true"}
)
_THREADS, _BYTES, _INT32 = _whole(MAX_THREADS), _whole(2**63 - 1), _whole(2**31 - 1)
_SHAPES = _like(r"[\w./-]+:\d+(x\d+)*(,[\w./-]+:\d+(x\d+)*)*", "names and shapes like x:1x16,y:4")
# OpenVINO's properties of a device: https://docs.openvino.ai, "CPU device".
_OPENVINO_CPU = {
    "INFERENCE_PRECISION_HINT": _one_of("f32", "bf16", "f16"),
    "EXECUTION_MODE_HINT": _one_of("PERFORMANCE", "ACCURACY"),
    "PERFORMANCE_HINT": _one_of("LATENCY", "THROUGHPUT"),
    "NUM_STREAMS": _whole(255),
    "INFERENCE_NUM_THREADS": _THREADS,
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": _INT32,
}
# What `optimization.graph.level` asks for, by ONNX Runtime's name.
GRAPH_LEVELS = {
    -1: "ORT_ENABLE_BASIC",
    0: "ORT_ENABLE_ALL",
    1: "ORT_ENABLE_EXTENDED",
    2: "ORT_DISABLE_ALL",
}
_CONV_SEARCHES = ("EXHAUSTIVE", "HEURISTIC", "DEFAULT")
_EXTENSIONS = ("kNextPowerOfTwo", "kSameAsRequested")

# `parameters` of a model, by where they go. Spellings are Triton's, and ONNX Runtime's with a dot.
_OPTIONS = {
    "precision": _one_of(*CHOICES),
    **_each(_THREADS, "intra_op_thread_count inter_op_thread_count"),
    "execution_mode": _meaning("0 or 1", {"0": "0", "1": "1"}),
    **_each(_SWITCH, "enable_mem_arena enable_mem_pattern"),
    "share_session_between_instances": _meaning(
        "true: all runs of a model share one session", {"true": "1", "1": "1"}
    ),
}
_SESSION_ENTRIES = {
    **_each(
        _SWITCH,
        "session.set_denormal_as_zero session.disable_prepacking session.use_env_allocators "
        "session.use_device_allocator_for_initializers session.intra_op.allow_spinning "
        "session.inter_op.allow_spinning session.force_spinning_stop",
    ),
    "session.dynamic_block_base": _whole(1_024),
    **_each(
        _SWITCH,
        "session.disable_quant_qdq session.disable_double_qdq_remover "
        "session.enable_quant_qdq_cleanup session.disable_aot_function_inlining "
        "optimization.enable_gelu_approximation optimization.enable_cast_chain_elimination",
    ),
}
RUN_ENTRIES = {
    "memory.enable_memory_arena_shrinkage": _like(
        r"[cg]pu:\d{1,3}(;[cg]pu:\d{1,3})*", "arenas like cpu:0 or cpu:0;gpu:0"
    )
}
_CUDA_PARAMETERS = {
    "cudnn_conv_algo_search": _meaning("0, 1 or 2", dict(zip("012", _CONV_SEARCHES, strict=True))),
    "arena_extend_strategy": _meaning("0 or 1", dict(zip("01", _EXTENSIONS, strict=True))),
    "gpu_mem_limit": _BYTES,
    "do_copy_in_default_stream": _SWITCH,
}
PARAMETERS = {**_OPTIONS, **_SESSION_ENTRIES, **RUN_ENTRIES, **_CUDA_PARAMETERS}

# Options of the accelerators. Those that name libraries, files or addresses are left out.
_TENSORRT_RENAMED = {
    "max_workspace_size_bytes": "trt_max_workspace_size",
    "int8_use_native_calibration_table": "trt_int8_use_native_calibration_table",
}
_TENSORRT_PRECISIONS = {
    "FP16": "trt_fp16_enable",
    "BF16": "trt_bf16_enable",
    "INT8": "trt_int8_enable",
}
_TENSORRT = {
    "precision_mode": _one_of("FP32", "FP16", "BF16", "INT8", expected="FP32, FP16, BF16 or INT8"),
    "max_workspace_size_bytes": _BYTES,
    "int8_use_native_calibration_table": _SWITCH,
    **_each(_INT32, "trt_max_partition_iterations trt_min_subgraph_size"),
    "trt_dla_enable": _SWITCH,
    "trt_dla_core": _whole(15),
    "trt_engine_cache_enable": _SWITCH,
    "trt_engine_cache_prefix": _like(r"\w{1,64}", "letters and digits"),
    **_each(
        _SWITCH,
        "trt_timing_cache_enable trt_force_timing_cache trt_force_sequential_engine_build "
        "trt_context_memory_sharing_enable trt_layer_norm_fp32_fallback trt_detailed_build_log "
        "trt_build_heuristics_enable trt_sparsity_enable",
    ),
    "trt_builder_optimization_level": _whole(5),
    "trt_auxiliary_streams": _like(r"-1|0{0,17}([0-9]|1[0-6])", "-1 to 16"),
    **_each(_SHAPES, "trt_profile_min_shapes trt_profile_opt_shapes trt_profile_max_shapes"),
}
_CUDA = {
    "cudnn_conv_algo_search": _one_of(*_CONV_SEARCHES, expected="EXHAUSTIVE, HEURISTIC or DEFAULT"),
    "arena_extend_strategy": _one_of(*_EXTENSIONS, expected="kNextPowerOfTwo or kSameAsRequested"),
    "gpu_mem_limit": _BYTES,
    **_each(
        _SWITCH,
        "do_copy_in_default_stream use_ep_level_unified_stream cudnn_conv_use_max_workspace "
        "cudnn_conv1d_pad_to_nc1d enable_skip_layer_norm_strict_mode fuse_conv_bias prefer_nhwc",
    ),
    "sdpa_kernel": _whole(255),
    **_each(_SWITCH, "tunable_op_enable tunable_op_tuning_enable use_tf32"),
}
_OPENVINO = {
    "precision": _one_of("FP32", "ACCURACY", expected="FP32 or ACCURACY"),
    "load_config": _properties(
        {"CPU": _OPENVINO_CPU},
        f"JSON of at most {MAX_JSON} characters like "
        '{"CPU": {"INFERENCE_PRECISION_HINT": "bf16"}}; of CPU it knows '
        + ", ".join(_OPENVINO_CPU),
    ),
    "num_of_threads": _THREADS,
    "num_streams": _whole(255),
    **_each(_OPENVINO_SWITCH, "enable_qdq_optimizer disable_dynamic_shapes"),
    "model_priority": _one_of(
        "LOW", "MEDIUM", "HIGH", "DEFAULT", expected="LOW, MEDIUM, HIGH or DEFAULT"
    ),
}
_ACCELERATORS: dict[str, dict[str, tuple[str, Mapping[str, Read]]]] = {
    "gpu_execution_accelerator": {
        "tensorrt": ("TensorrtExecutionProvider", _TENSORRT),
        "cuda": ("CUDAExecutionProvider", _CUDA),
    },
    "cpu_execution_accelerator": {"openvino": ("OpenVINOExecutionProvider", _OPENVINO)},
}


def session_tuning(config: ModelConfig) -> SessionTuning:
    """The options of a parsed configuration. Raises `LoadError` naming the wrong field.

    Parameters of other names are not looked at.
    """
    values = {
        name: rule(f"parameter '{name}'", config.parameters[name].string_value)
        for name, rule in PARAMETERS.items()
        if name in config.parameters
    }
    level = config.optimization.graph.level
    if level not in GRAPH_LEVELS:
        raise LoadError(
            f"config.pbtxt: optimization.graph.level is {level}, expected one of "
            f"{sorted(GRAPH_LEVELS)}"
        )
    policy = config.optimization.execution_accelerators
    gpu = _accelerators("gpu_execution_accelerator", policy)
    named = dict(_named(values, _CUDA_PARAMETERS))
    for accelerator in gpu:
        if accelerator.provider == "CUDAExecutionProvider":
            named |= dict(accelerator.options)
    return SessionTuning(
        precision=values.get("precision", ""),
        num_inter_threads=int(values.get("inter_op_thread_count", 0)),
        is_parallel=values.get("execution_mode") == "1",
        has_arena=values.get("enable_mem_arena") != "0",
        has_pattern=values.get("enable_mem_pattern") != "0",
        graph_level=level,
        session_entries=_named(values, _SESSION_ENTRIES),
        run_entries=_named(values, RUN_ENTRIES),
        gpu_accelerators=tuple(a for a in gpu if a.provider != "CUDAExecutionProvider"),
        cuda_options=tuple(named.items()),
        cpu_accelerators=_accelerators("cpu_execution_accelerator", policy),
    )


def _named(values: Mapping[str, str], table: Mapping[str, Read]) -> Pairs:
    return tuple((name, values[name]) for name in table if name in values)


def _accelerators(
    side: str, policy: ModelOptimizationPolicy.ExecutionAccelerators
) -> tuple[Accelerator, ...]:
    path = f"optimization.execution_accelerators.{side}"
    known = _ACCELERATORS[side]
    found: list[Accelerator] = []
    for accelerator in getattr(policy, side):
        if accelerator.name not in known:
            raise LoadError(
                f"config.pbtxt: {path}: unknown Execution Accelerator "
                f"'{accelerator.name[:MAX_SHOWN]}' is requested, expected one of {sorted(known)}"
            )
        provider, rules = known[accelerator.name]
        if any(other.provider == provider for other in found):
            raise LoadError(f"config.pbtxt: {path} has '{accelerator.name}' twice")
        options: dict[str, str] = {}
        for name, value in sorted(accelerator.parameters.items()):
            if name not in rules:
                raise LoadError(
                    f"config.pbtxt: {path}: parameter '{name[:MAX_SHOWN]}' of "
                    f"'{accelerator.name}' is not supported by this server; it knows "
                    f"{', '.join(rules)}"
                )
            read = rules[name](f"{path}: parameter '{name}'", value)
            if name == "precision_mode":
                options |= {_TENSORRT_PRECISIONS[read]: "1"} if read != "FP32" else {}
            else:
                options[_TENSORRT_RENAMED.get(name, name)] = read
        found.append(Accelerator(provider, tuple(options.items())))
    return tuple(found)
