"""The files beside a graph in ONNX: task, labels, tokens, pooling, and the use of vectors.

Reads nothing of the graph: the numbers of its outputs are given. Imports no PyTorch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from models.checkpoints import file_names
from models.checkpoints.declared import encoder_folder
from models.checkpoints.embedder_files import Step
from models.checkpoints.embedder_use import EmbedderUse, parse_dimensions
from models.checkpoints.folder_plan import Plan
from models.checkpoints.foreign_tokenizer import load_foreign_tokenizer
from models.checkpoints.image_processors import ImagePreparation, read_preparation
from models.checkpoints.score_heads import TEXTS, names_of, score_head
from models.checkpoints.sentence_transformers import EmbedderFolder
from models.checkpoints.settings_files import longest_text
from models.checkpoints.tokenizer_settings import TokenizerSettings
from models.data.tokenizer import TOKENIZER_FILE
from models.errors import CheckpointError
from models.json_files import check_whole, fields_of, read_object

DEFAULT = 512  # tokens, of a folder that states no length
MOST_TOKENS = 2**20
MOST_CHANNELS = 2**10  # of images
MOST_NUMBERS = 2**20  # of a vector, or of labels
# Networks whose positions begin behind the padding's id, as RoBERTa's.
AFTER_PADDING = (
    *("roberta", "xlm-roberta", "camembert", "xlm-roberta-xl", "mpnet", "longformer", "esm"),
    *("data2vec-text", "ibert", "xmod"),
)
MASKS = ("[MASK]", "<mask>")


@dataclass(frozen=True, slots=True)
class Overrides:
    """Settings that decide in place of a folder's files; None where they say nothing."""

    task: str | None = None  # of a head with one output
    pooling: str | None = None
    normalize: bool | None = None
    dimensions: str | None = None


@dataclass(frozen=True, slots=True)
class OnnxFolder:
    """All that the files beside a graph say of it."""

    task: str
    max_tokens: int
    is_length_stated: bool = True  # or else it is found by trials of the graph
    pad_token_id: int = 0
    first_position: int = 0  # of a text's first token
    labels: tuple[str, ...] = ()
    score_function: str = ""
    tokenizer: Tokenizer | None = None
    mask_token_id: int = 0
    pooling: str = "mean"
    is_pooling_stated: bool = False
    normalize: bool = False
    maps: tuple[Step, ...] = ()
    embedder: EmbedderUse | None = None
    image: ImagePreparation | None = None
    num_channels: int = 3

    @property
    def pooling_description(self) -> str:
        """A description of the pooling, for people; empty for a task without one."""
        if self.task != "embedding":
            return ""
        guessed = "" if self.is_pooling_stated else ", which no file states"
        maps = ", mapped" if self.maps else ""
        return f"{self.pooling}{maps}{', normalised' if self.normalize else ''}{guessed}"


def read_onnx_folder(
    plan: Plan, task: str, num_outputs: int | None, overrides: Overrides
) -> OnnxFolder:
    """The folder of a plan, for a task. Raises `CheckpointError` and `SettingError`.

    `num_outputs` are the logits of a text or token, None where the graph does not state them.
    """
    encoder = encoder_folder(plan.folder)
    path = encoder / file_names.CONFIG_FILE
    values = read_object(path, optional=True)
    if task == "image-classification":
        return _of_images(encoder, values, num_outputs, path)
    with fields_of(path, values):
        pad = check_whole("pad_token_id", values.get("pad_token_id") or 0, 0, 2**31 - 1)
        first = pad + 1 if values.get("model_type") in AFTER_PADDING else 0
        positions = values.get("max_position_embeddings") or MOST_TOKENS
        positions = check_whole("max_position_embeddings", positions, first + 1, 2**31 - 1)
    is_stated = bool(values.get("max_position_embeddings"))
    most = min(positions - first, longest_text(encoder) or (MOST_TOKENS if is_stated else DEFAULT))
    tokenizer = load_foreign_tokenizer(encoder)
    folder = OnnxFolder(task, most, is_stated, pad, first, tokenizer=tokenizer)
    return READERS[task](folder, plan.folder, values, num_outputs, overrides)


