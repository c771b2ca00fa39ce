"""Purposes of networks by the class in `architectures` of config.json.

transformers chooses a network by `model_type` and the caller's task, and a class that is not its
own adds what only its own code computes. So a class that is not known is refused: its weights would
fit, or be left out, and the answers be of another network. Knows nothing about weights.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from models.checkpoints.ways_out import ELSEWHERE
from models.errors import CheckpointError, shown

BODY = "Model"
CLASSIFIER = "ForSequenceClassification"
TAGGER, ANSWERER = "ForTokenClassification", "ForQuestionAnswering"
MASKS, PRETRAINING = "ForMaskedLM", "ForPreTraining"
OF_ENCODERS = (BODY, CLASSIFIER, TAGGER, ANSWERER, MASKS, PRETRAINING)
OF_DECODERS = (BODY, "ForCausalLM", "LMHeadModel", CLASSIFIER, "ForConditionalGeneration")
ENCODERS = (  # how the classes of each family begin
    *("Bert", "Roberta", "XLMRoberta", "Camembert", "DistilBert", "Electra", "Albert", "MPNet"),
    *("Deberta", "DebertaV2", "ModernBert", "NomicBert", "Gte", "GTE", "New"),
)
DECODERS = (
    *("GPT2", "Llama", "LLaMA", "Mistral", "Qwen2", "Qwen3", "Gemma", "Gemma2", "Gemma3"),
    *("Gemma3Text", "Phi3", "SmolLM3", "Olmo2", "Olmo3", "Granite"),
)
# Classes of encoder-decoders and of images are compared where those are read.
OWN_CODE = "auto_map"


def architecture_of(values: Mapping[str, Any]) -> str:
    """The class, or nothing where the file names none."""
    listed = values.get("architectures") or [""]
    return str(listed[0]) if isinstance(listed, list) else str(listed)


def check_architecture(
    values: Mapping[str, Any], path: Path, *, is_decoder: bool, is_declared: bool
) -> None:
    """Raise `CheckpointError` for a class that is not one of transformers' of these families.

    `is_declared` says that modules.json makes an embedder of the folder: sentence-transformers then
    takes the body of `model_type`, whatever the class is, unless the folder has its own code.
    """
    name = architecture_of(values)
    starts, ends = (DECODERS, OF_DECODERS) if is_decoder else (ENCODERS, OF_ENCODERS)
    known = {f"{start}{end}" for start in starts for end in ends}
    if not name or name in known or (is_declared and not has_own_code(values)):
        return
    tasks = ", ".join(f"...{end}" for end in ends)
    raise CheckpointError(
        f"{path}: architectures has {shown(name)}, which is not known for the model_type "
        f"{shown(values.get('model_type'))}, and what it adds to the network would be left out; "
        f"known are {tasks} of transformers: {ELSEWHERE}"
    )


def has_own_code(values: Mapping[str, Any]) -> bool:
    """Whether the folder brings code of its own for the network."""
    stated = values.get(OWN_CODE)
    return isinstance(stated, dict) and any(str(name).startswith("AutoModel") for name in stated)
