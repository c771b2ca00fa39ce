"""A LoRA adapter's folder in PEFT's format: what it adds to the linear maps of a base.

Knows nothing about the base: modules have the names that PEFT gave them, and whether they fit is
for `models/checkpoints/adapters.py`. A linear map W [out, in] becomes W + s B A with A [r, in] and
B [out, r]; s is alpha / r, or alpha / sqrt(r) with `use_rslora` (Hu et al. 2021; Kalajdzievski
2023). What would compute something else is refused by name. `base_model_name_or_path` is opened by
nothing.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.checkpoints import file_names
from models.checkpoints.weights import read_tensors
from models.errors import CheckpointError, SettingError, shown
from models.json_files import check_number, check_whole, fields_of, read_object

ADAPTER_CONFIG, ADAPTER_WEIGHTS = file_names.ADAPTER_CONFIG, file_names.ADAPTER_WEIGHTS
LABELS_FILE = "labels.json"  # of a classifier's head; ours, PEFT has none
MAX_RANK = 4_096
MAX_NAME = 500  # letters of a tensor
MAX_ALPHA = 1e6
PREFIX = "base_model.model."
FACTOR = re.compile(r"(?P<module>.+)\.lora_(?P<side>[AB])\.weight")
# Patterns of names that can be matched in bounded time: no repetition but that of digits.
NAME_PATTERN = re.compile(r"\^?(?:[\w-]|\\?\.|\\d\+?|\[0-9\]\+?){1,256}\$?", re.ASCII)
MAX_REPETITIONS = 4
MERGE_FIRST = "merge the adapter with PEFT's merge_and_unload(), and import what that saves"
# Of `init_lora_weights`: others change the base too, which the adapter alone does not tell.
INITIALISATIONS = (True, False, None, "gaussian", "eva", "orthogonal")
# Fields that decide how an adapter is trained, found or described, and not what it computes.
WITHOUT_EFFECT = (
    *("auto_mapping", "base_model_name_or_path", "corda_config", "ensure_weight_tying"),
    *("eva_config", "exclude_modules", "fan_in_fan_out", "inference_mode", "init_lora_weights"),
    *("layers_pattern", "layers_to_transform", "loftq_config", "lora_dropout", "lora_ga_config"),
    *("megatron_config", "megatron_core", "peft_type", "peft_version", "qalora_group_size"),
    *("revision", "runtime_config", "target_modules", "task_type"),
)
READ = ("alpha_pattern", "bias", "lora_alpha", "modules_to_save", "r", "rank_pattern", "use_rslora")


@dataclass(frozen=True, slots=True)
class LoraFactors:
    """Factors added to a linear map [out, in]: b @ a, the scale within b."""

    a: NDArray[np.float32]  # [r, in]
    b: NDArray[np.float32]  # [out, r]

    @property
    def rank(self) -> int:
        return len(self.a)


@dataclass(frozen=True, slots=True)
class PeftAdapter:
    """The contents of a folder, under PEFT's names of modules without `base_model.model.`."""

    folder: Path
    base: str  # what it says its base is; only for messages
    factors: Mapping[str, LoraFactors]
    saved: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)  # whole weights
    targets: tuple[str, ...] | None = None  # ends of the modules' names, where it lists them
    layers: tuple[int, ...] | None = None  # the only ones that `targets` is about
    excludes: bool = False  # whether some of the targets are left out


@dataclass(frozen=True, slots=True)
class _Scales:
    """The rank and the scale of each module."""

    rank: int
    alpha: float
    ranks: Mapping[str, int]  # by the pattern of a name
    alphas: Mapping[str, float]
    is_rank_stabilised: bool

    def of(self, module: str) -> tuple[int, float]:
        rank = next((r for name, r in self.ranks.items() if _matches(name, module)), self.rank)
        alpha = next((a for name, a in self.alphas.items() if _matches(name, module)), self.alpha)
        return rank, alpha / (math.sqrt(rank) if self.is_rank_stabilised else rank)


