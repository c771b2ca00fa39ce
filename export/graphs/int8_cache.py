"""A decoder whose cache holds keys and values in int8: a quarter of the memory, and of the reading.

Each value is rounded to its channel's scale, which is constant: what a channel held at most in
sample texts stands for 127, and what is larger is cut off. The operator reads and writes the cache
as it is (`k_scale`, `v_scale`, `kv_cache_bit_width`), so the rest of the graph stays. Keys
have a few channels that are always large, hence a scale for each (Liu et al. 2024, KIVI). Keys that
are rotated are rounded behind the rotation, as the operator has them in the cache.

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

# ruff: noqa: N806 - suffixes are array layouts: H heads, S tokens, Dh head size

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from export.graphs.cached_decoder import OPERATOR
from export.graphs.files import copy_of

MAX_STEP = 127  # of a rounded value, on both sides of zero
LEAST = 1e-6  # of a channel that sample texts leave at zero: a scale is no zero
FIRST_SCALE = 12  # where the operator's inputs `k_scale` and, next, `v_scale` are
KIND = "PER_CHANNEL"
Largest = dict[str, np.ndarray]  # float64 [H, Dh], by the name of a cache that the graph gives


def scales_of(largest: Largest) -> dict[str, np.ndarray]:
    """The value of one step of an int8, float32 [H, Dh]."""
    return {
        name: (np.maximum(values_HDh, LEAST) / MAX_STEP).astype(np.float32)
        for name, values_HDh in largest.items()
    }


def at_all_places(largest: Largest, turned: Sequence[np.ndarray]) -> Largest:
    """Bounds for keys at places where no sample was.

    `turned` has of each layer, for each channel [Dh], the one that the rotation turns it into: the
    two values of such a pair have a length, which stays. A channel that is not turned has itself.
    """
    lifted = dict(largest)
    for layer, partners_Dh in enumerate(turned):
        name = f"present.{layer}.key"
        values_HDh, is_turned_Dh = largest[name], partners_Dh != np.arange(len(partners_Dh))
        length_HDh = np.hypot(values_HDh, values_HDh[:, partners_Dh])
        lifted[name] = np.where(is_turned_Dh, length_HDh, values_HDh)
    return lifted


def with_int8_cache(model: onnx.ModelProto, largest: Largest) -> onnx.ModelProto:
    """A copy of `model` that takes and gives its cache in int8."""
    copied, scales = copy_of(model), scales_of(largest)
    graph = copied.graph
    for node in graph.node:
        if node.op_type != OPERATOR:
            continue
        node.input.extend([""] * (FIRST_SCALE - len(node.input)))
        for cache in node.output[1:3]:
            scale_1H1Dh = scales[cache][None, :, None, :]
            graph.initializer.append(numpy_helper.from_array(scale_1H1Dh, f"{cache}.scale"))
            node.input.append(f"{cache}.scale")
        settings = {"k_quant_type": KIND, "v_quant_type": KIND, "kv_cache_bit_width": 8}
        node.attribute.extend(helper.make_attribute(*setting) for setting in settings.items())
    for end in (*graph.input, *graph.output):
        if end.name.startswith(("past_key_values.", "present.")):
            end.type.tensor_type.elem_type = TensorProto.INT8
    return copied
