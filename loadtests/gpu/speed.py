"""Section 6: how fast encoders and decoders are, beside PyTorch and transformers.

First all shapes beside PyTorch as it is, then, where time is left, beside what it compiles. Every
figure stands beside the machine's own limits. Goals are of our fastest way. The loads are in
`encoders.py` and `decoders.py`, what work costs at least in `counts.py`. docs/how-to/cuda.md says
what was verified on CUDA.
"""

from loadtests.gpu import decoders, encoders
from loadtests.gpu.context import Context
from loadtests.gpu.models import SHAPES, TOO_LARGE, Model, as_they_come, models_of
from loadtests.gpu.timing import MachineLimits, free_memory, measured_limits
from models.networks.encoder import EncoderConfig
from service.runtime.session import choose_device

LEAST_COMPILE_S = 45.0  # of what is left, for a network that is compiled
UNCOMPILED_SHARE = 0.6  # of the time, where what is compiled comes behind


def run(context: Context) -> None:
    """Figures of all shapes that there is time for."""
    choose_device(context.device)  # raises the reason where the device cannot be used
    precisions = ["fp32", "bf16"] if context.device == "cpu" else ["fp16", "bf16"]
    limits = measured_limits(context, precisions)
    context.summarize("Weights are random. Figures are medians with quartiles, in turns.")
    wanted = models_of(context.run, *[(shape, "") for shape in context.run.shapes])
    has_compiled = context.run.peers == "compiled"
    share = UNCOMPILED_SHARE if has_compiled else 1.0
    done: list[Model] = []
    for model in as_they_come(context, wanted):
        time_s = context.until(share / (len(wanted) - len(done)))
        measure(context, model, limits, time_s, is_compiled=False)
        done.append(model)
    for index, model in enumerate(done if has_compiled else []):
        if context.is_tiny or context.left_s >= LEAST_COMPILE_S:
            time_s = context.until(1 / (len(done) - index))
            measure(context, model, limits, time_s, is_compiled=True)
        else:
            context.leave_out(f"{model.name} beside what PyTorch compiles: no time was left")
    if not context.is_tiny:
        context.leave_out(TOO_LARGE)


def measure(
    context: Context, model: Model, limits: MachineLimits, time_s: float, *, is_compiled: bool
) -> None:
    """The rows of one shape; where that fails, a claim that says so."""
    module = encoders if isinstance(SHAPES[model.name], EncoderConfig) else decoders
    try:
        module.measure(context, model, limits, time_s, is_compiled=is_compiled)
    except Exception as error:  # of any library: other shapes are measured all the same
        said = f"{type(error).__name__}: {str(error)[:500]}"
        if is_compiled:  # ours were timed before
            context.leave_out(f"{model.name} beside what is compiled: {said}")
        else:
            context.check(f"{model.name} is timed", False, said)
    finally:
        free_memory(context.device)
    context.say(f"{model.name} was measured")
