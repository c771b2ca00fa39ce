"""The Vision Transformer: what it sees, what it learns, and the images that it learns from."""
# ruff: noqa: N806 - suffixes are array layouts

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

from commands.train.vision import vision
from models.checkpoints.checkpoint import load_checkpoint, save_checkpoint
from models.data.images import LabelledImages, digits, normalised, read_images, shifted
from models.errors import DatasetError, SettingError
from models.networks.attention import attention_reference
from models.networks.vit import VisionTransformer, ViTConfig, patches_of
from models.recipes.vision import split_images, train_vit
from models.recipes.vision_settings import VisionSettings

SMALL = VisionSettings(
    hidden_size=16, num_layers=2, num_heads=2, epochs=3, max_shift=0, precision="off"
)


@pytest.fixture(scope="module")
def some_digits() -> LabelledImages:
    """200 images, of all ten."""
    found = digits()
    return LabelledImages(found.name, found.examples[:200])


def test_patches_go_row_by_row_and_each_channel_by_channel() -> None:
    """A 4 x 4 image of two channels: the second patch is columns 2 and 3 of rows 0 and 1."""
    image_BCHW = torch.arange(32.0).reshape(1, 2, 4, 4)
    patches_BNP = patches_of(image_BCHW, 2)
    assert patches_BNP.shape == (1, 4, 8)
    assert patches_BNP[0, 0].tolist() == [0, 1, 4, 5, 16, 17, 20, 21]
    assert patches_BNP[0, 1].tolist() == [2, 3, 6, 7, 18, 19, 22, 23]
    assert patches_BNP[0, 2].tolist() == [8, 9, 12, 13, 24, 25, 28, 29]


def test_mapping_patches_is_the_convolution_of_other_implementations() -> None:
    network = VisionTransformer(ViTConfig(channels=3, mean=(0.5,) * 3, std=(0.5,) * 3), 10)
    pixels = torch.randn(2, 3, 8, 8)
    kernel = network.patches.weight.reshape(64, 3, 2, 2)
    convolved = torch.nn.functional.conv2d(pixels, kernel, network.patches.bias, stride=2)
    torch.testing.assert_close(
        network.patches(patches_of(pixels, 2)), convolved.flatten(2).transpose(1, 2)
    )


def test_a_layer_looks_at_all_patches_from_a_normalised_copy() -> None:
    layer: Any = VisionTransformer(ViTConfig(hidden_size=16, num_heads=2), 3).eval().layers[0]
    hidden_BSD = torch.randn(2, 5, 16)
    normed_BSD = layer.attention_norm(hidden_BSD)
    query, key, value = (
        linear(normed_BSD).unflatten(-1, (2, 8)).transpose(1, 2)
        for linear in (layer.attention.query, layer.attention.key, layer.attention.value)
    )
    attended, weights = attention_reference(query, key, value)
    assert (weights > 0).all()
    middle_BSD = hidden_BSD + layer.attention.output(attended.transpose(1, 2).flatten(2))
    expected_BSD = middle_BSD + layer.feed_forward(layer.feed_forward_norm(middle_BSD))
    torch.testing.assert_close(layer(hidden_BSD), expected_BSD)


