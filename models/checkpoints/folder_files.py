"""The files of a folder: the use that an import has for each, or the reason that it is not read.

By patterns of names alone. Imports no torch.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from models.checkpoints import file_names

WEIGHTS, LIST_OF_WEIGHTS = "weights", "list of the files of weights"
# Uses of the files that an import reads, by patterns of their names; the first that fits counts.
USES: Mapping[str, str] = {
    "config.json": "sizes and kind of the network",
    "model*.safetensors": WEIGHTS,
    "rounded.safetensors": "weights with the numbers that a folder had rounded them to",
    "pytorch_model*.bin": WEIGHTS,
    "consolidated*.safetensors": WEIGHTS,
    "*.index*.json": LIST_OF_WEIGHTS,
    "params.json": "sizes of the network",
    "tokenizer.json": "tokenizer",
    "tokenizer_config.json": "settings of the tokenizer, and the chat template",
    "chat_template.*": "chat template",
    "vocab.*": "tokenizer, where tokenizer.json is missing",
    "merges.txt": "tokenizer, where tokenizer.json is missing",
    "special_tokens_map.json": "special tokens",
    "added_tokens.json": "special tokens",
    **dict.fromkeys(
        file_names.OTHER_TOKENIZERS, "tokenizer, where tokenizer.json and vocabularies are missing"
    ),
    "source.spm": "tokenizer",
    "generation_config.json": "sampling, and what ends a text",
    "genai_config.json": "sizes, sampling, what ends a text, and names of tensors",
    "modules.json": "steps from text to vector",
    "config_sentence_transformers.json": "prompts and similarity",
    "sentence_*_config.json": "longest text",
    "preprocessor_config.json": "preparation of images",
    "*_linear.pt": "maps of BGE-M3",
    "?_*/*": "a step from text to vector",
}
# Reasons of the files that no import reads.
NOT_READ: Mapping[str, str] = {
    "*.py": "code, which is never run",
    "*.pkl": "a pickle, which may hold code and is never run",
    "*.gguf": "another form of the weights",
    "*.onnx*": "another form of the weights",
    "onnx/*": "another form of the weights",
    "openvino*": "another form of the weights",
    "tf_model*": "another form of the weights",
    "flax_model*": "another form of the weights",
    "rust_model*": "another form of the weights",
    "consolidated*": "another form of the weights",
    "params.json": "sizes, which config.json has too",
    "*.safetensors": "other weights",
    "*.bin": "other weights",
    "optimizer*": "state of a training",
    "training_args*": "state of a training",
    "trainer_state*": "state of a training",
    "*.md": "for readers",
}
HIDDEN = ".*"


@dataclass(frozen=True, slots=True)
class File:
    """A file of the folder, and what it is for or why it is left out."""

    name: str
    num_bytes: int
    why: str


def shown_in(names: Collection[str], folder: Path) -> list[str]:
    """The files of these names that are not hidden, sorted."""
    return sorted(name for name in names if (folder / name).is_file() and not fnmatch(name, HIDDEN))


def is_weight(name: str) -> bool:
    """Whether the name is of weights of the whole network, which may be there in several forms."""
    return use_of(name, USES) in (WEIGHTS, LIST_OF_WEIGHTS)


def file_of(folder: Path, name: str, uses: Mapping[str, str]) -> File:
    """The file with its use, or with the reason that it is not read."""
    why = use_of(name, uses) or ("not read" if uses is NOT_READ else "")
    return File(name, (folder / name).stat().st_size, why)


def use_of(name: str, uses: Mapping[str, str]) -> str:
    """The use or reason of the first pattern that fits a name; empty where none does."""
    return next((why for pattern, why in uses.items() if fnmatch(name, pattern)), "")
