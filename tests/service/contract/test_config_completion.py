"""A configuration with what its model completes, or a contradiction."""

from typing import Any

import pytest
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from service.contract.config_completion import complete_for_text, complete_from_graph, signature_of
from service.contract.tensors import DATATYPES, Signature, TensorSpec
from service.errors import LoadError
from tests.fakes.sessions import embedder_manifest, generator_manifest

SIGNATURE = Signature(
    (TensorSpec("text", DATATYPES["BYTES"], (1,)),),
    (TensorSpec("embedding", DATATYPES["FP32"], (4,)),),
)


def config_of(text: str) -> ModelConfig:
    return text_format.Parse(text, ModelConfig())


def completed(text: str = "", **keywords: Any) -> ModelConfig:
    return complete_for_text(config_of(text), embedder_manifest(), SIGNATURE, 32, **keywords)


@pytest.mark.parametrize(("stated", "expected"), [(0, 32), (7, 7)])
def test_a_model_that_batches_has_the_default_rows_or_its_own(stated: int, expected: int) -> None:
    found = completed(f"max_batch_size: {stated}")
    assert found.max_batch_size == expected
    assert signature_of(found) == SIGNATURE


@pytest.mark.parametrize("stated", [0, 1])
def test_a_text_that_shares_no_run_is_a_batch_of_one(stated: int) -> None:
    assert completed(f"max_batch_size: {stated}", is_alone=True).max_batch_size == 1


def test_more_rows_than_one_are_refused_where_a_text_shares_no_run() -> None:
    with pytest.raises(LoadError, match="max_batch_size is 2, expected 1"):
        completed("max_batch_size: 2", is_alone=True)


def test_a_generative_model_has_no_batches_and_answers_more_than_once() -> None:
    config = complete_for_text(config_of(""), generator_manifest(), SIGNATURE, 32)
    assert config.max_batch_size == 0
    assert config.model_transaction_policy.decoupled
    with pytest.raises(LoadError, match="max_batch_size is 1, expected 0"):
        complete_for_text(config_of("max_batch_size: 1"), generator_manifest(), SIGNATURE, 32)


def test_the_configuration_itself_is_not_changed() -> None:
    config = config_of("name: 'a'")
    complete_for_text(config, embedder_manifest(), SIGNATURE, 32)
    assert config == config_of("name: 'a'")


GRAPH = Signature(
    (TensorSpec("x", DATATYPES["FP32"], (-1, 3)),), (TensorSpec("y", DATATYPES["FP32"], (-1,)),)
)


def tensor(side: str, name: str, dims: str, kind: str = "FP32") -> str:
    return f"{side} {{ name: '{name}' data_type: TYPE_{kind} dims: [{dims}] }}"


@pytest.mark.parametrize(
    ("stated", "reason"),
    [
        (tensor("input", "z", "-1, 3"), "inputs are ['z'], but the model takes ['x']"),
        (
            tensor("input", "x", "-1, 3") + tensor("output", "z", "-1"),
            "output 'z' is not in the model, which has ['y']",
        ),
        (tensor("input", "x", "-1, 4"), "input 'x' has dims [-1, 4], but the model has [-1, 3]"),
        (tensor("input", "x", "3"), "input 'x' has dims [3], but the model has [-1, 3]"),
        (
            tensor("input", "x", "-1, 3", "INT32"),
            "input 'x' is TYPE_INT32, but the model has TYPE_FP32",
        ),
    ],
)
def test_tensors_that_the_graph_does_not_have_are_refused(stated: str, reason: str) -> None:
    with pytest.raises(LoadError) as refused:
        complete_from_graph(config_of(stated), GRAPH, 32)
    assert str(refused.value) == f"config.pbtxt: {reason}"


@pytest.mark.parametrize("dims", ["-1, 3", "5, 3", "5, -1", "-1, -1"])
def test_a_free_size_fits_any_other(dims: str) -> None:
    config = complete_from_graph(config_of(tensor("input", "x", dims)), GRAPH, 32)
    assert config.input[0].dims == [int(dim) for dim in dims.split(",")]
    assert [output.name for output in config.output] == ["y"]


def test_a_graph_with_free_first_axes_gets_the_default_rows() -> None:
    """And its tensors lose that axis; where the file names tensors it says itself."""
    config = complete_from_graph(config_of(""), GRAPH, 32)
    assert config.max_batch_size == 32
    assert signature_of(config).inputs[0].dims == (3,)
    fixed = Signature(GRAPH.inputs, (TensorSpec("y", DATATYPES["FP32"], (2,)),))
    assert complete_from_graph(config_of(""), fixed, 32).max_batch_size == 0
    with pytest.raises(LoadError, match="not every tensor of the graph has a free first axis"):
        complete_from_graph(config_of("max_batch_size: 2"), fixed, 32)
