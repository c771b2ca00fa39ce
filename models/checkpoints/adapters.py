"""LoRA adapters in PEFT's format, and the checkpoint with what they add.

Knows nothing about how the folder is read (`models/checkpoints/peft.py`) or how the base's family
names its linear maps (`models/checkpoints/stored_maps.py`).
"""

import copy
import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from models.checkpoints.adapter_heads import with_head
from models.checkpoints.checkpoint import Checkpoint
from models.checkpoints.peft import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    LoraFactors,
    PeftAdapter,
)
from models.checkpoints.stored_maps import StoredMap, naming_of, stored_maps
from models.checkpoints.weights import check_names
from models.errors import CheckpointError, shown

LAYER_NUMBER = re.compile(r"\.(\d+)\.", re.ASCII)
# Nothing reads these where our network has none, as where a folder's base is loaded.
NEVER_NEEDED = re.compile(r"^pooler\.")


def fitted(adapter: PeftAdapter, checkpoint: Checkpoint) -> dict[str, LoraFactors]:
    """By the name of the linear map in the checkpoint's network, what is added to it.

    Maps that the family has in one come apart. Raises `CheckpointError` for an adapter of another
    base, and for one with whole weights too, which only `merged` can take.
    """
    if adapter.saved:
        raise CheckpointError(
            f"{adapter.folder / ADAPTER_WEIGHTS} has whole weights too "
            f"({shown(next(iter(adapter.saved)))} of modules_to_save), which cannot be added: "
            "merge the adapter by attendant import --adapter"
        )
    return _factors(adapter, checkpoint)


def _factors(adapter: PeftAdapter, checkpoint: Checkpoint) -> dict[str, LoraFactors]:
    path = adapter.folder / ADAPTER_WEIGHTS
    maps = stored_maps(checkpoint.model, checkpoint.source)
    plain = naming_of(checkpoint.model, checkpoint.source).plain_module
    factors = {plain(name): each for name, each in adapter.factors.items()}
    if len(factors) < len(adapter.factors):
        raise CheckpointError(f"{path} names modules twice, with and without a prefix")
    kept = {n: each for n, each in factors.items() if n in maps or not NEVER_NEEDED.search(n)}
    _check_modules(kept, maps, adapter, checkpoint)
    if adapter.targets is not None:
        whole = {plain(name) for name in adapter.targets}
        _check_targets(adapter, whole, factors, maps)
    found: dict[str, LoraFactors] = {}
    for name, each in kept.items():
        found |= _apart(name, each, maps[name], checkpoint.model, path)
    return found


def _check_modules(
    factors: Mapping[str, LoraFactors],
    maps: Mapping[str, StoredMap],
    adapter: PeftAdapter,
    checkpoint: Checkpoint,
) -> None:
    unknown = sorted(name for name in factors if name not in maps)
    if unknown:
        base = f", which says that it is of {shown(adapter.base)}" if adapter.base else ""
        known = ", ".join(sorted({name.rpartition(".")[2] for name in maps}))
        raise CheckpointError(
            f"{adapter.folder / ADAPTER_WEIGHTS} adapts {len(unknown)} modules that "
            f"{checkpoint.origin} has not, such as {shown(unknown[0])}; its linear maps are "
            f"{known}: give the adapter{base}, its own base. A base that was imported before "
            "adapters were known is to be imported again"
        )


def _check_targets(
    adapter: PeftAdapter,
    whole_names: set[str],
    factors: Mapping[str, LoraFactors],
    maps: Mapping[str, StoredMap],
) -> None:
    """Raise `CheckpointError` unless the weights are those of the modules that are listed."""

    def is_of_layers(name: str) -> bool:
        number = LAYER_NUMBER.search(name)
        return adapter.layers is None or (number is not None and int(number[1]) in adapter.layers)

    def is_targeted(name: str) -> bool:
        ends = tuple(f".{target}" for target in adapter.targets or ())
        return name in whole_names or name.endswith(ends)

    path = adapter.folder / ADAPTER_CONFIG
    for name in factors:
        if not (is_of_layers(name) and is_targeted(name)):
            field_name = "target_modules" if is_of_layers(name) else "layers_to_transform"
            raise CheckpointError(
                f"{path}: {field_name} does not have {shown(name)}, which "
                f"{ADAPTER_WEIGHTS} adapts: the two files are of different adapters"
            )
    if not adapter.excludes:
        missing = [name for name in maps if is_of_layers(name) and is_targeted(name)]
        check_names(factors, {**dict.fromkeys(factors), **dict.fromkeys(missing)}, path)


def _apart(
    name: str, whole: LoraFactors, stored: StoredMap, model: nn.Module, path: object
) -> dict[str, LoraFactors]:
    """The factors of each of our maps that a map of the family is made of."""
    weights = [_linear(model, module).weight for module in stored.modules]
    sizes = [len(weight) for weight in weights]
    out_features, in_features = sum(sizes), weights[0].shape[1]
    if whole.a.shape[1] != in_features or len(whole.b) != out_features:
        raise CheckpointError(
            f"{path}: {shown(name)} has lora_A {list(whole.a.shape)} and lora_B "
            f"{list(whole.b.shape)}, but the base's map has {in_features} inputs and "
            f"{out_features} outputs: give the adapter its own base"
        )
    parts = np.split(whole.b * np.float32(stored.factor), np.cumsum(sizes)[:-1])
    return {
        module: LoraFactors(whole.a, np.ascontiguousarray(part))
        for module, part in zip(stored.modules, parts, strict=True)
    }


def merged(adapter: PeftAdapter, checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint with the adapter added to its weights; the given one stays as it is.

    A classifier's head that the adapter has is taken too.
    """
    if adapter.saved:
        checkpoint = with_head(adapter, checkpoint)
    factors = _factors(adapter, checkpoint)
    model = copy.deepcopy(checkpoint.model)
    with torch.no_grad():
        for name, each in factors.items():
            weight = _linear(model, name).weight
            # In float64 the sum is as exact as float32 can hold.
            added = torch.from_numpy(each.b).double() @ torch.from_numpy(each.a).double()
            weight.copy_((weight.double() + added).float())
            if not torch.isfinite(weight).all():
                raise CheckpointError(
                    f"{adapter.folder}: {shown(name)} is not finite once the adapter is added"
                )
    origin = f"{checkpoint.origin}, with the adapter {adapter.folder.resolve().name}"
    return replace(checkpoint, model=model, origin=origin, metrics={})


def _linear(model: nn.Module, name: str) -> nn.Linear:
    module = model.get_submodule(name)
    assert isinstance(module, nn.Linear), "stored_maps names linear maps"
    return module