def _of_images(
    folder: Path, values: Mapping[str, Any], num_outputs: int | None, path: Path
) -> OnnxFolder:
    with fields_of(path, values):
        channels = check_whole("num_channels", values.get("num_channels", 3), 1, MOST_CHANNELS)
    labels = names_of(values, num_outputs or _stated(values), path, least=2)
    image = read_preparation(folder, channels)
    return OnnxFolder("image-classification", 1, labels=labels, image=image, num_channels=channels)


def _of_scores(
    folder: OnnxFolder,
    place: Path,
    values: Mapping[str, Any],
    num_outputs: int | None,
    overrides: Overrides,
) -> OnnxFolder:
    """Texts or pairs, by the same rules as for weights."""
    number = num_outputs or _stated(values)
    head = score_head(values, number, encoder_folder(place), overrides.task)
    labels = head.labels if head.task == TEXTS else ()
    return replace(folder, task=head.task, labels=labels, score_function=head.score_function)


def _of_tokens(
    folder: OnnxFolder,
    place: Path,
    values: Mapping[str, Any],
    num_outputs: int | None,
    _: Overrides,
) -> OnnxFolder:
    path = encoder_folder(place) / file_names.CONFIG_FILE
    return replace(folder, labels=names_of(values, num_outputs or _stated(values), path))


def _of_masks(
    folder: OnnxFolder,
    place: Path,
    _values: Mapping[str, Any],
    _num_outputs: int | None,
    _: Overrides,
) -> OnnxFolder:
    assert folder.tokenizer is not None, "a task of texts has one"
    stated = TokenizerSettings.read(encoder_folder(place), {}).special.get("mask_token")
    names = [str(getattr(stated, "content", stated))] if stated is not None else MASKS
    ids = (folder.tokenizer.token_to_id(name) for name in names)
    mask = next((each for each in ids if each is not None), None)
    if mask is None:
        raise CheckpointError(
            f"{place / TOKENIZER_FILE} has no mask, so its network fills none: --task embedding "
            "makes vectors of texts where the graph gives hidden states"
        )
    return replace(folder, mask_token_id=mask)


def _of_vectors(
    folder: OnnxFolder,
    place: Path,
    _values: Mapping[str, Any],
    _num_outputs: int | None,
    overrides: Overrides,
) -> OnnxFolder:
    use = EmbedderFolder.read(place)
    if use.three_ways is not None or use.terms is not None:
        raise CheckpointError(
            f"{place} has more than one vector for a text, which is taken of its weights alone: "
            "pip install 'attendant[cpu,train]', and leave out --variant"
        )
    embedder = EmbedderUse.read(place)
    if overrides.dimensions is not None:
        embedder = embedder.cut_to(parse_dimensions(overrides.dimensions, MOST_NUMBERS))
    return replace(
        folder,
        pooling=use.pooling if overrides.pooling is None else overrides.pooling,
        is_pooling_stated=use.is_declared or overrides.pooling is not None,
        normalize=use.normalize if overrides.normalize is None else overrides.normalize,
        maps=use.maps,
        embedder=embedder,
    )


def _as_it_is(folder: OnnxFolder, *_: object) -> OnnxFolder:
    return folder


def _stated(values: Mapping[str, Any]) -> int:
    """The number of outputs that config.json states, where the graph states none."""
    id2label = values.get("id2label")
    if isinstance(id2label, dict) and id2label:
        return len(id2label)
    return check_whole("num_labels", values.get("num_labels") or 2, 1, MOST_NUMBERS)


Reader = Callable[[OnnxFolder, Path, Mapping[str, Any], int | None, Overrides], OnnxFolder]
READERS: Mapping[str, Reader] = {
    "text-classification": _of_scores,
    "pair-scoring": _of_scores,
    "token-classification": _of_tokens,
    "question-answering": _as_it_is,
    "fill-mask": _of_masks,
    "embedding": _of_vectors,
}
