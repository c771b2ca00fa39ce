"""Write what a network's adapters have learnt as PEFT's files, and read by it and by us.

Maps that the family has in one become one of the summed rank: A of all parts one below the other,
and in B the rows of each part beside zeros.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from models.checkpoints.adapter_heads import head_weights
from models.checkpoints.checkpoint import Checkpoint, replace_contents
from models.checkpoints.peft import ADAPTER_CONFIG, ADAPTER_WEIGHTS, LABELS_FILE, PREFIX
from models.checkpoints.stored_maps import StoredMap, naming_of, stored_maps
from models.networks.lora import LoraLinear, adapted_maps

TASK_TYPES = {"text-classification": "SEQ_CLS", "text-generation": "CAUSAL_LM"}


def adapter_contents(checkpoint: Checkpoint, base: str) -> dict[str, bytes]:
    """The files of the adapters of a checkpoint's network, whose base is called so."""
    model, source = checkpoint.model, checkpoint.source
    adapted = adapted_maps(model)
    assert adapted, "the caller checked that there are adapters"
    naming = naming_of(model, source)
    first = next(iter(adapted.values()))
    tensors: dict[str, Tensor] = {}
    ranks: dict[str, int] = {}
    for stored, each in stored_maps(model, source).items():
        if not adapted.keys() & set(each.modules):
            continue
        name = naming.with_prefix(stored)
        a, b = _whole(each, model)
        tensors[f"{PREFIX}{name}.lora_A.weight"] = a
        tensors[f"{PREFIX}{name}.lora_B.weight"] = b
        ranks[name] = len(a)
    rank = len(first.lora_A)
    others = {name: each for name, each in ranks.items() if each != rank}
    heads = head_weights(model, source)
    state = model.state_dict()
    tensors |= {f"{PREFIX}{naming.with_prefix(stored)}": state[n] for stored, n in heads.items()}
    # PEFT takes modules whole, and takes these names in addition to its own (classifier, score).
    modules_to_save = sorted({stored.partition(".")[0] for stored in heads})
    config = {
        "peft_type": "LORA",
        "task_type": TASK_TYPES[checkpoint.task],
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": first.scale * rank,
        "rank_pattern": others,
        "alpha_pattern": {name: first.scale * each for name, each in others.items()},
        "target_modules": sorted(ranks),
        "modules_to_save": modules_to_save or None,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": source.get("model_type") == "gpt2",
        "inference_mode": True,
    }
    contents = {
        ADAPTER_CONFIG: _to_json(config),
        ADAPTER_WEIGHTS: save({name: each.contiguous() for name, each in tensors.items()}),
    }
    if checkpoint.labels:
        contents[LABELS_FILE] = _to_json(list(checkpoint.labels))
    return contents


def save_adapter(
    checkpoint: Checkpoint, base: str, folder: Path, reports: Mapping[str, bytes]
) -> None:
    """Write the folder at once, with reports beside the adapter, as `save_checkpoint` does."""
    replace_contents(folder, {**adapter_contents(checkpoint, base), **reports})


def _whole(stored: StoredMap, model: nn.Module) -> tuple[Tensor, Tensor]:
    """A [r, in] and B [out, r] of a map of the family; parts without adapters are zeros."""
    linears = [model.get_submodule(module) for module in stored.modules]
    adapted = [linear for linear in linears if isinstance(linear, LoraLinear)]
    a = torch.cat([linear.lora_A for linear in adapted])
    rows: list[Tensor] = []
    first = 0
    for linear in linears:
        assert isinstance(linear, torch.nn.Linear), "stored_maps names linear maps"
        row = torch.zeros(linear.out_features, len(a))
        if isinstance(linear, LoraLinear):
            rank = len(linear.lora_A)
            row[:, first : first + rank] = linear.lora_B / stored.factor
            first += rank
        rows.append(row)
    return a.detach(), torch.cat(rows).detach()


def _to_json(value: Any) -> bytes:  # noqa: ANN401 - whatever JSON holds
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
