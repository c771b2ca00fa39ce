"""How ONNX Runtime computes a model, as `config.pbtxt` says: Triton's parameters and accelerators.

Names and values are checked against the tables below, so that a file can neither ask for what has
no effect, nor have code loaded or files written anywhere. Knows nothing of sessions.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelOptimizationPolicy

from service.errors import LoadError
from service.precision import CHOICES

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
    """What a configuration says of its session."""

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


@dataclass(frozen=True, slots=True)
class _Rule:
    """Which values a name may have, and what ONNX Runtime calls them."""

    expected: str
    meanings: Mapping[str, str] = field(default_factory=dict)  # by what a file says, in lower case
    high: int = 0  # whole numbers up to this are as they are
    pattern: str = ""  # and so is what matches

    def read(self, path: str, value: str) -> str:
        """What to tell ONNX Runtime, or `LoadError` naming the field."""
        if value.lower() in self.meanings:
            return self.meanings[value.lower()]
        is_short_number = value.isascii() and value.isdecimal() and len(value) <= len(str(2**63))
        if is_short_number and self.high and int(value) <= self.high:
            return value
        if self.pattern and re.fullmatch(self.pattern, value):
            return value
        raise LoadError(f"config.pbtxt: {path} is '{value[:MAX_SHOWN]}', expected {self.expected}")


@dataclass(frozen=True, slots=True)
class _Properties(_Rule):
    """A JSON object of devices' properties: `{"CPU": {"NUM_STREAMS": "2"}}`.

    OpenVINO would take a file's path in its place, and properties that name libraries and folders.
    """

    devices: Mapping[str, Mapping[str, _Rule]] = field(default_factory=dict)

    def read(self, path: str, value: str) -> str:
        """The object written anew: nothing passes that was not looked at."""
        refusal = LoadError(
            f"config.pbtxt: {path} is '{value[:MAX_SHOWN]}', expected {self.expected}"
        )
        try:
            found = json.loads(value) if len(value) <= MAX_JSON else None
        except (ValueError, RecursionError) as error:
            raise refusal from error
        if not isinstance(found, dict):
            raise refusal
        read: dict[str, dict[str, str]] = {}
        for device, properties in found.items():
            rules = self.devices.get(device)
            if rules is None or not isinstance(properties, dict):
                raise refusal
            for name, given in properties.items():
                if name not in rules or not isinstance(given, str | int):
                    raise refusal
                inner = rules[name].read(f"{path}: {device}.{name}", str(given))
                read.setdefault(device, {})[name] = inner
        return json.dumps(read, sort_keys=True)


def _whole(high: int) -> _Rule:
    return _Rule(f"a whole number of at most {high}", high=high)


_SWITCH = _Rule("0, 1, false or true", {"0": "0", "1": "1", "false": "0", "true": "1"})
_OPENVINO_SWITCH = _Rule(
    _SWITCH.expected,
    {said: ("false", "true")[int(value)] for said, value in _SWITCH.meanings.items()},
)
_THREADS = _whole(MAX_THREADS)
_BYTES = _whole(2**63 - 1)


def _one_of(*names: str) -> _Rule:
    return _Rule(f"one of {', '.join(names)}", {name.lower(): name for name in names})


# What OpenVINO may be told of a device: https://docs.openvino.ai, "CPU device", its properties.
_OPENVINO_CPU = {
    "INFERENCE_PRECISION_HINT": _one_of("f32", "bf16", "f16"),
    "EXECUTION_MODE_HINT": _one_of("PERFORMANCE", "ACCURACY"),
    "PERFORMANCE_HINT": _one_of("LATENCY", "THROUGHPUT"),
    "NUM_STREAMS": _whole(255),
    "INFERENCE_NUM_THREADS": _THREADS,
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": _whole(2**31 - 1),
}
_OPENVINO_CONFIG = _Properties(
    f"JSON of at most {MAX_JSON} characters like "
    '{"CPU": {"INFERENCE_PRECISION_HINT": "bf16"}}; of CPU it knows ' + ", ".join(_OPENVINO_CPU),
    devices={"CPU": _OPENVINO_CPU},
)
_SHAPES = _Rule(
    "names and shapes like x:1x16,y:4", pattern=r"[\w./-]+:\d+(x\d+)*(,[\w./-]+:\d+(x\d+)*)*"
)

# What `optimization.graph.level` asks for, by ONNX Runtime's name.
GRAPH_LEVELS = {
    -1: "ORT_ENABLE_BASIC",
    0: "ORT_ENABLE_ALL",
    1: "ORT_ENABLE_EXTENDED",
    2: "ORT_DISABLE_ALL",
}
_CONV_SEARCH = _Rule("0, 1 or 2", {"0": "EXHAUSTIVE", "1": "HEURISTIC", "2": "DEFAULT"})
_EXTENSION = _Rule("0 or 1", {"0": "kNextPowerOfTwo", "1": "kSameAsRequested"})
_SHRINKAGE = _Rule("arenas like cpu:0 or cpu:0;gpu:0", pattern=r"[cg]pu:\d{1,3}(;[cg]pu:\d{1,3})*")

# `parameters` of a model, by where they go. Spellings are Triton's, and ONNX Runtime's with a dot.
_OPTIONS = {
    "precision": _Rule(f"one of {', '.join(CHOICES)}", {name: name for name in CHOICES}),
    "intra_op_thread_count": _THREADS,
    "inter_op_thread_count": _THREADS,
    "execution_mode": _Rule("0 or 1", {"0": "0", "1": "1"}),
    "enable_mem_arena": _SWITCH,
    "enable_mem_pattern": _SWITCH,
    "share_session_between_instances": _Rule(
        "true: all runs of a model share one session", {"true": "1", "1": "1"}
    ),
}
_SESSION_ENTRIES = {
    "session.set_denormal_as_zero": _SWITCH,
    "session.disable_prepacking": _SWITCH,
    "session.use_env_allocators": _SWITCH,
    "session.use_device_allocator_for_initializers": _SWITCH,
    "session.intra_op.allow_spinning": _SWITCH,
    "session.inter_op.allow_spinning": _SWITCH,
    "session.force_spinning_stop": _SWITCH,
    "session.dynamic_block_base": _whole(1_024),
    "session.disable_quant_qdq": _SWITCH,
    "session.disable_double_qdq_remover": _SWITCH,
    "session.enable_quant_qdq_cleanup": _SWITCH,
    "session.disable_aot_function_inlining": _SWITCH,
    "optimization.enable_gelu_approximation": _SWITCH,
    "optimization.enable_cast_chain_elimination": _SWITCH,
}
RUN_ENTRIES = {"memory.enable_memory_arena_shrinkage": _SHRINKAGE}
_CUDA_PARAMETERS = {
    "cudnn_conv_algo_search": _CONV_SEARCH,
    "arena_extend_strategy": _EXTENSION,
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
_ACCELERATORS: dict[str, dict[str, tuple[str, dict[str, _Rule]]]] = {
    "gpu_execution_accelerator": {
        "tensorrt": (
            "TensorrtExecutionProvider",
            {
                "precision_mode": _Rule(
                    "FP32, FP16, BF16 or INT8",
                    {name.lower(): name for name in ("FP32", *_TENSORRT_PRECISIONS)},
                ),
                "max_workspace_size_bytes": _BYTES,
                "int8_use_native_calibration_table": _SWITCH,
                "trt_max_partition_iterations": _whole(2**31 - 1),
                "trt_min_subgraph_size": _whole(2**31 - 1),
                "trt_dla_enable": _SWITCH,
                "trt_dla_core": _whole(15),
                "trt_engine_cache_enable": _SWITCH,
                "trt_engine_cache_prefix": _Rule("letters and digits", pattern=r"\w{1,64}"),
                "trt_timing_cache_enable": _SWITCH,
                "trt_force_timing_cache": _SWITCH,
                "trt_force_sequential_engine_build": _SWITCH,
                "trt_context_memory_sharing_enable": _SWITCH,
                "trt_layer_norm_fp32_fallback": _SWITCH,
                "trt_detailed_build_log": _SWITCH,
                "trt_build_heuristics_enable": _SWITCH,
                "trt_sparsity_enable": _SWITCH,
                "trt_builder_optimization_level": _whole(5),
                "trt_auxiliary_streams": _Rule("-1 to 16", {"-1": "-1"}, high=16),
                "trt_profile_min_shapes": _SHAPES,
                "trt_profile_opt_shapes": _SHAPES,
                "trt_profile_max_shapes": _SHAPES,
            },
        ),
        "cuda": (
            "CUDAExecutionProvider",
            {
                "cudnn_conv_algo_search": _Rule(
                    "EXHAUSTIVE, HEURISTIC or DEFAULT",
                    {value.lower(): value for value in _CONV_SEARCH.meanings.values()},
                ),
                "arena_extend_strategy": _Rule(
                    "kNextPowerOfTwo or kSameAsRequested",
                    {value.lower(): value for value in _EXTENSION.meanings.values()},
                ),
                "gpu_mem_limit": _BYTES,
                "do_copy_in_default_stream": _SWITCH,
                "use_ep_level_unified_stream": _SWITCH,
                "cudnn_conv_use_max_workspace": _SWITCH,
                "cudnn_conv1d_pad_to_nc1d": _SWITCH,
                "enable_skip_layer_norm_strict_mode": _SWITCH,
                "fuse_conv_bias": _SWITCH,
                "prefer_nhwc": _SWITCH,
                "sdpa_kernel": _whole(255),
                "tunable_op_enable": _SWITCH,
                "tunable_op_tuning_enable": _SWITCH,
                "use_tf32": _SWITCH,
            },
        ),
    },
    "cpu_execution_accelerator": {
        "openvino": (
            "OpenVINOExecutionProvider",
            {
                "precision": _Rule(
                    "FP32 or ACCURACY", {name.lower(): name for name in ("FP32", "ACCURACY")}
                ),
                "load_config": _OPENVINO_CONFIG,
                "num_of_threads": _THREADS,
                "num_streams": _whole(255),
                "enable_qdq_optimizer": _OPENVINO_SWITCH,
                "disable_dynamic_shapes": _OPENVINO_SWITCH,
                "model_priority": _Rule(
                    "LOW, MEDIUM, HIGH or DEFAULT",
                    {name.lower(): name for name in ("LOW", "MEDIUM", "HIGH", "DEFAULT")},
                ),
            },
        ),
    },
}


def session_tuning(config: ModelConfig) -> SessionTuning:
    """What a parsed configuration asks for, or `LoadError` naming the field that is wrong.

    Parameters of other names are not looked at.
    """
    values = {
        name: rule.read(f"parameter '{name}'", config.parameters[name].string_value)
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


def _named(values: Mapping[str, str], table: Mapping[str, _Rule]) -> Pairs:
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
            read = rules[name].read(f"{path}: parameter '{name}'", value)
            if name == "precision_mode":
                options |= {_TENSORRT_PRECISIONS[read]: "1"} if read != "FP32" else {}
            else:
                options[_TENSORRT_RENAMED.get(name, name)] = read
        found.append(Accelerator(provider, tuple(options.items())))
    return tuple(found)
