"""Section 1, the gate: the GPU, its driver, libraries, and whether a session runs on the device.

Nothing is fatal where it is missing but the device itself: a machine without `nvidia-smi` has a
report too. Where no session runs, the record has a diagnosis. docs/how-to/cuda.md says what was
verified on CUDA.
"""

import importlib.metadata
import os
import shutil
import subprocess

import numpy as np
from onnx import TensorProto, helper

from loadtests.gpu.context import Context
from loadtests.gpu.sources import digest_of
from loadtests.load.machine import machine
from service import __version__
from service.errors import LoadError, ModelFailed
from service.runtime.session import (
    CUDA_PROVIDER,
    OnnxSession,
    SessionOptions,
    choose_device,
    load_onnxruntime,
)

PACKAGES = (
    *("onnxruntime", "onnxruntime-gpu", "torch", "transformers", "tokenizers", "onnx"),
    *("onnxscript", "numpy", "grpcio", "protobuf", "tritonclient", "triton"),
)
QUERIED = (
    *("name", "driver_version", "memory.total", "memory.used", "compute_cap", "clocks.max.sm"),
    *("clocks.max.mem", "power.limit", "temperature.gpu", "mig.mode.current", "utilization.gpu"),
)
SMI_LIMIT_S = 30.0


def run(context: Context) -> None:
    """What the machine has; its check fails where the device cannot be used."""
    ort, facts = load_onnxruntime(), machine()
    providers, versions = ort.get_available_providers(), installed_versions()
    with context.parts.timed("session"):
        problem = session_problem(context.device)
    if context.device == "cuda":
        context.check("ONNX Runtime has CUDA", CUDA_PROVIDER in providers, ", ".join(providers))
        _torch(context)
        context.findings["nvidia_smi"] = smi = read_nvidia_smi()
        context.summarize("nvidia-smi: " + (", ".join(f"{k} {v}" for k, v in smi.items()) or "-"))
    context.check(f"a session runs on {context.device}", not problem, problem)
    if problem:
        _diagnose(context)
    context.findings |= {"machine": facts, "versions": versions}
    libraries = ", ".join(f"{name} {version}" for name, version in versions.items())
    has = f"{facts['cpu']}, {facts['cores']} cores, {facts['memory_gib']} GiB, {facts['system']}"
    context.summarize(f"Processor: {has}.")
    context.summarize(f"Attendant {__version__}, from sources with the digest {digest_of()}.")
    context.summarize(f"Python {facts['python']}, {libraries}.")
    context.summarize(f"ONNX Runtime {ort.__version__} offers {', '.join(providers)}.")


def session_problem(device: str) -> str:
    """Why the server's own session cannot run a graph of one node there; empty if it can."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "twice", [x], [y])
    opset = [helper.make_opsetid("", 23)]
    content = helper.make_model(graph, opset_imports=opset, ir_version=10).SerializeToString()
    values = np.arange(4, dtype=np.float32)
    try:
        options = SessionOptions(device=choose_device(device))
        (twice,) = OnnxSession(content, options).run({"x": values}, ["y"])
    except (LoadError, ModelFailed) as error:
        return str(error)
    return "" if np.array_equal(twice, 2 * values) else f"2 x {values} is {twice}"


def installed_versions() -> dict[str, str]:
    """The versions of the packages that are there, and of all of NVIDIA's."""
    names = {
        str(each.metadata["Name"] or "").lower(): each.version
        for each in importlib.metadata.distributions()
    }
    kept = sorted(name for name in names if name in PACKAGES or name.startswith("nvidia-"))
    return {name: names[name] for name in kept}


def read_nvidia_smi() -> dict[str, str]:
    """What `nvidia-smi` says of the first GPU; empty where it is absent or fails."""
    path = shutil.which("nvidia-smi")
    if path is None:
        return {}
    command = [path, f"--query-gpu={','.join(QUERIED)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(  # noqa: S603 - the driver's own program
            command, capture_output=True, text=True, timeout=SMI_LIMIT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    values = [value.strip() for value in done.stdout.splitlines()[0].split(",")]
    return dict(zip(QUERIED, values, strict=False))


def _torch(context: Context) -> None:
    """What PyTorch says of the GPU."""
    import torch

    is_there = torch.cuda.is_available()
    context.check("PyTorch can use the GPU", is_there)
    if is_there:
        properties = torch.cuda.get_device_properties(0)
        free, total = (num_bytes / 2**30 for num_bytes in torch.cuda.mem_get_info())
        versions = f"CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}"  # type: ignore[no-untyped-call]
        context.summarize(
            f"GPU: {properties.name}, compute capability {properties.major}.{properties.minor}, "
            f"{properties.multi_processor_count} multiprocessors, {free:.1f} GiB of {total:.1f} "
            f"free, {versions}."
        )


def _diagnose(context: Context) -> None:
    """Where ONNX Runtime is, and which of its CUDA provider's libraries are missing."""
    folder = os.path.dirname(load_onnxruntime().__file__)
    library = os.path.join(folder, "capi", "libonnxruntime_providers_cuda.so")
    is_there = os.path.exists(library)
    context.summarize(f"Diagnosis: onnxruntime: {folder}.")
    context.summarize(f"Diagnosis: LD_LIBRARY_PATH: {os.environ.get('LD_LIBRARY_PATH', '')}.")
    said = library if is_there else "is not there"
    context.summarize(f"Diagnosis: the CUDA provider's library: {said}.")
    if is_there and (path := shutil.which("ldd")):
        done = subprocess.run([path, library], capture_output=True, text=True, check=False)  # noqa: S603
        missing = [line.split()[0] for line in done.stdout.splitlines() if "not found" in line]
        named = ", ".join(missing) or "none"
        context.summarize(f"Diagnosis: libraries that it needs and that are missing: {named}.")