def read_peft(folder: Path) -> PeftAdapter:
    """The adapter of a folder; raises `CheckpointError`."""
    if not folder.is_dir():
        raise CheckpointError(f"there is no folder {str(folder)!r} with an adapter of PEFT")
    path = folder / ADAPTER_CONFIG
    with fields_of(path, read_object(path)) as values:
        _check_fields(values)
        scales = _scales(values)
        heads = _names(values, "modules_to_save")
        base = str(values.get("base_model_name_or_path") or "")
        targets, layers = _targets(values), _layers(values)
        excludes = bool(values.get("exclude_modules"))
    arrays = _arrays(folder / ADAPTER_WEIGHTS)
    factors, saved = _sorted(arrays, heads, folder / ADAPTER_WEIGHTS)
    return PeftAdapter(
        folder,
        base,
        {name: _scaled(name, each, scales, folder) for name, each in factors.items()},
        saved,
        targets,
        layers,
        excludes,
    )


def _check_fields(values: Mapping[str, Any]) -> None:
    """Raises `SettingError` for what would be computed in another way."""
    if values["peft_type"] != "LORA":
        limit = f"LORA: {MERGE_FIRST}, where PEFT can merge it"
        raise SettingError("peft_type", values["peft_type"], limit)
    if values.get("bias", "none") != "none":
        raise SettingError("bias", values["bias"], f"none: {MERGE_FIRST}")
    if values.get("use_dora"):
        raise SettingError("use_dora", values["use_dora"], f"false: {MERGE_FIRST}")
    if values.get("init_lora_weights") not in INITIALISATIONS:
        limit = (
            "true, false, gaussian, eva or orthogonal, as others change the base too: save the "
            "adapter with path_initial_model_for_weight_conversion, or " + MERGE_FIRST
        )
        raise SettingError("init_lora_weights", values["init_lora_weights"], limit)
    for name, value in values.items():
        if value and name not in (*WITHOUT_EFFECT, *READ):
            field_name = name[:MAX_NAME]
            raise SettingError(field_name, value, f"absent or false: {MERGE_FIRST}")


def _scales(values: Mapping[str, Any]) -> _Scales:
    return _Scales(
        check_whole("r", values["r"], 1, MAX_RANK),
        _alpha("lora_alpha", values["lora_alpha"]),
        {
            _pattern("rank_pattern", name): check_whole(f"rank_pattern.{name}", rank, 1, MAX_RANK)
            for name, rank in (values.get("rank_pattern") or {}).items()
        },
        {
            _pattern("alpha_pattern", name): _alpha(f"alpha_pattern.{name}", alpha)
            for name, alpha in (values.get("alpha_pattern") or {}).items()
        },
        bool(values.get("use_rslora")),
    )


def _alpha(name: str, value: object) -> float:
    return check_number(name, value, -MAX_ALPHA, MAX_ALPHA)


def _pattern(field_name: str, name: str) -> str:
    """A regular expression of module names that takes no longer than their number of letters."""
    if not NAME_PATTERN.fullmatch(name) or name.count("+") > MAX_REPETITIONS:
        limit = "names of modules without repetition (but \\d+): list the modules one by one"
        raise SettingError(field_name, name, limit)
    return name


def _matches(pattern: str, module: str) -> bool:
    """Whether PEFT takes a pattern for that module: it may leave out the first parts."""
    return re.match(rf"(.*\.)?({pattern})$", module) is not None


def _names(values: Mapping[str, Any], field_name: str) -> tuple[str, ...]:
    names = values.get(field_name) or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise SettingError(field_name, names, "a list of names of modules")
    return tuple(names)


