"""An image classifier that shows its attention: its export, and its answers over the wire."""

import copy
from collections.abc import AsyncIterator
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

from export.errors import ExportError
from export.exporter import export_any
from export.recipes import image_attention
from export.recipes.image_attention import check_image_attention
from export.settings import ExportSettings
from models.checkpoints.checkpoint import NO_TOKENIZER, Checkpoint
from models.networks.attending import attending
from models.networks.vit import VisionTransformer, ViTConfig
from service.serving.tasks.task import softmax
from tests.fakes.serving import Served, refusal, serving
from tests.fakes.sessions import RealSessions

SIZES = ViTConfig(height=8, width=4, hidden_size=16, num_layers=2, num_heads=2, patch_size=2)
LABELS = ("ham", "spam", "eggs")
PIXELS = np.random.default_rng(3).integers(0, 256, (8, 4)).astype(np.uint8)


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    torch.manual_seed(5)
    network = VisionTransformer(SIZES, len(LABELS)).eval()
    return Checkpoint(network, "image-classification", LABELS, NO_TOKENIZER, 9, "random weights")


@pytest.fixture(scope="module")
def repository(checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model_repository")
    export_any(checkpoint, ExportSettings("looks", folder), task="attention")
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(repository: Path) -> AsyncIterator[Served]:
    async with serving(repository, RealSessions()) as running:
        yield running


def by_pytorch(checkpoint: Checkpoint) -> tuple[np.ndarray, np.ndarray]:
    """Weights [L, H, S, S] and logits of the image."""
    values = (torch.from_numpy(PIXELS).float() / 255.0 - 0.5) / 0.5
    with torch.inference_mode():
        weights, logits = attending(checkpoint.model)(values[None, None])
    return weights[0].numpy(), logits[0].numpy()


def attend(served: Served, **fields: Any) -> Any:
    content = BytesIO()
    Image.fromarray(PIXELS).save(content, "PNG")
    asked = {"model": "looks", "image": content.getvalue(), **fields}
    return vision_pb2_grpc.VisionServiceStub(served.channel).AttendImage(
        pb.AttendImageRequest(**asked)
    )


def test_another_networks_graph_and_an_image_of_too_many_weights_are_refused(
    checkpoint: Checkpoint, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = onnx.load(repository / "looks/1/model.onnx")
    other = copy.deepcopy(checkpoint.model)
    assert isinstance(other, VisionTransformer)
    figures = check_image_attention(other, graph)
    assert max(figures.values()) < 1e-5
    with torch.no_grad():
        other.output.bias.add_(0.5)
    with pytest.raises(ExportError, match="output is off by up to"):
        check_image_attention(other, graph)
    monkeypatch.setattr(image_attention, "MAX_VALUES", 2 * 2 * 9 * 9 - 1)
    with pytest.raises(ExportError, match="has 324 attention weights, an export has at most 323"):
        export_any(checkpoint, ExportSettings("looks", tmp_path), task="attention")
    assert not list(tmp_path.iterdir())


@pytest.mark.asyncio(loop_scope="module")
async def test_weights_and_labels_are_pytorchs(served: Served, checkpoint: Checkpoint) -> None:
    """All matrices, or those of chosen layers and heads; patches are 4 rows of 2."""
    weights, logits = by_pytorch(checkpoint)
    found = await attend(served)
    assert (found.model, found.version, found.width, found.height) == ("looks", "1", 4, 8)
    assert (found.patch_rows, found.patch_columns) == (4, 2)
    assert found.timings.total_seconds > 0
    scores = {label.label: label.score for label in found.labels}
    assert [scores[label] for label in LABELS] == pytest.approx(softmax(logits).tolist(), abs=1e-5)
    assert [label.score for label in found.labels] == sorted(scores.values(), reverse=True)
    assert [(each.layer, each.head) for each in found.matrices] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    matrices = np.array([each.weights for each in found.matrices]).reshape(2, 2, 9, 9)
    np.testing.assert_allclose(matrices, weights, atol=1e-5)
    (one,) = (await attend(served, layers=[1], heads=[0])).matrices
    np.testing.assert_allclose(one.weights, weights[1, 0].ravel(), atol=1e-5)


@pytest.mark.asyncio(loop_scope="module")
async def test_tensors_have_logits_and_weights_of_one_image_at_a_time(
    served: Served, checkpoint: Checkpoint
) -> None:
    (model,) = (await served.text.ListModels(text_pb2.ListModelsRequest())).models
    assert (model.task, tuple(model.labels)) == ("image-attention", LABELS)
    assert model.max_batch_size == 1
    pixels = ((PIXELS / 255.0 - 0.5) / 0.5).astype(np.float32)[None, None]
    request = service_pb2.ModelInferRequest(model_name="looks")
    request.inputs.add(name="pixel_values", datatype="FP32", shape=pixels.shape)
    request.raw_input_contents.append(pixels.tobytes())
    response = await served.inference.ModelInfer(request)
    assert {each.name: tuple(each.shape) for each in response.outputs} == {
        "logits": (1, 3),
        "attentions": (1, 2, 2, 9, 9),
    }


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"layers": [2]}, "layers has 2, the model has 2, from 0"),
        ({"heads": [0, 0]}, "heads repeats one of"),
        ({"image": b""}, "image 0 has 0 bytes"),
        ({"image": b"a text"}, "image 0 is not an image in a format that is read"),
    ],
)
async def test_what_is_no_image_or_no_layer_is_refused(
    served: Served, fields: dict[str, Any], message: str
) -> None:
    _, details = await refusal(attend(served, **fields))
    assert message in details
