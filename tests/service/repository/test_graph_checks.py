"""Graphs that take and give what their manifest promises, and others."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from service.contract.image_input import ImageInput
from service.contract.manifest import Manifest
from service.contract.tensors import DATATYPES, Signature, TensorSpec
from service.errors import LoadError
from service.repository.graph_checks import check_graph
from service.serving.tasks.table import text_task
from tests.fakes.sessions import LABELS, PAD_ID, classifier_manifest

FP32 = DATATYPES["FP32"]
TEXT_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def check(
    inputs: Sequence[str],
    dims: tuple[int, ...] = (-1, len(LABELS)),
    output: str = "logits",
    manifest: Manifest | None = None,
) -> None:
    manifest = manifest or classifier_manifest()
    tensors = tuple(TensorSpec(name, DATATYPES["INT64"], (-1, -1)) for name in inputs)
    graph = Signature(tensors, (TensorSpec(output, FP32, dims),))
    check_graph(graph, manifest, text_task(manifest))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_text_model_takes_ids_and_what_belongs_to_them(count: int) -> None:
    check(TEXT_INPUTS[:count])


@pytest.mark.parametrize("inputs", [TEXT_INPUTS[1:], (*TEXT_INPUTS, "more"), (), ("INPUT_IDS",)])
def test_a_text_model_takes_nothing_else(inputs: Sequence[str]) -> None:
    with pytest.raises(LoadError, match="a text model takes input_ids and"):
        check(inputs)


def test_only_a_model_with_a_source_takes_a_target() -> None:
    inputs = ("input_ids", "target_ids")
    manifest = Manifest(
        "attention", "fp32", 12, PAD_ID, num_layers=3, num_heads=2, network="encoder-decoder"
    )
    check(inputs, (-1, 3, 2, -1, -1), "attentions", manifest)
    with pytest.raises(LoadError, match="a text model takes input_ids and"):
        check(inputs)


@pytest.mark.parametrize("dims", [(-1, len(LABELS)), (-1, -1)])
def test_a_size_that_is_free_is_taken(dims: tuple[int, ...]) -> None:
    check(TEXT_INPUTS, dims)


@pytest.mark.parametrize("dims", [(-1,), (-1, 2), (-1, len(LABELS), 1), ()])
def test_an_output_of_another_shape_is_refused(dims: tuple[int, ...]) -> None:
    with pytest.raises(LoadError, match=r"needs an output 'logits' of shape \[-1, 3\]"):
        check(TEXT_INPUTS, dims)


def test_an_output_of_another_name_is_refused() -> None:
    with pytest.raises(LoadError, match="needs an output 'logits'"):
        check(TEXT_INPUTS, output="scores")


IMAGES = Manifest(
    "image-classification",
    "fp32",
    1,
    0,
    labels=LABELS,
    image=ImageInput(8, 6, 1, mean=(0.5,), std=(0.5,)),
)
PIXELS = TensorSpec("pixel_values", FP32, (-1, 1, 8, 6))
LOGITS = TensorSpec("logits", FP32, (-1, len(LABELS)))


def test_a_graph_of_images_takes_pixels_and_gives_logits() -> None:
    check_graph(Signature((PIXELS,), (LOGITS,)), IMAGES, None)


@pytest.mark.parametrize(
    ("side", "inputs", "outputs"),
    [
        ("input", (PIXELS, PIXELS), (LOGITS,)),
        ("input", (TensorSpec("pixels", FP32, PIXELS.dims),), (LOGITS,)),
        ("input", (TensorSpec("pixel_values", FP32, (-1, 1, 6, 8)),), (LOGITS,)),
        ("output", (PIXELS,), (LOGITS, PIXELS)),
        ("output", (PIXELS,), (TensorSpec("logits", FP32, (-1, 2)),)),
    ],
)
def test_a_graph_of_other_images_is_refused(
    side: str, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]
) -> None:
    with pytest.raises(LoadError, match=f"task image-classification needs one {side} '"):
        check_graph(Signature(inputs, outputs), IMAGES, None)


def test_a_refused_graph_of_images_is_told_all_that_its_task_needs() -> None:
    """Attention beside the logits: of 2 layers of 3 heads, between 5 tokens."""
    manifest = replace(IMAGES, task="image-attention", max_tokens=5, num_layers=2, num_heads=3)
    attentions = TensorSpec("attentions", FP32, (-1, 2, 3, 5, 5))
    check_graph(Signature((PIXELS,), (LOGITS, attentions)), manifest, None)
    with pytest.raises(LoadError) as caught:
        check_graph(Signature((PIXELS,), (LOGITS,)), manifest, None)
    assert str(caught.value) == (
        "task image-attention needs 2 outputs 'logits' of shape [-1, 3] and 'attentions' of shape "
        "[-1, 2, 3, 5, 5], the graph has {'logits': (-1, 3)}"
    )
