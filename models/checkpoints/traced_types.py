"""The networks that transformers itself has, by its own table: no family is named here.

Imports neither PyTorch nor transformers, as a plan for a folder asks too: the table is read of the
library's source. A type that the table has may still be refused, by what its network computes.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

from models.checkpoints.architectures import OWN_CODE, architecture_of
from models.checkpoints.known import known_types
from models.errors import CheckpointError, SettingError, check_choice, shown

NETWORKS = ("auto", "own", "transformers")
LIBRARY = "transformers"
CAUSAL, BODY, MASKS = "AutoModelForCausalLM", "AutoModel", "AutoModelForMaskedLM"
# Factories of transformers, and its tables of their classes; the first that has a class counts.
TABLES: Mapping[str, tuple[str, ...]] = {
    # Of classes that write texts, and of those that read images beside them.
    CAUSAL: ("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES"),
    "AutoModelForSequenceClassification": ("MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",),
    "AutoModelForTokenClassification": ("MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES",),
    "AutoModelForQuestionAnswering": ("MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES",),
    MASKS: ("MODEL_FOR_MASKED_LM_MAPPING_NAMES",),
    BODY: ("MODEL_MAPPING_NAMES", "MODEL_FOR_PRETRAINING_MAPPING_NAMES"),
}
ENTRY = re.compile(r'\("([^"]+)", "([^"]+)"\)')


@cache
def classes_of(factory: str) -> Mapping[str, tuple[str, ...]]:
    """Classes of a factory of transformers by model_type; none without the library.

    A type whose network reads images too may have one class for texts alone, and one for both.
    """
    spec = find_spec(LIBRARY)
    if spec is None or spec.origin is None:
        return {}
    source = (Path(spec.origin).parent / "models/auto/modeling_auto.py").read_text("utf-8")
    classes: dict[str, tuple[str, ...]] = {}
    for table in TABLES[factory]:
        _, _, rest = source.partition(f"\n{table} = OrderedDict(")
        for model_type, name in ENTRY.findall(rest.partition("\n)\n")[0]):
            classes[model_type] = (*classes.get(model_type, ()), name)
    return classes


def causal_classes() -> Mapping[str, tuple[str, ...]]:
    """Classes of transformers that write texts, by model_type."""
    return classes_of(CAUSAL)


def types_of_texts() -> tuple[str, ...]:
    """Every model_type that transformers has a network of texts for."""
    return tuple(dict.fromkeys(chain(*(classes_of(each) for each in TABLES if each != BODY))))


def factory_of(values: Mapping[str, Any], *, is_embedder: bool) -> str:
    """The factory of transformers for a folder by its config.json; empty where none is.

    A body alone is read where modules.json says how its vectors are made, or it is an encoder's.
    """
    model_type, stated = str(values.get("model_type")), architecture_of(values)
    is_encoder = model_type in classes_of(MASKS) or model_type not in causal_classes()
    if is_embedder or (not stated and is_encoder):
        return BODY
    if not stated:
        return CAUSAL
    having = (each for each in TABLES if stated in classes_of(each).get(model_type, ()))
    factory = next(having, "")
    return "" if factory == BODY and not is_encoder else factory


def is_traced(model_type: object, network: str = "auto") -> bool:
    """Whether the network of a folder is transformers' own, rather than ours.

    Raises `SettingError` where it must be, and the library has none that reads or writes texts.
    """
    check_choice("network", network, NETWORKS)
    has_class = model_type in types_of_texts()
    if network == LIBRARY and not has_class:
        limit = f"auto or own: transformers has no network of texts for {model_type}"
        raise SettingError("network", network, limit)
    return has_class and (
        network == LIBRARY or (network == "auto" and model_type not in known_types())
    )


def check_config(values: Mapping[str, Any], path: Path, *, is_embedder: bool = False) -> None:
    """Raise `CheckpointError` for a folder that transformers' own network is not all of.

    `is_embedder` says that modules.json makes vectors of the body, whatever the class is.
    """
    if values.get(OWN_CODE):
        raise CheckpointError(
            f"{path}: {OWN_CODE} names code of the folder's own, which is never run; where the "
            f"network is transformers' own all the same, take {OWN_CODE} out of config.json"
        )
    if not factory_of(values, is_embedder=is_embedder):
        model_type = str(values["model_type"])
        names = [classes_of(each).get(model_type, ()) for each in TABLES if each != BODY]
        expected = " or ".join(dict.fromkeys(chain.from_iterable(names)))
        raise CheckpointError(
            f"{path}: architectures has {shown(architecture_of(values))}, and a network of "
            f"transformers' own is read as {expected}, or as a body of which modules.json of "
            "sentence-transformers makes vectors"
        )
