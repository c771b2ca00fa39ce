"""Which graph of a version runs here: one that this machine computes fast, or the requested one.

Pure: takes the machine and the names of the existing files, and knows neither files nor
sessions. The export decides which precisions are accurate enough to be written, and which device
has kernels for all nodes of a graph. docs/how-to/cuda.md says what was verified on CUDA.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import get_args

from service.contract.manifest import MODEL_FILENAME, GraphDevice, Manifest, Precision, Variant
from service.errors import LoadError

AUTO = "auto"
CHOICES: tuple[str, ...] = (AUTO, *get_args(Precision))
ENCODER_LAYOUTS = (AUTO, "packed", "padded")
CACHE_LAYOUTS = (AUTO, "slots", "paged")
UNNAMED_LAYOUTS = ("packed", "slots")  # of graphs whose file names none
HALF: tuple[Precision, ...] = ("fp16", "bf16")
# With these a processor multiplies int8 faster than float32; without, conversions cost more than
# they gain. x86's and Arm's, by Linux's names.
INT8_PRODUCTS = ("amx_int8", "avx512_vnni", "avx_vnni", "i8mm", "asimddp")


@dataclass(frozen=True, slots=True)
class Choice:
    """A precision, and why it is the one."""

    precision: Precision
    reason: str


def choose_graph(
    manifest: Manifest,
    graphs: Sequence[str],
    requested: str,
    requested_by: str,
    device: str,
    flags: frozenset[str],
) -> tuple[tuple[str, ...], Choice]:
    """Graphs that may serve, by preference, and the precision that they share.

    They differ in layout: an encoder's packed graph is before its padded one, a decoder's paged
    graph before that of slots. `requested_by` names the setting of `requested`, `device` is cpu,
    openvino or cuda, and `flags` are the processor's instruction sets. Raises `LoadError` where no
    graph is for the device, or none in the requested precision.
    """
    assert graphs, "the caller checked that a graph exists"
    place: GraphDevice = "cuda" if device == "cuda" else "cpu"
    main = manifest.graphs[MODEL_FILENAME]
    present = {name: manifest.graphs.get(name, main) for name in graphs}
    fitting = {
        name: graph
        for name, graph in present.items()
        if _runs_on(place, graph, requested, is_generative=manifest.is_generative)
    }
    precisions = [*dict.fromkeys(graph.precision for graph in fitting.values())]
    if not precisions or requested not in (AUTO, *precisions):
        subject = f"{requested_by} asks for precision {requested},"
        if requested == AUTO:
            subject = f"no graph is for {place},"
        raise LoadError(
            f"{subject} there is {_listed(present.values(), manifest)}: "
            f"{_remedy(requested, place, manifest)}"
        )
    choice = choose_precision(precisions, requested, requested_by, device, flags)
    if len(precisions) == 1 and requested == AUTO and len(fitting) < len(present):
        choice = Choice(choice.precision, f"the only one for {place}")
    chosen = [name for name, graph in fitting.items() if graph.precision == choice.precision]
    return tuple(sorted(chosen, key=lambda name: fitting[name].layout != "paged")), choice


def of_layout(manifest: Manifest, graphs: Sequence[str], layout: str) -> tuple[str, ...]:
    """Graphs with this layout; all for `auto`, or where none has it."""
    if layout == AUTO or len(graphs) == 1:
        return tuple(graphs)
    name = "" if layout in UNNAMED_LAYOUTS else layout
    having = tuple(each for each in graphs if manifest.graphs[each].layout == name)
    return having or tuple(graphs)


def has_graph_for(
    place: GraphDevice, manifest: Manifest, graphs: Iterable[str], requested: str
) -> bool:
    """Whether one of `graphs` may serve on a device in the requested precision, or in any."""
    main = manifest.graphs[MODEL_FILENAME]
    present = [manifest.graphs.get(name, main) for name in graphs]
    return any(
        _runs_on(place, graph, requested, is_generative=manifest.is_generative)
        and requested in (AUTO, graph.precision)
        for graph in present
    )


def _runs_on(place: GraphDevice, graph: Variant, requested: str, *, is_generative: bool) -> bool:
    """Whether a graph may serve on the CPU, or on a GPU.

    GroupQueryAttention has no float32 on CUDA. The CPU computes a decoder's fp16, slowly, so it
    takes it only when it is requested by name.
    """
    if place == "cpu" and graph.precision == requested == "fp16" and not graph.layout:
        return True
    return _stated_device(graph, is_generative=is_generative) in ("any", place)


def _stated_device(graph: Variant, *, is_generative: bool) -> GraphDevice:
    """The device of a graph; manifests of earlier exports do not state a decoder's."""
    if graph.device == "any" and is_generative and graph.precision not in HALF:
        return "cpu"
    return graph.device


def _listed(graphs: Iterable[Variant], manifest: Manifest) -> str:
    described = []
    for graph in graphs:
        device = _stated_device(graph, is_generative=manifest.is_generative)
        described.append(graph.kind if device == "any" else f"{graph.kind} (for {device})")
    return ", ".join(described)


def _remedy(requested: str, place: GraphDevice, manifest: Manifest) -> str:
    export = f"`attendant export{_export_flags(requested, place, manifest)}`"
    if place == "cpu":
        is_for_place = requested != "bf16"
    else:
        is_for_place = requested in (AUTO, *HALF) or " --precision" in export
    if is_for_place:
        return f"{export} writes one for {place}"
    return f"{requested} is not for {place}, for which {export} writes others"


def _export_flags(requested: str, place: GraphDevice, manifest: Manifest) -> str:
    """The flags of the export that writes a graph for the device, the requested one if it can."""
    if place == "cpu":
        return "" if requested in ("auto", "bf16") else f" --precision {requested}"
    if requested == "fp32" and not manifest.is_generative:
        return " --precision fp32"
    return " --target cuda" + (" --precision bf16" if requested == "bf16" else "")


def choose_precision(
    present: Sequence[Precision],
    requested: str,
    requested_by: str,
    device: str,
    flags: frozenset[str],
) -> Choice:
    """The requested one of `present`, or with `auto` the fastest.

    The exporter's first choice is the first. The other arguments are those of `choose_graph`.
    """
    assert present, "the caller checked that a graph exists"
    assert requested in (AUTO, *present), "the caller checked that the requested one exists"
    for precision in present:
        if precision == requested:
            return Choice(precision, f"requested by {requested_by}")
    if len(present) == 1:
        return Choice(present[0], "the only one there is")
    exact = next((each for each in present if each == "fp32"), present[0])
    if device == "cuda":
        if "fp16" in present:
            return Choice("fp16", "a GPU computes it fastest")
        if "bf16" in present:
            return Choice("bf16", "there is no fp16 for the GPU")
        return Choice(exact, "there is no fp16 for the GPU")
    if device == "openvino":  # int8 took 3.5 times as long as by ONNX Runtime: decision 0025
        return Choice(exact, "OpenVINO rounds float32 as its load_config says")
    rounded = next((each for each in present if each.startswith("int")), None)
    if rounded is None:
        return Choice(exact, "there is no int8 for the processor")
    fast = next((flag for flag in INT8_PRODUCTS if flag in flags), None)
    if fast is None:
        return Choice(exact, f"the processor has none of {', '.join(INT8_PRODUCTS)}")
    return Choice(rounded, f"the processor has {fast}")


MAX_DRAFT_TOKENS = 31  # beyond that no text was measured to gain
