"""The exported graph computes what the PyTorch network computes, with attention as one node."""

import copy
import re

import numpy as np
import pytest
import torch
from torch import nn

from export.checks.parity import GraphRunner
from export.errors import ExportError
from export.graphs.graph import check_fused, fused_ops, trace
from export.settings import Operator
from models.networks.encoder import EncoderLayer
from models.networks.heads import LAYERS, NEEDS_FOUR_LAYERS, SequenceClassifier
from tests.export.conftest import TraceOf, checkpoint_of
from tests.fakes.tiny import MAX_TOKENS, ragged_batch, tiny_embedder, torch_outputs

OPERATORS: tuple[Operator, ...] = ("Attention", "MultiHeadAttention")
CONTRIB = "com.microsoft"
RAGGED = (17, 2, 9, 1, 17, 5)
both_operators = pytest.mark.parametrize("operator", OPERATORS)
# 1e-5: float32 rounds at 6e-8 of a value, sums here have up to 64 terms, outputs are near 1.
TOLERANCE = 1e-5


@pytest.mark.parametrize(
    ("name", "operator"),
    [
        *(
            (name, operator)
            for name in ("bert classifier", "bert embedder", "modernbert")
            for operator in OPERATORS
        ),
        ("distilbert", "Attention"),
        ("roberta", "Attention"),
        ("nomic", "Attention"),
        ("mpnet", "Attention"),
        ("albert", "Attention"),
        ("deberta", "Attention"),
        ("deberta", "MultiHeadAttention"),
        ("deberta embedder", "Attention"),
    ],
)
def test_fused_graph_equals_plain_network(name: str, operator: Operator, trace_of: TraceOf) -> None:
    """Within 1e-5 on ragged rows, for each family of encoders."""
    model = checkpoint_of(name).encoder_model
    batch = ragged_batch(RAGGED, model.config)
    found = GraphRunner(trace_of(name, operator))(batch)
    wanted = torch_outputs(model, batch)
    assert found.dtype == np.float32
    assert np.ptp(wanted, axis=0).max() > 0.1, "rows must differ, or nothing is compared"
    np.testing.assert_allclose(found, wanted, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", ["modernbert", "nomic", "mpnet", "deberta", "deberta embedder"])
@pytest.mark.parametrize("is_padded", [False, True])
def test_positions_are_those_of_each_row(name: str, *, is_padded: bool, trace_of: TraceOf) -> None:
    """Together the rows have more tokens than the tables of angles, and windows end at rows."""
    model = checkpoint_of(name).encoder_model
    batch = ragged_batch((MAX_TOKENS, 5, 17, MAX_TOKENS), model.config)
    graph = trace(model, "Attention", is_padded=True) if is_padded else trace_of(name, "Attention")
    found, wanted = GraphRunner(graph)(batch), torch_outputs(model, batch)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=TOLERANCE)


def test_layers_that_are_used_twice_have_their_weights_once(trace_of: TraceOf) -> None:
    """4 attentions of 2 layers, and a matrix for each of the 6 maps of a layer."""
    graph = trace_of("albert", "Attention")
    assert fused_ops(graph)["Attention"] == 4
    products = [node.input[1] for node in graph.graph.node if node.op_type == "MatMul"]
    assert (len(products), len(set(products))) == (4 * 6 + 1, 2 * 6 + 1)  # and that of embeddings


# Every strategy once, every pooling with both operators; tracing is what takes the time.
STRATEGIES = [
    ("mean", "first", "Attention"),
    ("mean", "last", "MultiHeadAttention"),
    ("cls", "second_to_last", "Attention"),
    ("mean", "sum_last_four", "MultiHeadAttention"),
    ("cls", "concat_last_four", "MultiHeadAttention"),
    ("mean", "sum_all", "Attention"),
]


def test_every_layer_strategy_is_tried() -> None:
    assert {layers for _, layers, _ in STRATEGIES} == set(LAYERS)


@pytest.mark.parametrize(("pooling", "layers", "operator"), STRATEGIES)
def test_every_pooling_strategy_exports(pooling: str, layers: str, operator: Operator) -> None:
    """Equal to PyTorch within 1e-5, with a node for each layer that the output depends on."""
    num_layers = 5 if layers in NEEDS_FOUR_LAYERS else 3
    model = tiny_embedder(pooling, layers, normalize=False, num_layers=num_layers).encoder_model
    graph = trace(model, operator)
    used = {"first": 0, "second_to_last": num_layers - 1}.get(layers, num_layers)
    assert fused_ops(graph).get(operator, 0) == used
    batch = ragged_batch(RAGGED, model.config)
    found, wanted = GraphRunner(graph)(batch), torch_outputs(model, batch)
    assert found.shape == (len(RAGGED), 32 * (4 if layers == "concat_last_four" else 1))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=4 * TOLERANCE)  # sums of four layers


@both_operators
def test_normalised_embeddings_have_length_one(operator: Operator, trace_of: TraceOf) -> None:
    graph = trace_of("bert embedder", operator)
    batch = ragged_batch(RAGGED, checkpoint_of("bert embedder").encoder_model.config)
    lengths = np.linalg.norm(GraphRunner(graph)(batch), axis=1)
    np.testing.assert_allclose(lengths, 1.0, atol=1e-6)


