"""The placement of a version: its device, threads, and concurrent runs.

Reads `instance_group` and the parameters of sessions; opens none.
docs/how-to/cuda.md says what was verified on CUDA.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tritonclient.grpc.model_config_pb2 import ModelConfig

from service.contract.config_completion import copy_of
from service.contract.session_tuning import SessionTuning
from service.runtime.cpus import available_cpus
from service.runtime.session import SessionOptions
from service.settings import Settings

ChooseDevice = Callable[[str], str]  # auto, cpu or cuda becomes cpu or cuda, or `LoadError`


@dataclass(frozen=True, slots=True)
class Graphs:
    """Facts of a version's graphs before one is opened."""

    has_manifest: bool = False
    is_generative: bool = False
    can_use_cuda: bool = True  # one of them has the requested precision, and is for CUDA


def place(
    config: ModelConfig,
    settings: Settings,
    choose_device: ChooseDevice,
    tuning: SessionTuning,
    graphs: Graphs,
) -> tuple[ModelConfig, SessionOptions]:
    """The configuration with its instances resolved, and how each of them computes.

    Raises `LoadError` where this machine has no such device.
    """
    config = copy_of(config)
    if not config.instance_group:
        config.instance_group.add()
    num_threads = settings.num_threads if tuning.num_threads is None else tuning.num_threads
    group = config.instance_group[0]  # all are of one kind, in one place
    if group.kind == group.KIND_AUTO:
        device = choose_device(settings.device)
        if settings.device == "auto" and not graphs.can_use_cuda:
            device = "cpu"
    else:
        device = choose_device("cuda" if group.kind == group.KIND_GPU else "cpu")
    for each in config.instance_group:
        each.kind = group.KIND_GPU if device == "cuda" else group.KIND_CPU
        if device == "cuda" and not each.gpus:
            each.gpus.append(0)
        each.count = each.count or (1 if graphs.is_generative else settings.instances)
    allows_cpu_nodes = tuning.allows_cpu_nodes
    if allows_cpu_nodes is None:  # graphs of others may be worth it, ours are made for a device
        allows_cpu_nodes = not graphs.has_manifest
    options = SessionOptions(
        device=device,
        device_id=group.gpus[0] if group.gpus else 0,
        num_threads=num_threads or available_cpus(),
        can_spin=settings.can_spin,
        spin_us=settings.spin_us if device == "cpu" else 0,
        allows_cpu_nodes=allows_cpu_nodes,
        tuning=tuning,
    )
    return config, options
