"""The Vision Transformer: pixels in, class logits out (Dosovitskiy et al. 2020).

An image is cut into squares; each square, flattened and mapped linearly, is a token. A learned
class token goes before them, learned positions are added, and what the last layer makes of the
class token is classified. Nothing else knows that the tokens were pixels. DeiT (Touvron et al.
2021) puts a second token behind the class token, which learnt from another network's answers.

Knows nothing about files or training. The pixels are normalised already: `ViTConfig` says how
images are resized and normalised, for the code that prepares them.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, C channels, H and W pixels, N patches,
# P values of a patch, T class tokens, S = N + T tokens, D hidden size

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from models.choices import MAX_RESIZED, RESAMPLINGS
from models.errors import SettingError, check_choice, check_range
from models.networks.layers import ACTIVATIONS, Config, LearnedPositions, PreNormLayer, check_sizes

POSITIVE = ("height", "width", "channels", "patch_size", "num_layers", "intermediate_size")
# Positions begin about as loud as patches are: at BERT's 0.02 a small network takes three times as
# many epochs to find out where things are.
POSITION_STD = 0.5
MAX_PATCHES = 4_096  # attention takes their square; the paper's largest images have 1,024


@dataclass(frozen=True, slots=True)
class ViTConfig(Config):
    """Sizes of a Vision Transformer; the defaults are made for scikit-learn's digits."""

    section: ClassVar = "vision"
    unnamed: ClassVar[Mapping[str, Any]] = {
        "resample": "bilinear",
        "resize": (),
        "num_class_tokens": 1,
        "num_classified": 1,
    }

    height: int = 8  # pixels, as the width
    width: int = 8
    channels: int = 1  # 1 grey, 3 red, green and blue
    patch_size: int = 2  # pixels a side
    hidden_size: int = 64
    num_layers: int = 3
    num_heads: int = 4
    intermediate_size: int = 256
    layer_norm_eps: float = 1e-6
    dropout: float = 0.0  # of embeddings, attention weights and what joins the residual stream
    activation: str = "gelu"
    mean: tuple[float, ...] = (0.5,)  # per channel, of pixels from 0 to 1: what is taken from them
    std: tuple[float, ...] = (0.5,)  # per channel: what they are then divided by
    resample: str = "bilinear"  # how an image of another size is resized
    # To what: height and width, or the shorter side only; height x width are then cut from the
    # middle. Empty: to height x width themselves.
    resize: tuple[int, ...] = ()
    num_class_tokens: int = 1  # 2 with DeiT's distillation token
    num_classified: int = 1  # of them

    def __post_init__(self) -> None:
        check_sizes(self, ACTIVATIONS, POSITIVE)
        for name in ("height", "width"):
            pixels = getattr(self, name)
            if pixels % self.patch_size:
                raise SettingError(name, pixels, f"a multiple of patch_size {self.patch_size}")
        check_range("number of patches", self.num_patches, 1, MAX_PATCHES)
        for name in ("mean", "std"):
            values = getattr(self, name)
            if len(values) != self.channels or (name == "std" and min(values) <= 0.0):
                limit = f"{self.channels} numbers, above 0 for std: one per channel"
                raise SettingError(name, values, limit)
        check_choice("resample", self.resample, RESAMPLINGS)
        self._check_resize()
        check_range("num_class_tokens", self.num_class_tokens, 1, 2)
        check_range("num_classified", self.num_classified, 1, self.num_class_tokens)

    def _check_resize(self) -> None:
        """Raise SettingError unless an image, once resized, has the middle that is cut out."""
        if len(self.resize) > 2:
            raise SettingError(
                "resize", self.resize, "a height and a width, or one number, or none"
            )
        needed = (max(self.height, self.width),) if len(self.resize) == 1 else self.size
        for pixels, least in zip(self.resize, needed, strict=False):
            check_range("resize", pixels, least, MAX_RESIZED)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.height, self.width

    @property
    def num_patches(self) -> int:
        return (self.height // self.patch_size) * (self.width // self.patch_size)

    @property
    def max_positions(self) -> int:
        """Tokens of an image: its patches, and the class tokens."""
        return self.num_patches + self.num_class_tokens


def patches_of(pixels_BCHW: Tensor, patch_size: int) -> Tensor:
    """[B, N, P]: row by row from the top left, each patch flattened channel by channel."""
    num_channels, height, width = pixels_BCHW.shape[1:]
    down, across = height // patch_size, width // patch_size
    grid = pixels_BCHW.reshape(-1, num_channels, down, patch_size, across, patch_size)
    flat = grid.permute(0, 2, 4, 1, 3, 5).flatten(3)
    return flat.flatten(1, 2)


class VisionTransformer(nn.Module):
    """Patches and class tokens, L layers, a norm, and a linear map from the class tokens."""

    output_name = "logits"

    def __init__(self, config: ViTConfig, num_labels: int) -> None:
        super().__init__()
        self.config = config
        size = config.hidden_size
        self.patches = nn.Linear(config.channels * config.patch_size**2, size)
        self.class_token = nn.Parameter(torch.zeros(1, config.num_class_tokens, size))
        self.positions = LearnedPositions(config.max_positions, size)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(PreNormLayer(config) for _ in range(config.num_layers))
        self.norm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        self.output = nn.Linear(config.num_classified * size, num_labels)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        nn.init.normal_(self.positions.table.weight, std=POSITION_STD)

    @property
    def num_labels(self) -> int:
        return self.output.out_features

    def forward(self, pixel_values: Tensor) -> Tensor:
        """Logits [B, num_labels] of normalised pixels, float32 [B, C, H, W]."""
        patches_BND = self.patches(patches_of(pixel_values, self.config.patch_size))
        class_BTD = self.class_token.expand(patches_BND.shape[0], -1, -1)
        hidden_BSD = torch.cat([class_BTD, patches_BND], dim=1)
        hidden_BSD = self.dropout(hidden_BSD + self.positions(self.config.max_positions))
        for layer in self.layers:
            hidden_BSD = layer(hidden_BSD)
        classified_BTD = self.norm(hidden_BSD[:, : self.config.num_classified])
        logits: Tensor = self.output(classified_BTD.flatten(1))
        return logits
