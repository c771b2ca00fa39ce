"""ViT and DeiT of transformers, with their preparation of images, and the folders refused."""

import json
from collections.abc import AsyncIterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
import torch
import transformers
from attendant.v1 import vision_pb2 as pb
from attendant.v1 import vision_pb2_grpc
from PIL import Image
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.deit.image_processing_pil_deit import DeiTImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from export.errors import ExportError
from export.exporter import export_any
from export.recipes.vision import image_fields
from export.settings import ExportSettings
from models.checkpoints.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from models.errors import CheckpointError
from service.errors import InvalidArgument
from service.runtime.images import ImageLimits, decode_images
from service.serving.tasks.task import softmax
from tests.fakes.serving import Served, serving
from tests.fakes.sessions import RealSessions

LIMITS = ImageLimits(2**20, 2**20)
SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "image_size": 32,
    "patch_size": 8,
    "id2label": {0: "cat", 1: "dog", 2: "hen"},
}
NETWORKS: dict[str, tuple[type[Any], type[Any], dict[str, Any]]] = {
    "vit": (transformers.ViTConfig, transformers.ViTForImageClassification, {}),
    "vit, other sizes": (
        transformers.ViTConfig,
        transformers.ViTForImageClassification,
        {
            "image_size": [24, 40],
            "qkv_bias": False,
            "hidden_act": "gelu_new",
            "layer_norm_eps": 1e-2,
        },
    ),
    "deit": (transformers.DeiTConfig, transformers.DeiTForImageClassification, {}),
    "deit, teacher": (
        transformers.DeiTConfig,
        transformers.DeiTForImageClassificationWithTeacher,
        {},
    ),
}
TO_32 = {"height": 32, "width": 32}
PROCESSORS: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "bilinear": (ViTImageProcessorPil, {"size": TO_32}),
    "bicubic": (
        ViTImageProcessorPil,
        {"size": TO_32, "resample": 3, "image_mean": [0.1, 0.2, 0.3], "image_std": [0.9, 0.7, 1.2]},
    ),
    "lanczos": (ViTImageProcessorPil, {"size": TO_32, "resample": 1}),
    "not rescaled": (
        ViTImageProcessorPil,
        {"size": TO_32, "do_rescale": False, "image_mean": 127.5, "image_std": 127.5},
    ),
    "another scale": (ViTImageProcessorPil, {"size": TO_32, "rescale_factor": 1 / 127.5}),
    "not normalised": (ViTImageProcessorPil, {"size": TO_32, "do_normalize": False}),
    "the middle": (
        DeiTImageProcessorPil,
        {"size": {"height": 37, "width": 45}, "crop_size": TO_32},
    ),
    "the middle of the shorter side": (
        CLIPImageProcessorPil,
        {"size": {"shortest_edge": 41}, "crop_size": TO_32},
    ),
}


def network(name: str) -> Any:
    """A random network of transformers, whose norms stay near 1, so that it reacts to its input."""
    config, model, changes = NETWORKS[name]
    torch.manual_seed(4)
    reference = model(config(**{**SIZES, **changes})).eval()
    for parameter in reference.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return reference


def files() -> list[bytes]:
    """A wide PNG, a high JPEG, a grey PNG, and one that is as large as the network takes."""
    random = np.random.default_rng(7)
    made = []
    for shape, kind in (
        ((50, 90, 3), "PNG"),
        ((130, 61, 3), "JPEG"),
        ((48, 47), "PNG"),
        ((32, 32, 3), "PNG"),
    ):
        content = BytesIO()
        Image.fromarray(random.integers(0, 256, shape, np.uint8)).save(content, kind)
        made.append(content.getvalue())
    return made


def write(folder: Path, reference: Any, processor: Any, **changes: object) -> Path:
    """A folder as the hub has it; `changes` are of the preparation's file."""
    reference.save_pretrained(folder)
    processor.save_pretrained(folder)
    change(folder / "preprocessor_config.json", **changes)
    return folder


