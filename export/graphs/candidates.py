"""The likeliest tokens of a decoder's step, among the outputs of its graph.

Sampling mostly needs a few tokens of a vocabulary of 50,000 or more. On a GPU these are chosen
where the logits are: K values and ids a row come to the host, with the logarithm of the sum of all
exponentials, which makes them probabilities, instead of the whole row.

    logits      [N, V]  float32, as before
    top_logits  [N, K]  float32, the largest, the largest first
    top_ids     [N, K]  int64, their tokens
    log_sum     [N]     float32, log(sum(exp(logits)))
"""

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper
from onnx.helper import make_tensor_value_info

from export.graphs.files import check, copy_of

LOGITS, TOP_LOGITS, TOP_IDS, LOG_SUM = "logits", "top_logits", "top_ids", "log_sum"
# More than top_k is usually set to; a request that needs more tokens reads whole rows.
NUM_CANDIDATES = 256


def with_candidates(
    model: onnx.ModelProto, num_candidates: int = NUM_CANDIDATES
) -> onnx.ModelProto:
    """A copy of a decoder's graph that gives the likeliest tokens too, at most its vocabulary."""
    copied = copy_of(model)
    graph = copied.graph
    (logits,) = (output for output in graph.output if output.name == LOGITS)
    rows, vocab = logits.type.tensor_type.shape.dim
    count = min(num_candidates, vocab.dim_value)
    sizes = {"count": count, "zero": 0, "one": 1}
    graph.initializer.extend(
        numpy_helper.from_array(np.array([size], np.int64), f"candidates.{name}")
        for name, size in sizes.items()
    )
    graph.node.extend(_nodes())
    size = rows.dim_param or rows.dim_value
    graph.output.extend(
        (
            make_tensor_value_info(TOP_LOGITS, TensorProto.FLOAT, [size, count]),
            make_tensor_value_info(TOP_IDS, TensorProto.INT64, [size, count]),
            make_tensor_value_info(LOG_SUM, TensorProto.FLOAT, [size]),
        )
    )
    check(copied)
    return copied


def _nodes() -> Iterator[NodeProto]:
    """The logarithm of the sum is what the likeliest logit loses; ReduceLogSumExp needs cuDNN."""
    first = ["candidates.zero", "candidates.one", "candidates.one"]  # of each row
    best, logprob = ["candidates.best"], ["candidates.logprob"]
    for operator, taken, given, attributes in (
        ("TopK", [LOGITS, "candidates.count"], [TOP_LOGITS, TOP_IDS], {"axis": -1}),
        ("LogSoftmax", [LOGITS], ["candidates.logprobs"], {"axis": -1}),
        ("Slice", [TOP_IDS, *first], ["candidates.best_id"], {}),
        ("Slice", [TOP_LOGITS, *first], best, {}),
        ("GatherElements", ["candidates.logprobs", "candidates.best_id"], logprob, {"axis": 1}),
        ("Sub", [*best, *logprob], ["candidates.log_sum"], {}),
        ("Squeeze", ["candidates.log_sum", "candidates.one"], [LOG_SUM], {}),
    ):
        name = f"{operator}_{given[-1]}"
        yield helper.make_node(operator, taken, given, name, "", "", None, **attributes)
