"""Section 1: the GPU, its driver, libraries, and the versions of what runs.

Nothing here is fatal where it is missing but the device itself: a machine without `nvidia-smi`
has a report too. docs/cuda.md says what was verified on CUDA.
"""

import importlib.metadata
import platform
import shutil
import subprocess
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from loadtests.gpu.claims import Claim, is_true
from loadtests.gpu.context import Context, Findings
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
    *("onnxscript", "numpy", "grpcio", "protobuf", "tritonclient", "triton", "matplotlib"),
)
QUERIED = (
    *("name", "driver_version", "memory.total", "memory.used", "compute_cap"),
    *("clocks.max.sm", "clocks.max.mem", "clocks.sm", "power.limit", "temperature.gpu"),
    *("mig.mode.current", "utilization.gpu"),
)
SMI_LIMIT_S = 30.0


def run(context: Context) -> Findings:
    """What the machine has; the section fails where the device cannot be used at all."""
    ort = load_onnxruntime()
    providers = ort.get_available_providers()
    versions = installed_versions()
    facts: dict[str, Any] = {
        "machine": machine(),
        "versions": versions,
        "providers": providers,
        "onnxruntime": ort.__version__,
    }
    problem = session_problem(context.device)
    claims = [is_true(f"a session runs on {context.device}", not problem, problem)]
    summary = [_processor(facts["machine"])]
    if context.device == "cuda":
        facts |= {"nvidia_smi": read_nvidia_smi(), "torch": _torch_facts()}
        claims = [*_claims(facts), *claims]
        summary = [*_device(facts), *summary]
    libraries = ", ".join(f"{name} {version}" for name, version in versions.items())
    summary.append(f"Attendant {__version__}, from sources with the digest {digest_of()}.")
    summary.append(f"Python {platform.python_version()}, {libraries}.")
    summary.append(f"ONNX Runtime {ort.__version__} offers {', '.join(providers)}.")
    return {"summary": summary, "claims": claims, **facts}


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
    found = {}
    for distribution in importlib.metadata.distributions():
        name = str(distribution.metadata["Name"] or "").lower()
        if name in PACKAGES or name.startswith("nvidia-"):
            found[name] = distribution.version
    return dict(sorted(found.items()))


def read_nvidia_smi(fields: tuple[str, ...] = QUERIED) -> dict[str, str]:
    """What `nvidia-smi` says of the first GPU; empty where it is absent or fails."""
    path = shutil.which("nvidia-smi")
    if path is None:
        return {}
    command = [path, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(  # noqa: S603 - the driver's own program
            command, capture_output=True, text=True, timeout=SMI_LIMIT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    values = [value.strip() for value in done.stdout.splitlines()[0].split(",")]
    return dict(zip(fields, values, strict=False))


def _torch_facts() -> dict[str, Any]:
    import torch

    if not torch.cuda.is_available():
        return {"available": False}
    properties = torch.cuda.get_device_properties(0)
    free, total = torch.cuda.mem_get_info()
    return {
        "available": True,
        "name": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "processors": properties.multi_processor_count,
        "memory_gib": round(total / 2**30, 1),
        "free_gib": round(free / 2**30, 1),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
    }


def _claims(facts: dict[str, Any]) -> list[Claim]:
    has_provider = CUDA_PROVIDER in facts["providers"]
    return [
        is_true("ONNX Runtime is a build with CUDA", has_provider, ", ".join(facts["providers"])),
        is_true("PyTorch can use the GPU", facts["torch"]["available"]),
    ]


def _device(facts: dict[str, Any]) -> list[str]:
    torch_facts, smi = facts["torch"], facts["nvidia_smi"]
    if not torch_facts["available"]:
        return ["PyTorch sees no GPU."]
    driver = f", driver {smi['driver_version']}" if "driver_version" in smi else ""
    return [
        f"GPU: {torch_facts['name']}, compute capability {torch_facts['capability']}, "
        f"{torch_facts['processors']} multiprocessors, {torch_facts['memory_gib']} GiB of which "
        f"{torch_facts['free_gib']} were free{driver}, CUDA {torch_facts['cuda']}, "
        f"cuDNN {torch_facts['cudnn']}.",
        *(
            [
                f"Clocks may reach {smi['clocks.max.sm']} MHz (memory "
                f"{smi['clocks.max.mem']} MHz), the power limit is {smi['power.limit']} W."
            ]
            if "power.limit" in smi
            else []
        ),
    ]


def _processor(facts: dict[str, Any]) -> str:
    return (
        f"Processor: {facts['cpu']}, {facts['cores']} cores, {facts['memory_gib']} GiB, "
        f"{facts['system']}."
    )