def change(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def prepared(checkpoint: Checkpoint) -> np.ndarray:
    """The files as the server prepares them by the manifest."""
    image = image_fields(checkpoint, ExportSettings("seen"))["image"]
    return decode_images(files(), image, LIMITS).pixel_values


def by_transformers(processor: Any) -> np.ndarray:
    images = [Image.open(BytesIO(file)).convert("RGB") for file in files()]
    values: np.ndarray = processor(images, return_tensors="np")["pixel_values"]
    return values


@torch.inference_mode()
def largest_difference(reference: Any, checkpoint: Checkpoint, pixels: np.ndarray) -> float:
    tensor = torch.from_numpy(pixels)
    return float((checkpoint.model(tensor) - reference(tensor).logits).abs().max())


@pytest.mark.parametrize("name", NETWORKS)
def test_logits_equal_those_of_transformers(name: str, tmp_path: Path) -> None:
    """Also once the checkpoint was written and read again."""
    reference = network(name)
    height, width = reference.config.image_size if "sizes" in name else (32, 32)
    processor = ViTImageProcessorPil(size={"height": height, "width": width})
    folder = write(tmp_path / "hub", reference, processor)
    save_checkpoint(load_checkpoint(folder), tmp_path / "ours")
    checkpoint = load_checkpoint(tmp_path / "ours")
    assert (checkpoint.task, checkpoint.labels) == ("image-classification", ("cat", "dog", "hen"))
    pixels = prepared(checkpoint)
    np.testing.assert_allclose(pixels, by_transformers(processor), atol=1e-5)
    assert largest_difference(reference, checkpoint, pixels) < 1e-4


def test_the_comparison_tells_two_forms_of_gelu_apart(tmp_path: Path) -> None:
    reference = network("vit, other sizes")
    processor = ViTImageProcessorPil(size={"height": 24, "width": 40})
    folder = write(tmp_path, reference, processor)
    change(folder / "config.json", hidden_act="gelu")
    checkpoint = load_checkpoint(folder)
    assert largest_difference(reference, checkpoint, prepared(checkpoint)) > 5e-4


@pytest.mark.parametrize("name", PROCESSORS)
def test_images_are_prepared_as_transformers_does(name: str, tmp_path: Path) -> None:
    kind, values = PROCESSORS[name]
    processor = kind(**values)
    checkpoint = load_checkpoint(write(tmp_path, network("vit"), processor))
    expected = by_transformers(processor)
    np.testing.assert_allclose(prepared(checkpoint), expected, atol=1e-5, rtol=1e-5)


def test_an_older_file_says_less(tmp_path: Path) -> None:
    """One number for both sides, a feature extractor, and no scale."""
    folder = write(tmp_path, network("vit"), ViTImageProcessorPil())
    older = {"feature_extractor_type": "ViTFeatureExtractor", "do_resize": True, "size": 32}
    (folder / "preprocessor_config.json").write_text(json.dumps(older))
    checkpoint = load_checkpoint(folder)
    expected = by_transformers(ViTImageProcessorPil(size=TO_32))
    np.testing.assert_allclose(prepared(checkpoint), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        ("config.json", {"architectures": ["ViTModel"]}, "must be ViTForImageClassification"),
        ("config.json", {"problem_type": "multi_label_classification"}, "of images only"),
        ("config.json", {"image_size": 64}, "image_size is '64 x 64', but must be 32 x 32"),
        ("config.json", {"patch_size": [8, 4]}, "patch_size"),
        ("config.json", {"hidden_act": "mish"}, "hidden_act"),
        ("preprocessor_config.json", {"do_resize": False}, "do_resize is False"),
        ("preprocessor_config.json", {"image_processor_type": "BeitImageProcessor"}, "must be one"),
        ("preprocessor_config.json", {"size": {"longest_edge": 32}}, "size"),
        ("preprocessor_config.json", {"size": {"shortest_edge": 32}}, "where no middle is cut out"),
        ("preprocessor_config.json", {"do_center_crop": True, "crop_size": 40}, "crop_size"),
        ("preprocessor_config.json", {"size": {"height": 10**7, "width": 32}}, "size.height"),
        ("preprocessor_config.json", {"image_std": [0.5, 0.0, 0.5]}, "image_std"),
        ("preprocessor_config.json", {"image_mean": [0.5, 0.5]}, "3 numbers"),
        ("preprocessor_config.json", {"resample": 9}, "resample"),
        ("preprocessor_config.json", {"rescale_factor": "x"}, "rescale_factor"),
    ],
)
def test_what_would_be_computed_otherwise_is_refused_by_name(
    file: str, changes: dict[str, object], message: str, tmp_path: Path
) -> None:
    folder = write(tmp_path, network("vit"), ViTImageProcessorPil(size=TO_32))
    change(folder / file, **changes)
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(folder)


