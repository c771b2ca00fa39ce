"""Which graph of a version runs here: one that this machine computes fast, or the requested one.

Pure: takes the machine and the names of the existing files, and knows neither files nor
sessions. The export decides which precisions are accurate enough to be written.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from service.contract.manifest import Manifest, Precision
from service.errors import LoadError

AUTO = "auto"
CHOICES: tuple[str, ...] = (AUTO, *get_args(Precision))
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
) -> tuple[str, Choice]:
    """The one of `graphs` with the precision that `choose_precision` gives, and that choice."""
    precision_of = {filename: precision for precision, filename in manifest.filenames.items()}
    precisions = [precision_of.get(filename, manifest.precision) for filename in graphs]
    choice = choose_precision(precisions, requested, requested_by, device, flags)
    return graphs[precisions.index(choice.precision)], choice


def choose_precision(
    present: Sequence[Precision],
    requested: str,
    requested_by: str,
    device: str,
    flags: frozenset[str],
) -> Choice:
    """One of `present`, the exporter's first choice first.

    `requested_by` names the setting of `requested`, `device` is cpu, openvino or cuda, and `flags`
    are the processor's instruction sets. Raises `LoadError` if the requested one is missing.
    """
    assert present, "the caller checked that a graph exists"
    for precision in present:
        if precision == requested:
            return Choice(precision, f"requested by {requested_by}")
    if requested != AUTO:
        raise LoadError(
            f"{requested_by} asks for precision {requested}, there is {', '.join(present)}"
        )
    if len(present) == 1:
        return Choice(present[0], "the only one there is")
    exact = next((each for each in present if each == "fp32"), present[0])
    if device == "cuda":
        if "fp16" in present:
            return Choice("fp16", "a GPU computes it fastest")
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
