"""An image classifier from training to an answered request, and what its export refuses."""

import asyncio
import copy
import json
import zlib
from collections.abc import AsyncIterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import onnx
import pytest
import pytest_asyncio
import torch
from attendant.v1 import text_pb2, vision_pb2_grpc
from attendant.v1 import vision_pb2 as pb
from PIL import Image
from tritonclient.grpc import service_pb2
from typer.testing import CliRunner

from export.errors import ExportError
from export.exporter import ExportSettings
from export.exporters import export_any
from export.vision import check_vision_parity
from models.checkpoint import Checkpoint
from models.vision.images import LabelledImages, digits, normalised
from models.vision.settings import VisionSettings
from models.vision.training import split_images, train_vit
from models.vision.vit import VisionTransformer
from service.cli import app
from service.errors import SettingError
from service.models import softmax
from service.runtime import OnnxSession, SessionOptions
from tests.fakes import FakeSessions
from tests.service.serving import Served, refusal, serving

SETTINGS = VisionSettings(
    hidden_size=16, num_layers=2, num_heads=2, epochs=6, learning_rate=5e-3, max_shift=0
)
MAX_BYTES, MAX_PIXELS, MAX_IMAGES = 4_096, 10_000, 5


class OnnxSessions(FakeSessions):
    """Opens what was exported."""

    def __call__(self, path: Path, options: SessionOptions) -> Any:  # noqa: ANN401
        return OnnxSession(path, options)


@pytest.fixture(scope="module")
def images() -> LabelledImages:
    found = digits()
    return LabelledImages(found.name, found.examples[:200])


@pytest.fixture(scope="module")
def checkpoint(images: LabelledImages) -> Checkpoint:
    torch.set_num_threads(1)
    return train_vit(split_images(images, SETTINGS), SETTINGS).checkpoint


