"""Between attentions there are real tokens only, whatever the batch is padded to."""

import numpy as np
import onnx
import pytest

from export.checks.parity import GraphRunner
from service.errors import ModelFailed
from service.runtime.session import OnnxSession, SessionOptions
from tests.export.conftest import TraceOf, checkpoint_of
from tests.fakes.tiny import ragged_batch, torch_outputs

RAGGED = (17, 2, 9, 1, 17, 5)


def test_no_layer_computes_padding(trace_of: TraceOf) -> None:
    """Rows of 1 to 17 tokens, 51 of 102 positions: feed-forward sees 51, attention all 6 x 17."""
    graph = onnx.ModelProto()
    graph.CopyFrom(trace_of("bert embedder", "Attention"))
    looked_at = {"Gelu": "output", "Attention": "input"}
    seen = {
        name: [getattr(node, side)[0] for node in graph.graph.node if node.op_type == name]
        for name, side in looked_at.items()
    }
    for value in [*seen["Gelu"], *seen["Attention"]]:
        graph.graph.output.append(onnx.helper.make_tensor_value_info(value, 1, None))
    batch = ragged_batch(RAGGED, checkpoint_of("bert embedder").encoder_model.config)
    session = OnnxSession(graph.SerializeToString(), SessionOptions())
    shapes = {
        name: {output.shape[:-1] for output in session.run(batch, values)}
        for name, values in seen.items()
    }
    assert shapes == {"Gelu": {(1, sum(RAGGED))}, "Attention": {(len(RAGGED), max(RAGGED))}}


def test_tokens_are_packed_once_for_all_layers(trace_of: TraceOf) -> None:
    """One search for the tokens; three projections spread and one context gathered per layer."""
    graph = trace_of("bert embedder", "Attention").graph
    found = [node.op_type for node in graph.node]
    assert found.count("NonZero") == found.count("CumSum") == 1
    weights = {tensor.name for tensor in graph.initializer}
    moved = [n for n in graph.node if n.op_type == "Gather" and n.input[0] not in weights]
    ends = 2  # the embeddings are packed, the last states spread
    assert len(moved) == 2 * 4 + ends


def test_a_row_that_is_all_padding_disturbs_nobody(trace_of: TraceOf) -> None:
    """It is the first row, before any token there is."""
    model = checkpoint_of("bert classifier").encoder_model
    batch = ragged_batch((5, 17, 3), model.config)
    batch["attention_mask"][0] = 0
    found = GraphRunner(trace_of("bert classifier", "Attention"))(batch)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[1:], torch_outputs(model, batch)[1:], rtol=0, atol=1e-5)


def test_a_batch_without_a_token_is_an_error_and_no_crash(trace_of: TraceOf) -> None:
    batch = ragged_batch((5, 3), checkpoint_of("bert classifier").encoder_model.config)
    batch["attention_mask"][:] = 0
    run = GraphRunner(trace_of("bert classifier", "Attention"))
    with pytest.raises(ModelFailed):
        run(batch)
