"""ONNX Runtime's options for a model, as `config.pbtxt` says: Triton's parameters and accelerators.

Names and values are checked against tables. Knows nothing of sessions.
docs/how-to/cuda.md says what was verified on CUDA.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tritonclient.grpc.model_config_pb2 import ModelConfig

from service.contract.accelerators import (
    CONV_SEARCHES,
    EXTENSIONS,
    Accelerator,
    Pairs,
    accelerators_of,
)
from service.contract.option_rules import (
    BYTES,
    SWITCH,
    THREADS,
    Read,
    each,
    like,
    meaning,
    one_of,
    whole,
)
from service.contract.precision import CACHE_LAYOUTS, CHOICES, ENCODER_LAYOUTS
from service.errors import LoadError


@dataclass(frozen=True, slots=True)
class SessionTuning:
    """A configuration's options for its session."""

    precision: str = ""  # of the graph that is opened; "" leaves it to the server
    encoder_layout: str = ""  # of the same; "" leaves it to the server
    cache_layout: str = ""  # the same, of a decoder's graph
    cuda_graphs: bool | None = None  # of decoding steps; None leaves it to the server
    allows_cpu_nodes: bool | None = None  # on a GPU; None: those of a graph without a manifest
    num_threads: int | None = None  # within an operator; None leaves it to the server, 0 is all
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


# What `optimization.graph.level` asks for, by ONNX Runtime's name.
GRAPH_LEVELS = {
    -1: "ORT_ENABLE_BASIC",
    0: "ORT_ENABLE_ALL",
    1: "ORT_ENABLE_EXTENDED",
    2: "ORT_DISABLE_ALL",
}
# `parameters` of a model, by where they go. Spellings are Triton's, and ONNX Runtime's with a dot.
_OPTIONS = {
    "precision": one_of(*CHOICES),
    "encoder_layout": one_of(*ENCODER_LAYOUTS),
    "cache_layout": one_of(*CACHE_LAYOUTS),
    "cuda_graphs": SWITCH,
    "allow_cpu_nodes": SWITCH,
    **each(THREADS, "intra_op_thread_count inter_op_thread_count"),
    "execution_mode": meaning("0 or 1", {"0": "0", "1": "1"}),
    **each(SWITCH, "enable_mem_arena enable_mem_pattern"),
    "share_session_between_instances": meaning(
        "true: all runs of a model share one session", {"true": "1", "1": "1"}
    ),
}
_SESSION_ENTRIES = {
    **each(
        SWITCH,
        "session.set_denormal_as_zero session.disable_prepacking session.use_env_allocators "
        "session.use_device_allocator_for_initializers session.intra_op.allow_spinning "
        "session.inter_op.allow_spinning session.force_spinning_stop",
    ),
    "session.dynamic_block_base": whole(1_024),
    **each(
        SWITCH,
        "session.disable_quant_qdq session.disable_double_qdq_remover "
        "session.enable_quant_qdq_cleanup session.disable_aot_function_inlining "
        "optimization.enable_gelu_approximation optimization.enable_cast_chain_elimination",
    ),
}
RUN_ENTRIES = {
    "memory.enable_memory_arena_shrinkage": like(
        r"[cg]pu:\d{1,3}(;[cg]pu:\d{1,3})*", "arenas like cpu:0 or cpu:0;gpu:0"
    )
}
_CUDA_PARAMETERS = {
    "cudnn_conv_algo_search": meaning("0, 1 or 2", dict(zip("012", CONV_SEARCHES, strict=True))),
    "arena_extend_strategy": meaning("0 or 1", dict(zip("01", EXTENSIONS, strict=True))),
    "gpu_mem_limit": BYTES,
    "do_copy_in_default_stream": SWITCH,
}
PARAMETERS = {**_OPTIONS, **_SESSION_ENTRIES, **RUN_ENTRIES, **_CUDA_PARAMETERS}


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
    gpu = accelerators_of("gpu_execution_accelerator", policy)
    named = dict(_named(values, _CUDA_PARAMETERS))
    for accelerator in gpu:
        if accelerator.provider == "CUDAExecutionProvider":
            named |= dict(accelerator.options)
    return SessionTuning(
        precision=values.get("precision", ""),
        encoder_layout=values.get("encoder_layout", ""),
        cache_layout=values.get("cache_layout", ""),
        cuda_graphs=_is_on(values.get("cuda_graphs")),
        allows_cpu_nodes=_is_on(values.get("allow_cpu_nodes")),
        num_threads=int(values["intra_op_thread_count"])
        if "intra_op_thread_count" in values
        else None,
        num_inter_threads=int(values.get("inter_op_thread_count", 0)),
        is_parallel=values.get("execution_mode") == "1",
        has_arena=values.get("enable_mem_arena") != "0",
        has_pattern=values.get("enable_mem_pattern") != "0",
        graph_level=level,
        session_entries=_named(values, _SESSION_ENTRIES),
        run_entries=_named(values, RUN_ENTRIES),
        gpu_accelerators=tuple(a for a in gpu if a.provider != "CUDAExecutionProvider"),
        cuda_options=tuple(named.items()),
        cpu_accelerators=accelerators_of("cpu_execution_accelerator", policy),
    )


def _is_on(value: str | None) -> bool | None:
    return None if value is None else value == "1"


def _named(values: Mapping[str, str], table: Mapping[str, Read]) -> Pairs:
    return tuple((name, values[name]) for name in table if name in values)
