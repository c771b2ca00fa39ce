"""Use of an embedder, as its publisher declares it: prompts, widths, the measure.

sentence-transformers writes prompts and the measure into config_sentence_transformers.json; the
widths that vectors may be cut to stand in config.json, by the names that vLLM reads too, or are
given at the import. Knows nothing about weights.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from models.checkpoints.setting_keys import check_keys
from models.errors import CheckpointError, SettingError, shown
from models.json_files import check_whole, fields_of, read_object

USE_FILE = "config_sentence_transformers.json"
CONFIG_FILE = "config.json"
MEASURES = ("cosine", "dot", "euclidean", "manhattan")
MAX_PROMPTS, MAX_PROMPT_CHARACTERS = 1_024, 4_096  # as the server has them


@dataclass(frozen=True, slots=True)
class EmbedderUse:
    """Prompts in front of texts, and the widths that vectors may be cut to."""

    prompts: Mapping[str, str] = field(default_factory=dict)  # by name
    default_prompt: str = ""  # its name
    dimensions: tuple[int, ...] = ()  # the most first, all below the width of the network
    similarity: str = ""  # one of MEASURES, or not declared

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Declarations of a folder of Hugging Face's; none where it declares nothing."""
        path = folder / USE_FILE
        with fields_of(path, read_object(path, optional=True)) as values:
            check_keys(path, values)
            prompts = _prompts_of(values.get("prompts") or {}, path)
            default = str(values.get("default_prompt_name") or "")
            similarity = values.get("similarity_fn_name") or ""
        if default and default not in prompts:
            raise CheckpointError(
                f"{path}: default_prompt_name is {shown(default)}, but prompts has "
                f"{', '.join(prompts) or 'none'}"
            )
        if similarity and similarity not in MEASURES:
            raise CheckpointError(
                f"{path}: similarity_fn_name is {shown(similarity)}, but must be one of "
                f"{', '.join(MEASURES)}"
            )
        path = folder / CONFIG_FILE
        with fields_of(path, read_object(path, optional=True)) as config:
            widths = config.get("matryoshka_dimensions") or ()
            if not isinstance(widths, list | tuple):
                raise SettingError("matryoshka_dimensions", widths, "a list of whole numbers")
            dimensions = tuple(
                check_whole("matryoshka_dimensions", width, 1, 2**31 - 1) for width in widths
            )
        return cls(prompts, default, dimensions, str(similarity))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Raises `TypeError` for a field that is not known."""
        return cls(**{**values, "dimensions": tuple(values.get("dimensions", ()))})

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def cut_to(self, dimensions: Sequence[int]) -> Self:
        """A use with these widths."""
        return replace(self, dimensions=tuple(dimensions))

    def within(self, width: int) -> Self:
        """A use with the widths below the network's own, the most first."""
        below = sorted({each for each in self.dimensions if each < width}, reverse=True)
        return self.cut_to(below)


def check_no_prompt(folder: Path) -> None:
    """Raise `CheckpointError` where a folder that is no embedder's puts a prompt before texts."""
    path = folder / USE_FILE
    with fields_of(path, read_object(path, optional=True)) as values:
        check_keys(path, values)
        name = values.get("default_prompt_name")
        prompts = values.get("prompts") or {}
        if name and prompts.get(name):
            raise CheckpointError(
                f"{path}: default_prompt_name is {shown(name)}, but only embedders have prompts: "
                "set it to null, and let clients put the prompt before their texts"
            )


def parse_dimensions(text: str, width: int) -> tuple[int, ...]:
    """Widths with commas between them, as a flag has them. Raises `SettingError`."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 1 <= int(part) <= width for part in parts):
        limit = f"whole numbers from 1 to {width} with commas between them, e.g. 512,256"
        raise SettingError("dimensions", text, limit)
    return tuple(map(int, parts))


def _prompts_of(prompts: Any, path: Path) -> dict[str, str]:  # noqa: ANN401 - of a file
    if not isinstance(prompts, dict):
        raise CheckpointError(f"{path}: prompts is {shown(prompts)}, but must be an object")
    if len(prompts) > MAX_PROMPTS:
        raise CheckpointError(f"{path} has {len(prompts)} prompts, but at most {MAX_PROMPTS}")
    for name, text in prompts.items():
        if text is not None and not isinstance(text, str):
            raise CheckpointError(f"{path}: the prompt {shown(name)} is no text")
        if text is not None and len(text) > MAX_PROMPT_CHARACTERS:
            raise CheckpointError(
                f"{path}: the prompt {shown(name)} has {len(text)} characters, but at most "
                f"{MAX_PROMPT_CHARACTERS} are supported"
            )
    return {str(name): text for name, text in prompts.items() if text is not None}
