"""The rounding that a config.json declares.

Imports no torch: a plan for a folder asks it, too. `quantization_config` (`compression_config` of
older files, `quantization` of MLX) names the method; one that is not in `TITLES`, or a setting in
`ONLY` that changes what the numbers mean, is refused by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.checkpoints.ways_out import NOT_ROUNDED
from models.errors import CheckpointError, shown

FIELDS = ("quantization_config", "quantization", "compression_config")  # the second is of MLX
MLX = "mlx"
CODES = (
    ".qweight",
    ".weight_packed",
    ".weight",
    ".W_q",
    "._weight_qdata",
)  # ends of names of rounded numbers
Settings = Mapping[str, Any]
# Methods whose weights can be read, as people call them.
TITLES: Mapping[str, str] = {
    "gptq": "GPTQ",
    "awq": "AWQ",
    "compressed-tensors": "compressed-tensors",
    "fp8": "FP8",
    "fbgemm_fp8": "FP8",
    "modelopt": "Model Optimizer",
    "bitsandbytes": "bitsandbytes",
    "hqq": "HQQ",
    "torchao": "torchao",
    MLX: "MLX",
}
# The values that settings of a method may have, where others store the numbers in another form.
ONLY: Mapping[str, Mapping[str, tuple[object, ...]]] = {
    "gptq": {"checkpoint_format": (None, "gptq", "gptq_v2")},
    "awq": {"version": (None, "gemm", "GEMM"), "bits": (None, 4)},
    "compressed-tensors": {
        "format": (
            *(None, "dense", "pack-quantized", "int-quantized", "float-quantized"),
            *("naive-quantized", "nvfp4-pack-quantized", "mxfp4-pack-quantized"),
            "mixed-precision",
        ),
        "transform_config": (None, {}),
    },
    "modelopt": {"quant_algo": (None, "FP8", "NVFP4")},
    MLX: {"mode": (None, "affine")},
}


@dataclass(frozen=True, slots=True)
class Rounding:
    """The method and its settings, and the file that states them."""

    method: str  # of `TITLES`
    settings: Settings
    path: Path

    @property
    def title(self) -> str:
        return TITLES[self.method]

    @property
    def is_kept(self) -> bool:
        """Whether the CPU computes with most of its weights as they are stored."""
        formats = (self.settings.get("format"), self.settings.get("quant_algo"))
        if "Float8" in str(self.settings.get("quant_type")):
            return False
        return not self.method.endswith("fp8") and not {"float-quantized", "FP8"} & {*formats}

    def of(self, module: str) -> Settings:
        """Settings of one weight, where the method states some by name."""
        own = self.settings.get(module)
        return own if isinstance(own, Mapping) else self.settings

    def weights_in(self, name: str, dtype: str, num_values: int) -> int:
        """Number of rounded weights in a tensor, by its header; 0 where it has none."""
        if not name.endswith(CODES) or dtype not in ("I32", "U32", "U8", "I8", "F8_E4M3"):
            return 0
        if dtype in ("I8", "F8_E4M3"):
            return num_values
        width = 8 if dtype == "U8" else 32
        return num_values * width // self._bits

    @property
    def _bits(self) -> int:
        groups = self.settings.get("config_groups")
        stated = [
            group["weights"].get("num_bits")
            for group in (groups.values() if isinstance(groups, Mapping) else ())
            if isinstance(group, Mapping) and isinstance(group.get("weights"), Mapping)
        ]
        first = next((bits for bits in (self.settings.get("bits"), *stated) if bits), 4)
        return first if isinstance(first, int) and 0 < first <= 8 else 4


def rounding_of(values: Mapping[str, Any], path: Path) -> Rounding | None:
    """The rounding that a config.json declares; None where its weights are floating point numbers.

    Raises CheckpointError for a method that cannot be read, and for a setting that is not known.
    """
    text = values.get("text_config")
    places = (values, *([text] if isinstance(text, Mapping) else []))
    stated = [(field, place[field]) for place in places for field in FIELDS if place.get(field)]
    if not stated:
        return None
    name_of_field, settings = stated[0]
    if not isinstance(settings, Mapping):
        raise CheckpointError(f"{path}: {name_of_field} is {shown(settings)}, expected an object")
    name = _method_name(settings)
    if name not in TITLES:
        known = ", ".join(TITLES)
        raise CheckpointError(
            f"{path}: {name_of_field} is not supported, and is {shown(settings)}: its "
            f"method {shown(name)} is none of {known}; {NOT_ROUNDED}"
        )
    for key, allowed in ONLY.get(name, {}).items():
        if settings.get(key) not in allowed:
            raise CheckpointError(
                f"{path}: {key} of {name_of_field} is {shown(settings[key])}, expected one of "
                f"{', '.join(str(each) for each in allowed if each)}; {NOT_ROUNDED}"
            )
    return Rounding(name, settings, path)


def _method_name(settings: Settings) -> str:
    if "quant_method" not in settings and {"bits", "group_size"} <= settings.keys():
        return MLX
    name = str(settings.get("quant_method")).lower()
    if name in ("auto-round", "auto_round"):  # in the form of another program, which it names
        return str(settings.get("packing_format", "")).rpartition("auto_")[2]
    of_older_files = settings.get("load_in_4bit") or settings.get("load_in_8bit")
    return "bitsandbytes" if of_older_files else name
