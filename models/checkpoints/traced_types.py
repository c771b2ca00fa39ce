"""The networks that transformers itself has, by its own table: no family is named here.

Imports neither PyTorch nor transformers, as a plan for a folder asks too: the table is read of the
library's source. A type that the table has may still be refused, by what its network computes.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from models.checkpoints.known import known_types
from models.errors import SettingError, check_choice

NETWORKS = ("auto", "own", "transformers")
LIBRARY = "transformers"
TABLE = "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"
ENTRY = re.compile(r'\("([^"]+)", "([^"]+)"\)')


@cache
def causal_classes() -> Mapping[str, str]:
    """Classes of transformers that write texts, by model_type; none without the library."""
    spec = find_spec(LIBRARY)
    if spec is None or spec.origin is None:
        return {}
    source = (Path(spec.origin).parent / "models/auto/modeling_auto.py").read_text("utf-8")
    _, _, rest = source.partition(f"\n{TABLE} = OrderedDict(")
    return dict(ENTRY.findall(rest.partition("\n)\n")[0]))


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
