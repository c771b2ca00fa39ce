"""How a checkpoint's publisher has its texts sampled, by the names of the server's parameters.

Knows nothing about requests. `generation_config.json` may state more: what is not here changes
nothing where a text is served.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from models.json_files import check_number, check_whole, fields_of, read_object

GENERATION_CONFIG = "generation_config.json"
# What the server takes of each.
NUMBERS = {
    "temperature": (0.0, 100.0),
    "top_p": (1e-9, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.01, 100.0),
}
WHOLE = {"top_k": (0, 2**31 - 1), "max_new_tokens": (1, 2**20)}
RENAMED = {"max_new_tokens": "max_tokens"}


def read_sampling(folder: Path, *, is_greedy: bool = False) -> dict[str, float]:
    """The stated parameters; temperature 0 where sampling is turned off.

    With `is_greedy` it is off unless the file turns it on. Raises `CheckpointError` for a value
    that the server would refuse.
    """
    path = folder / GENERATION_CONFIG
    return sampling_in(path, read_object(path, optional=True), is_greedy=is_greedy)


def sampling_in(
    path: Path, stated: Mapping[str, Any], *, is_greedy: bool = False
) -> dict[str, float]:
    """Sampling parameters among the values of a file at this path; see `read_sampling`."""
    sampling: dict[str, float] = {}
    with fields_of(path, stated) as values:
        for name, limits in NUMBERS.items():
            if values.get(name) is not None:
                sampling[name] = check_number(name, values[name], *limits)
        for name, bounds in WHOLE.items():
            if values.get(name) is not None:
                sampling[RENAMED.get(name, name)] = check_whole(name, values[name], *bounds)
        does_sample = values.get("do_sample")
        if does_sample is False or (does_sample is None and is_greedy):
            sampling["temperature"] = 0.0
    return sampling