def test_logits_are_of_the_class_token_and_positions_matter() -> None:
    """Patches in another order are another image, though the same tokens."""
    torch.manual_seed(0)
    network = VisionTransformer(ViTConfig(), 10).eval()
    pixels = torch.randn(3, 1, 8, 8)
    assert network(pixels).shape == (3, 10)
    torch.testing.assert_close(network(pixels)[1:2], network(pixels[1:2]))
    assert not torch.allclose(network(pixels), network(pixels.flip(3)), atol=1e-3)
    with torch.no_grad():
        network.positions.table.weight.zero_()
    halves = torch.cat([pixels[..., 4:], pixels[..., :4]], dim=3)
    torch.testing.assert_close(network(pixels), network(halves), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"patch_size": 3}, "height"),
        ({"width": 9}, "width"),
        ({"num_heads": 5}, "num_heads"),
        ({"channels": 3}, "mean"),
        ({"std": (0.0,)}, "std"),
        ({"height": 1_024, "width": 1_024}, "number of patches"),
        ({"dropout": 1.0}, "dropout"),
    ],
)
def test_sizes_that_cannot_be_are_refused_by_name(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(SettingError) as refused:
        ViTConfig(**changes)
    assert refused.value.field == field


def test_digits_are_all_there_as_bytes(some_digits: LabelledImages) -> None:
    found = digits()
    assert len(found) == 1_797
    assert found.labels() == tuple("0123456789")
    assert found.pixels().shape == (1_797, 1, 8, 8)
    assert (int(found.pixels().min()), int(found.pixels().max())) == (0, 255)


def test_pixels_are_normalised_to_mean_0_and_deviation_1(some_digits: LabelledImages) -> None:
    values = normalised(some_digits.pixels(), *some_digits.mean_and_std())
    assert abs(values.mean().item()) < 1e-5
    assert values.std(correction=0).item() == pytest.approx(1.0, abs=1e-5)


def test_a_shift_moves_an_image_and_repeats_its_edge() -> None:
    pixels = torch.arange(9, dtype=torch.uint8).reshape(1, 1, 3, 3).expand(64, 1, 3, 3)
    moved = {tuple(image.flatten().tolist()) for image in shifted(pixels, 1)}
    assert len(moved) == 9
    assert tuple(range(9)) in moved
    assert (4, 5, 5, 7, 8, 8, 7, 8, 8) in moved  # up and to the left


def test_training_for_seconds_beats_chance_and_leaves_what_it_was_judged_by(
    some_digits: LabelledImages,
) -> None:
    """Ten labels: chance is a tenth."""
    splits = split_images(some_digits, SMALL)
    trained = train_vit(splits, replace(SMALL, epochs=8, learning_rate=5e-3))
    assert trained.evaluated_on == "test"
    assert trained.evaluation.num_rows == 40
    assert trained.evaluation.accuracy > 0.3
    assert trained.checkpoint.metrics["test_accuracy"] == trained.evaluation.accuracy
    assert trained.checkpoint.labels == tuple("0123456789")


def test_a_checkpoint_without_tokenizer_comes_back(
    some_digits: LabelledImages, tmp_path: Path
) -> None:
    trained = train_vit(split_images(some_digits, SMALL), replace(SMALL, epochs=1))
    save_checkpoint(trained.checkpoint, tmp_path / "vit")
    assert not (tmp_path / "vit" / "tokenizer.json").exists()
    found = load_checkpoint(tmp_path / "vit")
    assert (found.task, found.labels) == ("image-classification", trained.checkpoint.labels)
    pixels = torch.randn(2, 1, 8, 8)
    torch.testing.assert_close(found.model(pixels), trained.checkpoint.model(pixels))
    assert found.config == trained.checkpoint.config


def test_the_command_trains_from_a_file_to_a_checkpoint_with_its_reports(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (40, 8, 8)).astype(np.uint8)
    images[::2, :4] = 0
    np.savez(tmp_path / "set.npz", images=images, labels=np.arange(40) % 2)
    app = typer.Typer()
    app.command()(vision)
    sizes = ("--hidden-size", "16", "--num-layers", "1", "--num-heads", "2", "--epochs", "2")
    files = ("--data", str(tmp_path / "set.npz"), "--output", str(tmp_path / "vit"))
    result = CliRunner().invoke(app, [*files, *sizes], env={"COLUMNS": "120"})
    assert result.exit_code == 0, result.output
    assert "accuracy" in result.output
    names = {path.name for path in (tmp_path / "vit").iterdir()}
    reports = {"training.json", "confusion.png", "loss.png"}
    assert names == {"config.json", "model.safetensors", *reports}
    refused = CliRunner().invoke(app, [*files, "--patch-size", "0"], env={"COLUMNS": "120"})
    assert refused.exit_code == 2
    assert "--patch-size" in refused.output


def test_images_of_a_file_may_be_grey_or_coloured_and_labels_words(tmp_path: Path) -> None:
    colours = np.random.default_rng(0).integers(0, 256, (4, 6, 8, 3)).astype(np.uint8)
    np.savez(tmp_path / "set.npz", images=colours, labels=np.array(["cat", "dog"] * 2))
    found = read_images(tmp_path / "set.npz")
    assert found.labels() == ("cat", "dog")
    assert found.pixels().shape == (4, 3, 6, 8)
    assert torch.equal(found.pixels()[1, 2], torch.from_numpy(colours[1, :, :, 2]))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"images": np.zeros((2, 4, 4), np.uint8)}, "labels"),
        ({"images": np.zeros((2, 4, 4)), "labels": np.zeros(2, int)}, "float64"),
        ({"images": np.zeros((2, 4, 4, 2), np.uint8), "labels": np.zeros(2, int)}, "1 or 3"),
        ({"images": np.zeros((2, 4, 4), np.uint8), "labels": np.zeros(3, int)}, "each of 2"),
        ({"images": np.zeros((0, 4, 4), np.uint8), "labels": np.zeros(0, int)}, "each of 0"),
        ({"images": np.array([{}]), "labels": np.zeros(1, int)}, "pickle"),
    ],
)
def test_files_of_other_things_are_refused(
    tmp_path: Path, arrays: dict[str, Any], message: str
) -> None:
    np.savez(tmp_path / "set.npz", **arrays)
    with pytest.raises(DatasetError, match=message):
        read_images(tmp_path / "set.npz")


def test_a_file_that_is_no_npz_is_refused(tmp_path: Path) -> None:
    (tmp_path / "set.npz").write_bytes(b"images")
    with pytest.raises(DatasetError, match="npz"):
        read_images(tmp_path / "set.npz")


def test_drawings_are_told_apart_by_their_ground(some_digits: LabelledImages) -> None:
    """Light on dark, dark on light, and photographs, whose edges have many brightnesses."""
    assert some_digits.polarity() == "light on dark"
    turned = tuple(replace(image, pixels=255 - image.pixels) for image in some_digits.examples)
    assert LabelledImages("turned", turned).polarity() == "dark on light"
    noise = np.random.default_rng(0).integers(0, 256, (20, 1, 8, 8), np.uint8)
    photographs = tuple(
        replace(image, pixels=torch.from_numpy(pixels))
        for image, pixels in zip(some_digits.examples, noise, strict=False)
    )
    assert LabelledImages("noise", photographs).polarity() == ""


def test_a_checkpoint_says_which_drawings_it_was_trained_on(some_digits: LabelledImages) -> None:
    trained = train_vit(split_images(some_digits, SMALL), replace(SMALL, epochs=1))
    assert trained.checkpoint.origin == "trained on digits, light on dark"