@both_operators
def test_attention_is_one_node_per_layer_of_the_named_operator(
    operator: Operator, trace_of: TraceOf
) -> None:
    """2 layers: 2 nodes of the operator's own domain, and no softmax left beside them."""
    graph = trace_of("bert classifier", operator)
    domain = CONTRIB if operator == "MultiHeadAttention" else ""
    domains = [node.domain for node in graph.graph.node if node.op_type == operator]
    assert domains == [domain, domain]
    assert "Softmax" not in {node.op_type for node in graph.graph.node}
    assert fused_ops(graph) == {operator: 2, "LayerNormalization": 5, "Gelu": 2}


@both_operators
def test_batched_row_equals_the_row_alone(operator: Operator, trace_of: TraceOf) -> None:
    """Neither neighbours nor padding change a float32 row by more than 1e-5."""
    run = GraphRunner(trace_of("bert classifier", operator))
    batch = ragged_batch(RAGGED, checkpoint_of("bert classifier").encoder_model.config)
    together = run(batch)
    for row, length in enumerate(RAGGED):
        alone = run({name: array[row : row + 1, :length] for name, array in batch.items()})
        np.testing.assert_allclose(together[row], alone[0], rtol=0, atol=TOLERANCE)


@both_operators
@pytest.mark.parametrize("name", ["bert classifier", "bert embedder"])
def test_what_stands_in_the_padding_does_not_matter(
    name: str, operator: Operator, trace_of: TraceOf
) -> None:
    run = GraphRunner(trace_of(name, operator))
    batch = ragged_batch(RAGGED, checkpoint_of(name).encoder_model.config)
    is_padding = batch["attention_mask"] == 0
    other = batch | {"input_ids": np.where(is_padding, 7, batch["input_ids"])}
    np.testing.assert_allclose(run(batch), run(other), rtol=0, atol=TOLERANCE)


@both_operators
@pytest.mark.parametrize(
    "lengths",
    [(1,), (17, 4, 1), (MAX_TOKENS,), (MAX_TOKENS, 1)],
    ids=["1x1", "3x17", "1xmax", "2xmax"],
)
def test_rows_and_tokens_are_dynamic(
    lengths: tuple[int, ...], operator: Operator, trace_of: TraceOf
) -> None:
    """Traced with 2 rows of 8 tokens; runs from 1 x 1 to the model's longest row."""
    model = checkpoint_of("bert classifier").encoder_model
    batch = ragged_batch(lengths, model.config)
    found = GraphRunner(trace_of("bert classifier", operator))(batch)
    np.testing.assert_allclose(found, torch_outputs(model, batch), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("name", "inputs", "output"),
    [
        ("bert classifier", ["input_ids", "attention_mask", "token_type_ids"], "logits"),
        ("bert embedder", ["input_ids", "attention_mask", "token_type_ids"], "embedding"),
        ("distilbert", ["input_ids", "attention_mask"], "logits"),
        ("roberta", ["input_ids", "attention_mask"], "embedding"),
    ],
)
def test_tensors_have_the_exporters_standard_names(
    name: str, inputs: list[str], output: str, trace_of: TraceOf
) -> None:
    """Models that know no token types, or only one, do not ask for them."""
    graph = trace_of(name, "Attention").graph
    assert [tensor.name for tensor in graph.input] == inputs
    assert [tensor.name for tensor in graph.output] == [output]


@both_operators
def test_graph_tells_nothing_about_where_it_was_made(operator: Operator, trace_of: TraceOf) -> None:
    graph = trace_of("bert classifier", operator)
    text = str(graph)
    assert ".py" not in text
    assert "metadata_props" not in text
    assert not re.search('doc_string: "[^"]', text)


def test_network_with_a_layer_missing_is_refused() -> None:
    model = copy.deepcopy(checkpoint_of("bert classifier").encoder_model)
    del model.encoder.layers[1]
    with pytest.raises(ExportError, match="fused 1 attentions of 2"):
        trace(model, "Attention")


class _Elsewhere(EncoderLayer):
    """A layer whose result does not reach the output."""

    def forward(
        self,
        hidden_BSD: torch.Tensor,  # noqa: N803
        padding_mask_BS: torch.Tensor,  # noqa: N803
        relative: torch.Tensor | None = None,
    ) -> torch.Tensor:
        super().forward(hidden_BSD, padding_mask_BS, relative)
        return hidden_BSD


def test_attention_that_did_not_reach_the_graph_is_refused() -> None:
    """Both attentions are replaced, and still the graph is short of one."""
    model = copy.deepcopy(checkpoint_of("bert classifier").encoder_model)
    model.encoder.layers[1] = _Elsewhere(model.config)
    with pytest.raises(ExportError, match="the graph has 1 Attention nodes for 2 layers"):
        trace(model, "Attention")


def test_nodes_of_the_other_operator_do_not_count(trace_of: TraceOf) -> None:
    graph = trace_of("bert classifier", "Attention")
    with pytest.raises(ExportError, match="the graph has 0 MultiHeadAttention nodes for 2 layers"):
        check_fused(graph, "MultiHeadAttention", 2)


def test_training_mode_does_not_leak_into_the_graph() -> None:
    """A network left in training mode exports without dropout."""
    model: nn.Module = copy.deepcopy(checkpoint_of("bert classifier").encoder_model).train()
    assert isinstance(model, SequenceClassifier)
    graph = trace(model, "Attention")
    assert "Dropout" not in {node.op_type for node in graph.graph.node}
    assert model.training
