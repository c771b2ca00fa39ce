"""The networks that transformers itself has, by its own table: no family is named here.

Imports neither PyTorch nor transformers, as a plan for a folder asks too: the table is read of the
library's source. A type that the table has may still be refused, by what its network computes.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from models.checkpoints import file_names
from models.checkpoints.architectures import OWN_CODE, architecture_of
from models.checkpoints.known import known_types
from models.checkpoints.rounded.declared import FIELDS as ROUNDED
from models.checkpoints.ways_out import NOT_ROUNDED
from models.errors import CheckpointError, SettingError, check_choice, shown

NETWORKS = ("auto", "own", "transformers")
LIBRARY = "transformers"
PICKLES = (file_names.PICKLED_FILE, file_names.PICKLED_INDEX_FILE)
TENSORS = (file_names.WEIGHTS_FILE, file_names.INDEX_FILE)
# Of classes that write texts, and of those that read images beside them.
TABLES = ("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES")
ENTRY = re.compile(r'\("([^"]+)", "([^"]+)"\)')


@cache
def causal_classes() -> Mapping[str, tuple[str, ...]]:
    """Classes of transformers that write texts, by model_type; none without the library.

    A type whose network reads images too may have one class for texts alone, and one for both.
    """
    spec = find_spec(LIBRARY)
    if spec is None or spec.origin is None:
        return {}
    source = (Path(spec.origin).parent / "models/auto/modeling_auto.py").read_text("utf-8")
    classes: dict[str, tuple[str, ...]] = {}
    for table in TABLES:
        _, _, rest = source.partition(f"\n{table} = OrderedDict(")
        for model_type, name in ENTRY.findall(rest.partition("\n)\n")[0]):
            classes[model_type] = (*classes.get(model_type, ()), name)
    return classes


def is_traced(model_type: object, network: str = "auto") -> bool:
    """Whether the network of a folder is transformers' own, rather than ours.

    Raises `SettingError` where it must be, and the library has none that writes texts.
    """
    check_choice("network", network, NETWORKS)
    has_class = model_type in causal_classes()
    if network == LIBRARY and not has_class:
        limit = f"auto or own: transformers has no network that writes texts for {model_type}"
        raise SettingError("network", network, limit)
    return has_class and (
        network == LIBRARY or (network == "auto" and model_type not in known_types())
    )


def check_config(values: Mapping[str, Any], path: Path) -> None:
    """Raise `CheckpointError` for a folder that transformers' own network is not all of."""
    if values.get(OWN_CODE):
        raise CheckpointError(
            f"{path}: {OWN_CODE} names code of the folder's own, which is never run; where the "
            f"network is transformers' own all the same, take {OWN_CODE} out of config.json"
        )
    rounded = next((name for name in ROUNDED if values.get(name)), None)
    if rounded is not None:
        raise CheckpointError(
            f"{path} has {rounded}, and rounded weights are read for networks of Attendant's own "
            f"alone: {NOT_ROUNDED}"
        )
    expected = causal_classes()[str(values["model_type"])]
    stated = architecture_of(values)
    if stated not in ("", *expected):
        raise CheckpointError(
            f"{path}: architectures has {shown(stated)}, and a network of transformers' own is "
            f"read where it writes texts, as {' or '.join(dict.fromkeys(expected))}"
        )


def check_weights(folder: Path) -> None:
    """Raise `CheckpointError` unless the folder's weights are no pickle."""
    if any((folder / name).is_file() for name in TENSORS):
        return
    pickled = next((name for name in PICKLES if (folder / name).is_file()), None)
    if pickled is not None:
        raise CheckpointError(
            f"{folder / pickled} is a pickle, which is not opened for a network of transformers' "
            "own: save the model as safetensors (save_pretrained of transformers does), and "
            "import that folder"
        )
    raise CheckpointError(f"{folder} has no {file_names.WEIGHTS_FILE}")