@pytest.fixture(scope="module")
def repository(checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model_repository")
    export_any(checkpoint, ExportSettings("digits", folder, precision="auto"))
    return folder


@pytest.fixture(scope="module")
def graph(repository: Path) -> onnx.ModelProto:
    return onnx.load(repository / "digits/1/model.onnx")


def test_each_layers_attention_is_one_node_and_the_graph_is_the_network(
    checkpoint: Checkpoint, graph: onnx.ModelProto
) -> None:
    operators = [node.op_type for node in graph.graph.node]
    assert operators.count("Attention") == 2
    assert "Softmax" not in operators
    parity = check_vision_parity(network_of(checkpoint), graph)
    assert parity.max_abs_error < 1e-5
    assert parity.max_neighbour_effect < 1e-5


def test_a_graph_that_computes_something_else_is_refused(
    checkpoint: Checkpoint, graph: onnx.ModelProto
) -> None:
    other = copy.deepcopy(network_of(checkpoint))
    with torch.no_grad():
        other.output.bias.add_(0.5)
    with pytest.raises(ExportError, match="differ from PyTorch's by up to"):
        check_vision_parity(other, graph)


def network_of(checkpoint: Checkpoint) -> VisionTransformer:
    assert isinstance(checkpoint.model, VisionTransformer)
    return checkpoint.model


def test_a_version_says_how_images_are_prepared(repository: Path, checkpoint: Checkpoint) -> None:
    manifest = json.loads((repository / "digits/1/manifest.json").read_text())
    config: Any = checkpoint.config
    assert manifest["image"] == {
        "height": 8,
        "width": 8,
        "channels": 1,
        "mean": list(config.mean),
        "std": list(config.std),
    }
    assert manifest["fused"]["Attention"] == 2
    assert not (repository / "digits/1/tokenizer.json").exists()
    assert (repository / "digits/labels.txt").read_text().split() == list("0123456789")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"precision": "int8"}, "precision is int8"),
        ({"with_fp16": True}, "precision is fp16"),
        ({"operator": "MultiHeadAttention"}, "attention is MultiHeadAttention"),
        ({"name": "../x"}, "name is"),
    ],
)
def test_what_cannot_be_written_is_refused_and_leaves_nothing(
    checkpoint: Checkpoint, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    settings = replace(ExportSettings("digits", tmp_path), **changes)
    with pytest.raises(ExportError, match=message):
        export_any(checkpoint, settings)
    assert not list(tmp_path.iterdir())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(repository: Path) -> AsyncIterator[Served]:
    limits = {"max_image_bytes": MAX_BYTES, "max_image_pixels": MAX_PIXELS, "max_texts": MAX_IMAGES}
    async with serving(repository, OnnxSessions(), **limits) as running:
        yield running


def stub(served: Served) -> Any:  # noqa: ANN401
    return vision_pb2_grpc.VisionServiceStub(served.channel)


def logits_of(checkpoint: Checkpoint, pixels: torch.Tensor) -> np.ndarray:
    """What PyTorch says of uint8 [N, C, H, W]."""
    config: Any = checkpoint.config
    with torch.inference_mode():
        found: np.ndarray = checkpoint.model(normalised(pixels, config.mean, config.std)).numpy()
    return found


def file_of(pixels: np.ndarray, kind: str = "PNG", **options: Any) -> bytes:  # noqa: ANN401
    content = BytesIO()
    Image.fromarray(pixels).save(content, kind, **options)
    return content.getvalue()


@pytest.mark.asyncio(loop_scope="module")
async def test_png_and_jpeg_files_are_classified_as_pytorch_does(
    served: Served, checkpoint: Checkpoint, images: LabelledImages
) -> None:
    """PNG keeps every pixel; JPEG of quality 100 nearly so."""
    pixels = images.pixels()[:3]
    files = [file_of(image[0].numpy()) for image in pixels]
    files.append(file_of(pixels[0, 0].numpy(), "JPEG", quality=100))
    request = pb.ClassifyImageRequest(model="digits", images=files, all_scores=True)
    response = await stub(served).ClassifyImage(request)
    assert (response.model, response.version) == ("digits", "1")
    assert response.timings.total_seconds > 0
    expected = softmax(logits_of(checkpoint, pixels))
    for scores, result in zip([*expected, expected[0]], response.results, strict=True):
        assert (result.width, result.height) == (8, 8)
        assert len(result.labels) == 10
        found = {label.label: label.score for label in result.labels}
        tolerance = 1e-5 if result is not response.results[3] else 0.05
        assert [found[label] for label in "0123456789"] == pytest.approx(
            scores.tolist(), abs=tolerance
        )
        assert [label.score for label in result.labels] == sorted(found.values(), reverse=True)


@pytest.mark.asyncio(loop_scope="module")
async def test_images_of_other_sizes_and_colours_are_made_to_fit(
    served: Served, checkpoint: Checkpoint, images: LabelledImages
) -> None:
    """Each pixel written eight times over, in colour, in 16 bits or with alpha: the same digit."""
    digit = images.pixels()[0, 0].numpy()
    large = np.kron(digit, np.ones((8, 8), np.uint8))
    with_alpha = np.dstack([digit, digit, digit, np.full_like(digit, 255)])
    files = [file_of(large), file_of(np.dstack([digit] * 3)), file_of(with_alpha)]
    files.append(file_of(digit.astype(np.uint16) * 257))
    response = await stub(served).ClassifyImage(
        pb.ClassifyImageRequest(model="digits", images=files, top_k=2)
    )
    best = str(logits_of(checkpoint, images.pixels()[:1]).argmax())
    assert [result.labels[0].label for result in response.results] == [best] * 4
    assert {len(result.labels) for result in response.results} == {2}
    assert (response.results[0].width, response.results[0].height) == (64, 64)


@pytest.mark.asyncio(loop_scope="module")
async def test_tensors_are_classified_over_the_open_inference_protocol(
    served: Served, checkpoint: Checkpoint
) -> None:
    """As numbers, or as the best classes with their labels."""
    pixels = np.random.default_rng(1).standard_normal((2, 1, 8, 8), np.float32)
    request = service_pb2.ModelInferRequest(model_name="digits")
    request.inputs.add(name="pixel_values", datatype="FP32", shape=pixels.shape)
    request.raw_input_contents.append(pixels.tobytes())
    with torch.inference_mode():
        expected = checkpoint.model(torch.from_numpy(pixels)).numpy()
    response = await served.inference.ModelInfer(request)
    found = np.frombuffer(response.raw_output_contents[0], np.float32).reshape(2, 10)
    np.testing.assert_allclose(found, expected, atol=1e-5)

    output = request.outputs.add(name="logits")
    output.parameters["classification"].int64_param = 1
    response = await served.inference.ModelInfer(request)
    classes = response.raw_output_contents[0].decode(errors="replace")
    assert f":{expected[0].argmax()}:{expected[0].argmax()}" in classes


@pytest.mark.asyncio(loop_scope="module")
async def test_the_list_of_models_says_what_it_does(served: Served) -> None:
    (model,) = (await served.text.ListModels(text_pb2.ListModelsRequest())).models
    assert (model.task, list(model.labels)) == ("image-classification", list("0123456789"))
    assert not model.example


GREY = np.zeros((8, 8), np.uint8)
NOISE = np.random.default_rng(0).integers(0, 256, (40, 40)).astype(np.uint8)
WHOLE = file_of(NOISE)
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "none": ({"images": []}, "images has 0 elements, expected 1 to 5"),
    "too many": ({"images": [file_of(GREY)] * 6}, "images has 6 elements, expected 1 to 5"),
    "empty": ({"images": [file_of(GREY), b""]}, "image 1 has 0 bytes, the server takes 1 to 4096"),
    "too large": ({"images": [bytes(5_000)]}, "image 0 has 5000 bytes, the server takes 1 to"),
    "not an image": ({"images": [b"a text"]}, "image 0 is not an image in a format that is read"),
    "another format": ({"images": [file_of(GREY, "GIF")]}, "that is read: PNG or JPEG"),
    "a header alone": ({"images": [b"\x89PNG\r\n\x1a\n"]}, "image 0 is not an image"),
    "cut off": ({"images": [WHOLE[:-200]]}, "image 0 is broken or cut off"),
    "a JPEG cut off": (
        {"images": [file_of(NOISE, "JPEG")[:-300]]},
        "image 0 is broken or cut off",
    ),
    "flipped bytes": ({"images": [WHOLE[:900] + b"????" + WHOLE[904:]]}, "image 0 is broken"),
    "too many pixels": (
        {"images": [file_of(np.zeros((101, 100), np.uint8))]},
        "image 0 has 100 x 101 pixels, the server takes 1 to 10000 in all",
    ),
    "too many pixels together": (
        {"images": [file_of(np.zeros((100, 100), np.uint8))] * 5},
        "the images have 50000 pixels in all, the server takes at most 40000",
    ),
    "two counts": (
        {"images": [file_of(GREY)], "top_k": 1, "all_scores": True},
        "top_k is 1 and all_scores is set",
    ),
    "more labels than there are": (
        {"images": [file_of(GREY)], "top_k": 11},
        "top_k is 11, the model has 10 labels",
    ),
}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("case", REFUSED)
async def test_what_is_no_image_within_bounds_is_refused_by_name(served: Served, case: str) -> None:
    fields, message = REFUSED[case]
    call = stub(served).ClassifyImage(pb.ClassifyImageRequest(model="digits", **fields))
    code, details = await refusal(call)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert message in details