def test_a_folder_that_does_not_say_how_images_are_prepared_is_refused(tmp_path: Path) -> None:
    network("vit").save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=r"preprocessor_config.json is missing"):
        load_checkpoint(tmp_path)


def test_a_long_narrow_image_is_refused_before_it_is_enlarged(tmp_path: Path) -> None:
    """30,000 x 1 pixels would become 1,230,000 x 41."""
    kind, values = PROCESSORS["the middle of the shorter side"]
    checkpoint = load_checkpoint(write(tmp_path, network("vit"), kind(**values)))
    image = image_fields(checkpoint, ExportSettings("seen"))["image"]
    content = BytesIO()
    Image.new("RGB", (30_000, 1)).save(content, "PNG")
    with pytest.raises(InvalidArgument, match="become 1230000 x 41"):
        decode_images([content.getvalue()], image, LIMITS)


def test_attention_is_shown_where_one_token_is_before_the_patches(tmp_path: Path) -> None:
    folder = write(tmp_path / "hub", network("deit"), ViTImageProcessorPil(size=TO_32))
    settings = ExportSettings("seen", tmp_path)
    with pytest.raises(ExportError, match="2 tokens before its patches"):
        export_any(load_checkpoint(folder), settings, task="attention")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    folder = tmp_path_factory.mktemp("vit")
    kind, values = PROCESSORS["the middle"]
    for name in ("vit", "deit, teacher"):
        checkpoint = load_checkpoint(write(folder / "hub" / name, network(name), kind(**values)))
        export_any(checkpoint, ExportSettings(name[:4], folder / "repository", "fp32"))
    images = tuple(files() * 2)
    settings = ExportSettings("int8", folder / "repository", "int8", calibration_images=images)
    export_any(load_checkpoint(folder / "hub" / "vit"), settings)
    async with serving(folder / "repository", RealSessions()) as running:
        yield running


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("name", "model", "largest"),
    [("vit", "vit", 1e-4), ("deit, teacher", "deit", 1e-4), ("vit", "int8", 0.1)],
)
async def test_served_scores_are_those_of_processor_and_model(
    served: Served, name: str, model: str, largest: float
) -> None:
    kind, values = PROCESSORS["the middle"]
    with torch.inference_mode():
        logits = network(name)(torch.from_numpy(by_transformers(kind(**values)))).logits.numpy()
    request = pb.ClassifyImageRequest(model=model, images=files(), all_scores=True)
    response = await vision_pb2_grpc.VisionServiceStub(served.channel).ClassifyImage(request)
    sizes = [(result.width, result.height) for result in response.results]
    assert sizes == [(90, 50), (61, 130), (47, 48), (32, 32)]
    for result, expected in zip(response.results, softmax(logits), strict=True):
        found = {label.label: label.score for label in result.labels}
        assert [found[label] for label in ("cat", "dog", "hen")] == pytest.approx(
            expected.tolist(), abs=largest
        )
