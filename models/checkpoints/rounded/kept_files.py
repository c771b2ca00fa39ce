"""Kept weights in a file of safetensors, beside the floating point numbers of a checkpoint."""

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from models.checkpoints.rounded.kept import Kept
from models.errors import CheckpointError, reason

WEIGHTS = "weights"  # the key of the list of what is no array


def to_bytes(weights: Sequence[Kept]) -> bytes:
    """The content of the file."""
    arrays, others = {}, []
    for place, weight in enumerate(weights):
        stated = {}
        for field in fields(Kept):
            value = getattr(weight, field.name)
            if isinstance(value, np.ndarray):
                arrays[f"{place}.{field.name}"] = np.ascontiguousarray(value)
            elif value is not None:
                stated[field.name] = value.hex() if isinstance(value, bytes) else value
        others.append(stated)
    return save(arrays, {WEIGHTS: json.dumps(others)})


def read_kept(path: Path) -> tuple[Kept, ...]:
    """The weights of a file. Raises CheckpointError for one that is damaged."""
    try:
        with safe_open(path, framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            listed = json.loads((file.metadata() or {})[WEIGHTS])
        return tuple(
            Kept(
                **{
                    **stated,
                    "shape": tuple(stated["shape"]),
                    "first": bytes.fromhex(stated["first"]),
                    "digest": bytes.fromhex(stated["digest"]),
                    **{
                        name.partition(".")[2]: value
                        for name, value in arrays.items()
                        if name.startswith(f"{place}.")
                    },
                }
            )
            for place, stated in enumerate(listed)
        )
    except (SafetensorError, OSError, LookupError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {reason(error)}; import it again") from error
