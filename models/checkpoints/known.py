"""The families of checkpoints that an import reads, by the names that people know them by.

Imports no PyTorch, for the help of `attendant import`. Each has its values of `model_type`; the
tables of families hold how each is read, and a test compares the two.
"""

from collections.abc import Mapping
from itertools import chain
from pathlib import Path

from models.checkpoints.ways_out import ELSEWHERE
from models.errors import CheckpointError, shown

Names = Mapping[str, tuple[str, ...]]

ENCODERS: Names = {
    "BERT": ("bert",),
    "RoBERTa": ("roberta",),
    "XLM-R": ("xlm-roberta",),
    "CamemBERT": ("camembert",),
    "DistilBERT": ("distilbert",),
    "ELECTRA": ("electra",),
    "ALBERT": ("albert",),
    "MPNet": ("mpnet",),
    "DeBERTa-v3": ("deberta-v2",),
    "ModernBERT": ("modernbert",),
    "Nomic": ("nomic_bert",),
    "GTE": ("gte", "new"),
}
DECODERS: Names = {
    "GPT-2": ("gpt2",),
    "Llama": ("llama",),
    "Mistral": ("mistral",),
    "Qwen": ("qwen2", "qwen3"),
    "Gemma": ("gemma", "gemma2", "gemma3", "gemma3_text"),
    "Phi": ("phi3",),
    "SmolLM": ("smollm3",),
    "OLMo": ("olmo2", "olmo3"),
    "Granite": ("granite",),
}
TRANSLATORS: Names = {
    "Marian": ("marian",),
    "BART": ("bart",),
    "mBART": ("mbart",),
    "T5": ("t5",),
    "mT5": ("mt5",),
    "M2M100": ("m2m_100",),
}
IMAGE_CLASSIFIERS: Names = {"ViT": ("vit",), "DeiT": ("deit",)}
KNOWN: Mapping[str, Names] = {
    "encoder": ENCODERS,
    "decoder": DECODERS,
    "encoder-decoder": TRANSLATORS,
    "classifier of images": IMAGE_CLASSIFIERS,
}


def known_types() -> list[str]:
    """Every `model_type` that is read."""
    return list(chain.from_iterable(chain.from_iterable(each.values()) for each in KNOWN.values()))


def unknown_type(model_type: object, path: Path) -> CheckpointError:
    """The error of a `model_type` that no family has."""
    return CheckpointError(
        f"{path}: model_type is {shown(model_type)}, but must be one of "
        f"{', '.join(known_types())}; {ELSEWHERE}"
    )


def known_names() -> str:
    """All families for people, as "an encoder (BERT, RoBERTa), ..."."""
    articles = {kind: "an" if kind[0] in "aeiou" else "a" for kind in KNOWN}
    parts = [f"{articles[kind]} {kind} ({', '.join(names)})" for kind, names in KNOWN.items()]
    return f"{', '.join(parts[:-1])} or {parts[-1]}"
