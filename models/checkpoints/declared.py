"""The folder of the network, its class and its task, as the small files of a folder declare them.

Imports no torch.
"""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from models.checkpoints import file_names
from models.errors import CheckpointError, shown
from models.json_files import read_json, read_object

# Purposes of classes of transformers, by the end of their names.
TASKS_BY_CLASS: Mapping[str, str] = {
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForMaskedLM": "fill-mask",
    "ForPreTraining": "fill-mask",
    "ForCausalLM": "text-generation",
    "LMHeadModel": "text-generation",
    "ForConditionalGeneration": "text-generation",
    "MTModel": "text-generation",
    "ForImageClassification": "image-classification",
    "Model": "embedding",
}


def encoder_folder(folder: Path) -> Path:
    """The folder of the network, which modules.json may name. Raises `CheckpointError`."""
    path = folder / file_names.MODULES_FILE
    if not path.is_file():
        return folder
    modules = read_json(path)
    first = modules[0] if isinstance(modules, list) and modules else {}
    place = str(first.get("path", "")) if isinstance(first, dict) else ""
    if PurePosixPath(place).is_absolute() or ".." in PurePosixPath(place).parts:
        raise CheckpointError(f"{path}: path is {shown(place)}, but must be in the folder")
    inner = folder / place
    return inner if (inner / file_names.CONFIG_FILE).is_file() else folder


def architecture_of(values: Mapping[str, Any]) -> str:
    """The class of transformers that config.json names; empty where it names none."""
    listed = values.get("architectures")
    return str(listed[0]) if isinstance(listed, list) and listed else ""


def task_of(architecture: str, folder: Path, values: Mapping[str, Any]) -> str:
    """The purpose that the files declare; an import may be told another."""
    own = read_object(folder / "config_sentence_transformers.json", optional=True)
    is_scorer = own.get("model_type") == "CrossEncoder" or "sentence_transformers" in values
    if (folder / file_names.MODULES_FILE).is_file() and not is_scorer:
        return "embedding"
    task = next((t for end, t in TASKS_BY_CLASS.items() if architecture.endswith(end)), "embedding")
    id2label = values.get("id2label")
    has_one = isinstance(id2label, dict) and len(id2label) == 1
    return "pair-scoring" if task == "text-classification" and has_one else task
