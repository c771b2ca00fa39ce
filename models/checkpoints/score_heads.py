"""Outputs of a `...ForSequenceClassification` by the files of its folder.

Their names, whether a text or a pair of texts has them, and what makes scores of logits. Where
transformers' pipeline and sentence-transformers' CrossEncoder have a rule, it is theirs:
`problem_type` decides, and of one output the activation that a cross-encoder names, else the
sigmoid. Knows nothing about weights but the number of outputs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.checkpoints.ways_out import ELSEWHERE
from models.choices import ScoreFunction
from models.errors import CheckpointError, SettingError, shown
from models.json_files import fields_of, read_object

SINGLE_LABEL, REGRESSION = "single_label_classification", "regression"
SCORES_BY_PROBLEM: dict[str, ScoreFunction] = {  # what makes scores of several logits
    SINGLE_LABEL: "softmax",
    "multi_label_classification": "sigmoid",
    REGRESSION: "identity",
}
TEXTS, PAIRS = "text-classification", "pair-scoring"
# Of one output, by the class that sentence-transformers names.
ACTIVATIONS: dict[str, ScoreFunction] = {"Sigmoid": "sigmoid", "Identity": "identity"}
ACTIVATION = "activation_fn"
OLD_ACTIVATION = "sbert_ce_default_activation_function"  # before sentence-transformers 4.0
OWN_CONFIG = "config_sentence_transformers.json"  # since 5.4, beside a modules.json
CROSS_ENCODER = "CrossEncoder"  # of model_type


@dataclass(frozen=True, slots=True)
class ScoreHead:
    """The meaning of a head's outputs; `labels` are their names, in the order of the logits."""

    labels: tuple[str, ...] = ()
    task: str = TEXTS
    score_function: ScoreFunction = ""  # of the manifest's; empty for the task's own


def score_head(
    values: Mapping[str, Any], num_outputs: int, folder: Path, task: str | None = None
) -> ScoreHead:
    """The outputs of the head of a folder with these values in its config.json.

    `task` decides between texts and pairs where there is one output. Raises `CheckpointError`,
    and `SettingError` for a task that the head is not for.
    """
    path = folder / "config.json"
    problem = values.get("problem_type") or SINGLE_LABEL
    if problem not in tuple(SCORES_BY_PROBLEM):
        expected = ", ".join(SCORES_BY_PROBLEM)
        raise CheckpointError(
            f"{path}: problem_type is {shown(problem)}, but must be one of {expected}: {ELSEWHERE}"
        )
    labels = names_of(values, num_outputs, path)
    if num_outputs > 1:
        if task == PAIRS:
            limit = f"auto or {TEXTS}: the head in {folder.name} has {num_outputs} outputs, not one"
            raise SettingError("task", task, limit)
        return ScoreHead(labels, TEXTS, SCORES_BY_PROBLEM[problem])
    activation = _activation(values, folder)
    if task is None:
        task = PAIRS if activation is not None or problem != REGRESSION else TEXTS
    by_problem: ScoreFunction = "identity" if problem == REGRESSION else "sigmoid"
    return ScoreHead(labels, task, activation or by_problem)


def names_of(
    values: Mapping[str, Any], num_outputs: int, path: Path, least: int = 1
) -> tuple[str, ...]:
    """`id2label` in the order of the logits, or LABEL_0, LABEL_1, ... where it is absent."""
    with fields_of(path, values.get("id2label") or {}) as id2label:
        names = {int(index): str(name) for index, name in id2label.items()}
    names = names or {index: f"LABEL_{index}" for index in range(num_outputs)}
    if num_outputs < least or sorted(names) != list(range(num_outputs)):
        raise CheckpointError(
            f"{path}: id2label has {len(names)} labels and the head {num_outputs} outputs, but "
            f"they must be as many, at least {least}, and numbered from 0: {ELSEWHERE}"
        )
    return tuple(names[index] for index in range(num_outputs))


def is_cross_encoder(folder: Path) -> bool:
    """Whether the files beside config.json say that it is one, as those of 2026 do."""
    return read_object(folder / OWN_CONFIG, optional=True).get("model_type") == CROSS_ENCODER


def _activation(values: Mapping[str, Any], folder: Path) -> ScoreFunction | None:
    """Score function of sentence-transformers; None for a folder that is not a cross-encoder's.

    Its own file comes first, as it does there.
    """
    of_config = values.get("sentence_transformers")
    sections = [
        read_object(folder / OWN_CONFIG, optional=True) if is_cross_encoder(folder) else None,
        of_config if isinstance(of_config, dict) else None,
        {ACTIVATION: values[OLD_ACTIVATION]} if values.get(OLD_ACTIVATION) else None,
    ]
    declared = [section for section in sections if section is not None]
    stated = [section[ACTIVATION] for section in declared if section.get(ACTIVATION)]
    if not stated:
        return "sigmoid" if declared else None
    package, _, name = str(stated[0]).rpartition(".")
    if not package.startswith("torch.nn") or name not in ACTIVATIONS:
        expected = " or ".join(f"torch.nn.{known}" for known in ACTIVATIONS)
        raise CheckpointError(
            f"{folder / 'config.json'}: the cross-encoder's {ACTIVATION} is {shown(stated[0])}, "
            f"but must be {expected}: write one of them there, or {ELSEWHERE}"
        )
    return ACTIVATIONS[name]