@pytest.mark.asyncio(loop_scope="module")
async def test_a_bomb_is_refused_before_it_is_decoded(served: Served) -> None:
    """A header that promises 65,535 x 65,535 pixels in a file of some hundred bytes."""
    small = bytearray(file_of(GREY))
    small[16:24] = (65_535).to_bytes(4, "big") * 2
    small[29:33] = zlib.crc32(bytes(small[12:29])).to_bytes(4, "big")
    call = stub(served).ClassifyImage(
        pb.ClassifyImageRequest(model="digits", images=[bytes(small)])
    )
    code, details = await refusal(call)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert "pixels" in details


@pytest.mark.asyncio(loop_scope="module")
async def test_other_calls_and_unknown_models_are_told_so(served: Served) -> None:
    unknown = stub(served).ClassifyImage(pb.ClassifyImageRequest(model="x", images=[b"x"]))
    assert (await refusal(unknown))[0] == grpc.StatusCode.NOT_FOUND
    texts = served.text.Classify(text_pb2.ClassifyRequest(model="digits", texts=["7"]))
    assert (await refusal(texts))[1] == "model 'digits' takes tensors, not texts"


@pytest.mark.asyncio(loop_scope="module")
async def test_the_command_shows_each_files_labels(
    served: Served, images: LabelledImages, tmp_path: Path
) -> None:
    path = tmp_path / "one.png"
    path.write_bytes(file_of(images.pixels()[1, 0].numpy()))
    command = ["classify-image", "digits", str(path), "--address", served.address]
    environment = {"COLUMNS": "160", "NO_COLOR": "1", "TERM": "dumb"}
    result = await asyncio.to_thread(CliRunner().invoke, app, command, env=environment)
    assert result.exit_code == 0, result.output
    assert "one.png" in result.stdout
    assert "8 x 8" in result.stdout
    missing = ["classify-image", "digits", str(tmp_path / "two.png")]
    result = await asyncio.to_thread(CliRunner().invoke, app, missing, env=environment)
    assert isinstance(result.exception, SettingError)