def _targets(values: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The modules that are listed; a regular expression, or `all-linear`, lists none.

    The weights tell then which modules are meant, so that no expression of a stranger is run.
    """
    stated = values.get("target_modules")
    if stated is None or isinstance(stated, str):
        return None
    return _names(values, "target_modules")


def _layers(values: Mapping[str, Any]) -> tuple[int, ...] | None:
    stated = values.get("layers_to_transform")
    if stated is None or stated == []:
        return None
    numbers = stated if isinstance(stated, list) else [stated]
    return tuple(check_whole("layers_to_transform", number, 0, 2**16) for number in numbers)


def _arrays(path: Path) -> dict[str, NDArray[np.float32]]:
    """All finite tensors of the file in float32, without `base_model.model.`."""
    if not path.is_file():
        raise CheckpointError(
            f"{path} is missing; an adapter in pickles is not read, save it again with PEFT"
        )
    arrays = {}
    for name, tensor in read_tensors(path).items():
        if not name.startswith(PREFIX) or len(name) > MAX_NAME:
            raise CheckpointError(
                f"{path}: {shown(name)} must begin with {PREFIX}, and have at most "
                f"{MAX_NAME} letters"
            )
        if not tensor.is_floating_point():
            raise CheckpointError(
                f"{path}: {shown(name)} has numbers of type {tensor.dtype}, but must have "
                "floating point numbers"
            )
        array = tensor.numpy()
        num_wrong = array.size - int(np.isfinite(array).sum())
        if num_wrong:
            raise CheckpointError(
                f"{path}: {shown(name)} has {num_wrong} of {array.size} numbers that are not "
                "finite (NaN or infinite), but must have none: its training has diverged"
            )
        arrays[name.removeprefix(PREFIX)] = array
    return arrays


Arrays = dict[str, NDArray[np.float32]]


def _sorted(
    arrays: Arrays, heads: tuple[str, ...], path: Path
) -> tuple[dict[str, tuple[NDArray[np.float32], NDArray[np.float32]]], Arrays]:
    """A and B of each module, and the weights of the heads that were trained whole."""
    sides: dict[str, Arrays] = {}
    saved: Arrays = {}
    for name, array in arrays.items():
        matched = FACTOR.fullmatch(name)
        module = name.rpartition(".")[0]
        if matched is not None:
            sides.setdefault(matched["module"], {})[matched["side"]] = array
        elif any(f".{module}.".find(f".{head}.") >= 0 for head in heads):
            saved[name] = array
        else:
            raise CheckpointError(f"{path}: {shown(name)} is {_unknown(name)}: {MERGE_FIRST}")
    for module, each in sides.items():
        if len(each) < 2:
            missing = f"{module}.lora_{'A' if 'B' in each else 'B'}.weight"
            raise CheckpointError(f"{path}: weights 1 missing: {shown(missing)}")
    if not sides:
        raise CheckpointError(f"{path} adapts no linear map: it has no lora_A and lora_B")
    return {module: (each["A"], each["B"]) for module, each in sides.items()}, saved


def _unknown(name: str) -> str:
    if "lora_embedding_" in name:
        return "of word vectors, but only linear maps may be adapted"
    if "lora_magnitude" in name:
        return "of DoRA, but only LoRA is supported"
    return "neither a factor of LoRA (lora_A, lora_B) nor of modules_to_save"


def _scaled(
    module: str,
    sides: tuple[NDArray[np.float32], NDArray[np.float32]],
    scales: _Scales,
    folder: Path,
) -> LoraFactors:
    """The factors of a module with the scale; raises `CheckpointError` for wrong shapes."""
    a, b = sides
    rank, scale = scales.of(module)
    if a.ndim != 2 or b.ndim != 2 or len(a) != rank or b.shape[1] != rank:
        raise CheckpointError(
            f"{folder / ADAPTER_WEIGHTS}: {shown(module)} has lora_A {list(a.shape)} and lora_B "
            f"{list(b.shape)}, but must have [{rank}, in] and [out, {rank}], as {ADAPTER_CONFIG} "
            f"gives it the rank {rank}"
        )
    return LoraFactors(a, b * np.float32(scale))
