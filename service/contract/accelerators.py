"""Execution accelerators that `config.pbtxt` may ask for, and the options of each.

Options that name libraries, files or addresses are left out. docs/how-to/cuda.md says what was
verified on CUDA.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tritonclient.grpc.model_config_pb2 import ModelOptimizationPolicy

from service.contract.option_rules import (
    BYTES,
    INT32,
    MAX_JSON,
    MAX_SHOWN,
    SWITCH,
    THREADS,
    WORD_SWITCH,
    Read,
    each,
    like,
    one_of,
    properties,
    whole,
)
from service.errors import LoadError

CONV_SEARCHES = ("EXHAUSTIVE", "HEURISTIC", "DEFAULT")
EXTENSIONS = ("kNextPowerOfTwo", "kSameAsRequested")
Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Accelerator:
    """An execution provider by ONNX Runtime's name, with its options."""

    provider: str
    options: Pairs = ()


_SHAPES = like(r"[\w./-]+:\d+(x\d+)*(,[\w./-]+:\d+(x\d+)*)*", "names and shapes like x:1x16,y:4")
# OpenVINO's properties of a device: https://docs.openvino.ai, "CPU device".
_OPENVINO_CPU = {
    "INFERENCE_PRECISION_HINT": one_of("f32", "bf16", "f16"),
    "EXECUTION_MODE_HINT": one_of("PERFORMANCE", "ACCURACY"),
    "PERFORMANCE_HINT": one_of("LATENCY", "THROUGHPUT"),
    "NUM_STREAMS": whole(255),
    "INFERENCE_NUM_THREADS": THREADS,
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": INT32,
}
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
    "precision_mode": one_of("FP32", "FP16", "BF16", "INT8", expected="FP32, FP16, BF16 or INT8"),
    "max_workspace_size_bytes": BYTES,
    "int8_use_native_calibration_table": SWITCH,
    **each(INT32, "trt_max_partition_iterations trt_min_subgraph_size"),
    "trt_dla_enable": SWITCH,
    "trt_dla_core": whole(15),
    "trt_engine_cache_enable": SWITCH,
    "trt_engine_cache_prefix": like(r"\w{1,64}", "letters and digits"),
    **each(
        SWITCH,
        "trt_timing_cache_enable trt_force_timing_cache trt_force_sequential_engine_build "
        "trt_context_memory_sharing_enable trt_layer_norm_fp32_fallback trt_detailed_build_log "
        "trt_build_heuristics_enable trt_sparsity_enable",
    ),
    "trt_builder_optimization_level": whole(5),
    "trt_auxiliary_streams": like(r"-1|0{0,17}([0-9]|1[0-6])", "-1 to 16"),
    **each(_SHAPES, "trt_profile_min_shapes trt_profile_opt_shapes trt_profile_max_shapes"),
}
_CUDA = {
    "cudnn_conv_algo_search": one_of(*CONV_SEARCHES, expected="EXHAUSTIVE, HEURISTIC or DEFAULT"),
    "arena_extend_strategy": one_of(*EXTENSIONS, expected="kNextPowerOfTwo or kSameAsRequested"),
    "gpu_mem_limit": BYTES,
    **each(
        SWITCH,
        "do_copy_in_default_stream use_ep_level_unified_stream cudnn_conv_use_max_workspace "
        "cudnn_conv1d_pad_to_nc1d enable_skip_layer_norm_strict_mode fuse_conv_bias prefer_nhwc",
    ),
    "sdpa_kernel": whole(255),
    **each(SWITCH, "tunable_op_enable tunable_op_tuning_enable use_tf32"),
}
_OPENVINO = {
    "precision": one_of("FP32", "ACCURACY", expected="FP32 or ACCURACY"),
    "load_config": properties(
        {"CPU": _OPENVINO_CPU},
        f"JSON of at most {MAX_JSON} characters like "
        '{"CPU": {"INFERENCE_PRECISION_HINT": "bf16"}}; of CPU it knows '
        + ", ".join(_OPENVINO_CPU),
    ),
    "num_of_threads": THREADS,
    "num_streams": whole(255),
    **each(WORD_SWITCH, "enable_qdq_optimizer disable_dynamic_shapes"),
    "model_priority": one_of(
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


def accelerators_of(
    side: str, policy: ModelOptimizationPolicy.ExecutionAccelerators
) -> tuple[Accelerator, ...]:
    """Accelerators of one side, of gpu_ or cpu_execution_accelerator, or `LoadError`."""
    path = f"optimization.execution_accelerators.{side}"
    known = _ACCELERATORS[side]
    accelerators: list[Accelerator] = []
    for accelerator in getattr(policy, side):
        if accelerator.name not in known:
            raise LoadError(
                f"config.pbtxt: {path}: unknown Execution Accelerator "
                f"'{accelerator.name[:MAX_SHOWN]}' is requested, expected one of {sorted(known)}"
            )
        provider, rules = known[accelerator.name]
        if any(other.provider == provider for other in accelerators):
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
        accelerators.append(Accelerator(provider, tuple(options.items())))
    return tuple(accelerators)
