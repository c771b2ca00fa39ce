"""The device of a run, as ONNX Runtime and as PyTorch name it.

docs/cuda.md says what was verified on CUDA.
"""

from dataclasses import replace

import torch

from loadtests.gpu.context import Context
from service.runtime.cpus import available_cpus
from service.runtime.session import SessionOptions, choose_device


def session_options(context: Context, *, is_exact: bool = False) -> SessionOptions:
    """Options for a session on the device of the run; `LoadError` where it cannot be used.

    Exact is float32 as it is: CUDA's sessions would round it to TF32 for its products.
    """
    device = choose_device(context.device)
    options = SessionOptions(device=device, num_threads=available_cpus())
    if is_exact and device == "cuda":
        tuning = replace(options.tuning, cuda_options=(("use_tf32", "0"),))
        return replace(options, tuning=tuning)
    return options


def torch_device(context: Context) -> torch.device:
    """The same for PyTorch, whose float32 is then float32 in all of its products."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    return torch.device(context.device)
