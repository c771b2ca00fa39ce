"""Configurations as each task's models complete them."""

import pytest
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from service.contract.config_completion import signature_of
from service.contract.manifest import Manifest
from service.errors import LoadError
from service.serving.tasks import texts
from service.serving.tasks.attention import ATTENTION
from service.serving.tasks.table import METHODS, TASKS, complete_config, text_signature, text_task
from tests.fakes.sessions import PAD_ID, classifier_manifest, embedder_manifest, generator_manifest

ATTENDING = Manifest("attention", "fp32", 12, PAD_ID, num_layers=3, num_heads=2)


def completed(manifest: Manifest, text: str = "") -> ModelConfig:
    return complete_config(text_format.Parse(text, ModelConfig()), manifest, 32)


@pytest.mark.parametrize("manifest", [classifier_manifest(), embedder_manifest()])
def test_texts_share_runs_of_the_default_rows(manifest: Manifest) -> None:
    config = completed(manifest)
    assert config.max_batch_size == 32
    stated, expected = signature_of(config), text_signature(manifest)
    assert [spec.name for spec in stated.inputs] == [spec.name for spec in expected.inputs]
    assert [spec.name for spec in stated.outputs] == [spec.name for spec in expected.outputs]
    assert completed(manifest, "max_batch_size: 2").max_batch_size == 2


def test_a_text_whose_matrices_are_asked_for_is_alone() -> None:
    assert completed(ATTENDING).max_batch_size == 1
    with pytest.raises(
        LoadError, match="max_batch_size is 2, expected 1: what an input of a model"
    ):
        completed(ATTENDING, "max_batch_size: 2")


def test_a_prompt_is_a_request_of_its_own() -> None:
    assert completed(generator_manifest()).max_batch_size == 0


def test_word_vectors_are_an_embedder_s_with_texts_that_are_checked() -> None:
    assert text_task(embedder_manifest()) is texts.EMBEDDING
    assert text_task(embedder_manifest(network="words")) is texts.WORD_VECTORS
    assert text_task(ATTENDING) is ATTENTION


def test_every_method_is_of_a_task_that_is_in_the_table() -> None:
    for name, method in METHODS.items():
        assert method.name == name
        assert TASKS[method.task.name] is method.task
