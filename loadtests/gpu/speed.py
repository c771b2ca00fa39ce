"""Sections 6, 7 and 8: how fast shapes are, what the server adds, and blocks beside slots.

Section 6 measures all shapes beside PyTorch as it is, then, where time is left, beside what it
compiles. Every figure stands beside the machine's own limits. Goals are of our fastest way.
docs/how-to/cuda.md says what was verified on CUDA.
"""

from contextlib import ExitStack
from dataclasses import replace

from loadtests.compare.devices.decoders import DECODERS
from loadtests.compare.devices.encoders import ENCODERS
from loadtests.compare.devices.layouts import LAYOUTS
from loadtests.compare.devices.machine import free_memory
from loadtests.compare.devices.options import Peer, ShapeOptions
from loadtests.compare.devices.shapes import is_encoder
from loadtests.gpu.context import Context
from loadtests.gpu.measuring import measure_within, show_limits
from loadtests.gpu.models import Model, as_they_come, wanted
from loadtests.load.server import serving
from loadtests.measure.batching import BATCHING, BatchingOptions, flags_for, pair
from loadtests.measure.records import Measure, Way, counted
from service.runtime.session import choose_device

TINY_ROUNDS, MAX_ROUNDS = 3, 100
LEAST_COMPILE_S = 45.0  # of what is left, for a network that is compiled
UNCOMPILED_SHARE = 0.6  # of the time, where what is compiled comes behind
# Texts of a request, requests in flight, and texts.
LOADS, TINY_LOADS = (
    ((1, 1, 64), (1, 32, 512), (1, 128, 512), (32, 8, 512)),
    ((1, 1, 24), (1, 8, 24), (4, 2, 24)),
)


def run(context: Context) -> None:
    """Figures of all shapes that there is time for."""
    choose_device(context.device)  # raises the reason where the device cannot be used
    show_limits(context)
    free_memory(context.device)
    context.summarize("Weights are random. Figures are medians with their range, in turns.")
    peers, shapes, done = context.run.peers, wanted(context.run, 6), list[Model]()
    has_compiled = peers == "compiled"
    share = UNCOMPILED_SHARE if has_compiled else 1.0
    for model in as_they_come(context, shapes):
        time_s = context.left_s * share / (len(shapes) - len(done))
        measure(context, model, time_s, "none" if peers == "none" else "eager")
        done.append(model)
    for index, model in enumerate(done if has_compiled else []):
        if context.is_tiny or context.left_s >= LEAST_COMPILE_S:
            measure(context, model, context.left_s / (len(done) - index), "compiled")
        else:
            context.leave_out(f"{model.name} beside what PyTorch compiles: no time was left")


def layouts(context: Context) -> None:
    """The first decoder over both layouts of the cache."""
    if context.device == "cpu":
        context.leave_out("the paged cache: its operator has no kernel for the CPU")
    if model := _first(context, "blocks beside slots: no decoder is there", is_text=True):
        measure(context, model, context.left_s, "none", LAYOUTS)


def server_cost(context: Context) -> None:
    """What the server adds to the bare session of the first encoder, under each load.

    The mean latency of one request in flight, less the bare session's time of a text, is what the
    server adds to a text. Server and clients share this machine's processors.
    """
    model = _first(context, "the server beside its session: no encoder is there", is_text=False)
    if model is None:
        return
    base = BatchingOptions(
        rounds=_rounds(context),
        model=model.name,
        repository=model.repository,
        device=context.device,
    )

    def ways(_: BatchingOptions, stack: ExitStack) -> dict[str, Way]:
        loaded, found = base.opened(), dict[str, Way]()
        server = stack.enter_context(serving(base.repository, flags_for(base, loaded)))
        for texts, in_flight, limit in TINY_LOADS if context.is_tiny else LOADS:
            options = replace(base, per_request=texts, concurrency=in_flight, limit=limit)
            load = f"{counted(texts, 'text')} a request, {in_flight} in flight"
            found |= {f"{load}: {w}": way for w, way in pair(options, loaded, server).items()}
        return found

    measure_within(context, replace(BATCHING, ways=ways), base, context.left_s, "server")


def measure(
    context: Context, model: Model, time_s: float, peer: Peer, record: Measure | None = None
) -> None:
    """The figures of one shape; where that fails, a claim that says so."""
    options = ShapeOptions(
        rounds=_rounds(context),
        shape=model.name,
        repository=model.repository,
        device=context.device,
        peer=peer,
    )
    record = record or (ENCODERS if is_encoder(model.name) else DECODERS)
    name = " ".join((record.name, model.name, *([peer] if peer != "none" else [])))
    try:
        measure_within(context, record, options, time_s, name)
    except Exception as error:  # of any library: other shapes are measured all the same
        context.check(f"{name} is timed", False, f"{type(error).__name__}: {str(error)[:500]}")
    finally:
        free_memory(context.device)


def _first(context: Context, missing: str, *, is_text: bool) -> Model | None:
    """The first of the run's shapes that continues texts, or does not, once it is there."""
    models = [each for each in wanted(context.run, 6) if is_encoder(each.kind) != is_text]
    model = next(as_they_come(context, models[:1]), None)
    if model is None:
        context.leave_out(missing)
    return model


def _rounds(context: Context) -> int:
    return TINY_ROUNDS if context.is_tiny else MAX_ROUNDS
