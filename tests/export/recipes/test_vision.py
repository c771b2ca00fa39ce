"""An image classifier from training to an answered request, and what its export refuses."""

import asyncio
import copy
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

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

from commands.main import app
from export.errors import ExportError
from export.exporter import export_any
from export.recipes.vision import check_vision_parity
from export.settings import ExportSettings
from models.checkpoints.checkpoint import Checkpoint, save_checkpoint
from models.data.images import LabelledImages, digits, normalised
from models.networks.vit import VisionTransformer
from models.recipes.vision import split_images, train_vit
from models.recipes.vision_settings import VisionSettings
from service.contract.manifest import Example
from service.errors import SettingError
from service.serving.tasks.task import softmax
from tests.fakes.serving import Served, serving
from tests.fakes.sessions import RealSessions

SETTINGS = VisionSettings(
    hidden_size=16, num_layers=2, num_heads=2, epochs=6, learning_rate=5e-3, max_shift=0
)


@pytest.fixture(scope="module")
def images() -> LabelledImages:
    found = digits()
    return LabelledImages(found.name, found.examples[:200])


@pytest.fixture(scope="module")
def checkpoint(images: LabelledImages) -> Checkpoint:
    return train_vit(split_images(images, SETTINGS), SETTINGS).checkpoint


@pytest.fixture(scope="module")
def repository(checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model_repository")
    export_any(checkpoint, ExportSettings("digits", folder, precision="auto"))
    return folder


@pytest.fixture(scope="module")
def graph(repository: Path) -> onnx.ModelProto:
    return onnx.load(repository / "digits/1/model.onnx")


@pytest.mark.parametrize("task", [None, "attention"])
def test_examples_are_images_that_the_model_reads(
    checkpoint: Checkpoint, tmp_path: Path, task: str | None
) -> None:
    content = BytesIO()
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(content, "PNG")
    example = Example("nothing", image=b64encode(content.getvalue()).decode())
    settings = ExportSettings("digits", tmp_path, precision="auto", examples=(example,))
    assert export_any(checkpoint, settings, task=task).manifest.examples == (example,)
    broken = replace(settings, examples=(Example("text", image="AAAA"),))
    with pytest.raises(ExportError, match="examples: image 0 is not an image"):
        export_any(checkpoint, broken, task=task)


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
        "resample": "bilinear",
        "resize": [],
    }
    assert manifest["fused"]["Attention"] == 2
    assert not (repository / "digits/1/tokenizer.json").exists()
    assert (repository / "digits/labels.txt").read_text().split() == list("0123456789")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"precision": "int8"}, "--calibration with a folder of PNG and JPEG files"),
        (
            {"precision": "int8", "calibration_images": (b"GIF89a",) * 8},
            "image 0 is not an image",
        ),
        ({"precision": "int8", "calibration_images": (b"GIF89a",) * 7}, "there are 7 images"),
        ({"precision": "fp16"}, "precision is fp16"),
        ({"attention": "MultiHeadAttention"}, "attention is MultiHeadAttention"),
        ({"name": "../x"}, "name is"),
    ],
)
def test_what_cannot_be_written_is_refused_and_leaves_nothing(
    checkpoint: Checkpoint, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    settings = replace(ExportSettings("digits", tmp_path, "fp32"), **changes)
    with pytest.raises(ExportError, match=message):
        export_any(checkpoint, settings)
    assert not list(tmp_path.iterdir())


def files_of(images: LabelledImages) -> tuple[bytes, ...]:
    files = []
    for example in images.examples:
        content = BytesIO()
        Image.fromarray(example.pixels[0].numpy()).save(content, "PNG")
        files.append(content.getvalue())
    return tuple(files)


def test_int8_is_written_where_images_are_given_and_answers_alike(
    checkpoint: Checkpoint, images: LabelledImages, tmp_path: Path
) -> None:
    settings = ExportSettings("digits", tmp_path, calibration_images=files_of(images))
    manifest = export_any(checkpoint, settings).manifest
    (variant,) = manifest.variants
    assert (manifest.precision, variant.precision, manifest.left_out) == ("fp32", "int8", {})
    assert variant.parity["images_compared"] == 50
    assert variant.parity["same_labels"] >= 0.98
    assert variant.parity["max_neighbour_effect"] < 1e-5
    graph = onnx.load(tmp_path / "digits/1/model.int8.onnx")
    products = [node for node in graph.graph.node if node.op_type == "MatMulIntegerToFloat"]
    assert len(products) == 2 + 2 * 6


def test_the_command_calibrates_on_a_folder(
    checkpoint: Checkpoint, images: LabelledImages, tmp_path: Path
) -> None:
    save_checkpoint(checkpoint, tmp_path / "checkpoint")
    (tmp_path / "images" / "some").mkdir(parents=True)
    for number, file in enumerate(files_of(images)[:64]):
        (tmp_path / "images" / "some" / f"{number}.PNG").write_bytes(file)
    command = ["export", str(tmp_path / "checkpoint"), "--name", "digits"]
    command += ["--precision", "int8", "--model-repository", str(tmp_path / "repository")]
    result = CliRunner().invoke(app, [*command, "--calibration", str(tmp_path / "images")])
    assert result.exit_code == 0, result.output
    assert "images compared" in result.output
    for path, message in (
        ("images/some/0.PNG", "is calibrated on a folder of PNG"),
        ("checkpoint", "has no file that ends with .png"),
    ):
        result = CliRunner().invoke(app, [*command, "--calibration", str(tmp_path / path)])
        assert result.exit_code == 1
        assert message in " ".join(result.output.split())


def test_int8_that_answers_otherwise_is_left_out_with_the_reason(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    """Calibrated on black images, it knows nothing of light ones."""
    content = BytesIO()
    Image.new("L", (8, 8)).save(content, "PNG")
    light = BytesIO()
    Image.fromarray(np.random.default_rng(3).integers(0, 256, (8, 8), np.uint8)).save(light, "PNG")
    # The first of four is compared, the others are calibrated on.
    files = (light.getvalue(), *[content.getvalue()] * 3) * 4
    settings = ExportSettings("digits", tmp_path, calibration_images=files)
    reason = export_any(checkpoint, settings).manifest.left_out["int8"]
    assert "calibrate on images like yours" in reason


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(repository: Path) -> AsyncIterator[Served]:
    async with serving(repository, RealSessions()) as running:
        yield running


def stub(served: Served) -> Any:
    return vision_pb2_grpc.VisionServiceStub(served.channel)


def logits_of(checkpoint: Checkpoint, pixels: torch.Tensor) -> np.ndarray:
    """What PyTorch says of uint8 [N, C, H, W]."""
    config: Any = checkpoint.config
    with torch.inference_mode():
        found: np.ndarray = checkpoint.model(normalised(pixels, config.mean, config.std)).numpy()
    return found


def file_of(pixels: np.ndarray, kind: str = "PNG", **options: Any) -> bytes:
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
    dark_on_light = tmp_path / "dark.png"
    dark_on_light.write_bytes(file_of(255 - images.pixels()[1, 0].numpy()))
    answers = []
    for arguments in ([str(path)], [str(dark_on_light), "--invert"]):
        asked = [*command[:2], *arguments, *command[3:], "--json"]
        answer = await asyncio.to_thread(CliRunner().invoke, app, asked, env=environment)
        assert answer.exit_code == 0, answer.output
        answers.append(json.loads(answer.stdout)["results"][0])
    assert answers[0] == answers[1], "the same picture, once light and dark are exchanged"
    missing = ["classify-image", "digits", str(tmp_path / "two.png")]
    result = await asyncio.to_thread(CliRunner().invoke, app, missing, env=environment)
    assert isinstance(result.exception, SettingError)
