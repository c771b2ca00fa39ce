"""Where a head reads first tokens only, the last layer computes of others just keys and values."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from export.checks.parity import GraphRunner
from export.settings import Operator
from service.runtime.session import OnnxSession, SessionOptions
from tests.export.conftest import TraceOf, checkpoint_of
from tests.fakes.tiny import ragged_batch, torch_outputs

LENGTHS = (7, 2, 5)


def tokens_expanded(model: onnx.ModelProto, batch: dict[str, np.ndarray]) -> list[int]:
    """Tokens that go through the feed-forward part, by layer."""
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    names = [node.output[0] for node in model.graph.node if node.op_type == "Gelu"]
    probe.graph.output.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names
    )
    session = OnnxSession(probe.SerializeToString(), SessionOptions(num_threads=1))
    feed = {spec.name: batch[spec.name] for spec in session.signature.inputs}
    return [array.shape[-2] for array in session.run(feed, names)]


def test_a_classifier_of_first_tokens_expands_one_token_a_row_in_its_last_layer(
    trace_of: TraceOf,
) -> None:
    """14 tokens in 3 rows."""
    batch = ragged_batch(LENGTHS, checkpoint_of("bert classifier").encoder_model.config)
    model = trace_of("bert classifier", "Attention")
    assert tokens_expanded(model, batch) == [sum(LENGTHS), len(LENGTHS)]


@pytest.mark.parametrize("name", ["distilbert", "bert embedder"])
def test_a_head_that_reads_all_tokens_has_them_all(name: str, trace_of: TraceOf) -> None:
    """Both pool by mean."""
    batch = ragged_batch(LENGTHS, checkpoint_of(name).encoder_model.config)
    assert tokens_expanded(trace_of(name, "Attention"), batch) == [sum(LENGTHS), sum(LENGTHS)]


@pytest.mark.parametrize("operator", ["Attention", "MultiHeadAttention"])
def test_the_answer_is_the_same(operator: Operator, trace_of: TraceOf) -> None:
    model = checkpoint_of("bert classifier").encoder_model
    batch = ragged_batch(LENGTHS, model.config)
    found = GraphRunner(trace_of("bert classifier", operator))(batch)
    np.testing.assert_allclose(found, torch_outputs(model, batch), atol=1e-5)
