"""Read how a sentence-transformers folder turns hidden states into one vector.

Knows nothing about weights. Such a folder lists its steps in modules.json; an encoder, a pooling,
then maps of the vector and last a normalisation are what an embedder can do, and any other step is
refused by name.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from models.checkpoints.embedder_files import (
    DENSE,
    DROPOUT,
    LAYER_NORM,
    NORMALIZE,
    Step,
    TermPooling,
    check_normalize,
    has_three_ways,
)
from models.checkpoints.score_heads import is_cross_encoder
from models.checkpoints.setting_keys import check_keys
from models.checkpoints.ways_out import ELSEWHERE
from models.choices import TOGETHER
from models.errors import CheckpointError, SettingError, shown
from models.json_files import check_known, fields_of, read_json, read_object

MODULES_FILE = "modules.json"
PACKAGE = "sentence_transformers"
TRANSFORMER, POOLING, SPLADE = "Transformer", "Pooling", "SpladePooling"
MAPS = (DENSE, LAYER_NORM, DROPOUT)  # between pooling and normalising
POOLING_SIZES = ("word_embedding_dimension", "embedding_dimension")
# By the flags of older folders, in the order of their vectors where several are true.
POOLING_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "last",
}
POOLING_FIELDS = (*("pooling_mode", "include_prompt"), *POOLING_SIZES, *POOLING_FLAGS)
POOLING_MODES = {"lasttoken" if mode == "last" else mode: mode for mode in POOLING_FLAGS.values()}
# Steps that stand in place of an encoder, and what they are; the folder has no other network.
OTHER_NETWORKS = {
    "StaticEmbedding": "a table of vectors without attention",
    "Router": "several networks, of which a text's task chooses",
    "Asym": "several networks, of which a text's key chooses",
    "CLIPModel": "a network of texts and images",
    "WordEmbeddings": "a table of words",
    "BoW": "a count of words",
}


@dataclass(frozen=True, slots=True)
class EmbedderFolder:
    """The encoder's folder, and what follows its last hidden states."""

    encoder: Path
    pooling: str = "mean"  # of a plain encoder too: better than CLS where nothing was trained
    normalize: bool = False
    is_declared: bool = False  # modules.json says that this is an embedder
    three_ways: Path | None = None  # the folder of BGE-M3's further maps
    terms: TermPooling | None = None  # of a network that fills masks, as SPLADE
    maps: tuple[Step, ...] = ()  # between pooling and normalising

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The folder by its modules.json; without one it is a plain encoder, as a cross-encoder."""
        path = folder / MODULES_FILE
        three_ways = folder if has_three_ways(folder) else None
        if not path.is_file() and three_ways is not None:  # FlagEmbedding's own defaults
            return cls(folder, "cls", normalize=True, is_declared=True, three_ways=three_ways)
        if not path.is_file():
            return cls(folder)
        steps = _steps(path)
        names = [name for name, _ in steps]
        if names == [TRANSFORMER] and is_cross_encoder(folder):
            return cls(steps[0][1])
        if names in (["MLMTransformer", SPLADE], [TRANSFORMER, SPLADE]):
            return cls(steps[0][1], terms=TermPooling.read(steps[1][1] / "config.json"))
        _check_steps(names, path)
        normalize = names[-1] == NORMALIZE
        if normalize:
            check_normalize(steps[-1][1])
        maps = tuple(steps[2:-1] if normalize else steps[2:])
        if maps and three_ways is not None:
            raise CheckpointError(
                f"{path} lists {', '.join(names[2:])}, which is not supported beside BGE-M3's "
                f"files: {ELSEWHERE}"
            )
        return cls(
            steps[0][1],
            read_pooling(steps[1][1] / "config.json"),
            normalize,
            is_declared=True,
            three_ways=three_ways,
            maps=maps,
        )


def _steps(path: Path) -> list[Step]:
    """The modules' names and folders, in their order."""
    modules = read_json(path)
    if not isinstance(modules, list):
        raise CheckpointError(f"{path} must hold a list of modules")
    steps: list[Step] = []
    names: set[str] = set()
    for number, module in enumerate(modules):
        with fields_of(path, module) as values:
            check_keys(path, values)
            own = str(values.get("name", number))
            if own in names:  # there the later step takes the place of the earlier
                raise SettingError("name", own, "another for each module")
            names.add(own)
            package, _, name = str(values["type"]).rpartition(".")
            if package.partition(".")[0] != PACKAGE:
                raise CheckpointError(
                    f"{path} lists {shown(values['type'])}, but only modules of {PACKAGE} are "
                    f"known: code of the folder's own is never run: {ELSEWHERE}"
                )
            steps.append((name, path.parent / str(values["path"])))
    return steps


def _check_steps(names: list[str], path: Path) -> None:
    """Raise `CheckpointError` for steps that no embedder here can do, by their names."""
    rest = names[2:-1] if names[-1:] == [NORMALIZE] else names[2:]
    if names[:2] == [TRANSFORMER, POOLING] and set(rest) <= set(MAPS):
        return
    what = next(
        (f"; {each} is {OTHER_NETWORKS[each]}" for each in names if each in OTHER_NETWORKS), ""
    )
    raise CheckpointError(
        f"{path} lists {', '.join(names) or 'nothing'}, but only {TRANSFORMER}, {POOLING}, then "
        f"any of {', '.join(MAPS)}, and last optionally {NORMALIZE} are supported{what}: "
        f"{ELSEWHERE}"
    )


def read_pooling(path: Path) -> str:
    """Return the poolings that `pooling_mode` names, or the flags of older folders."""
    values = read_object(path)
    if values.get("include_prompt") is False:
        raise CheckpointError(
            f"{path}: include_prompt is False, but a pooling that leaves a text's prompt out is "
            f"not supported: {ELSEWHERE}"
        )
    modes_of_old = (name for name in values if name.startswith("pooling_mode_"))  # checked below
    check_known(values, (*POOLING_FIELDS, *modes_of_old), path)
    stated: Any = values.get("pooling_mode")
    if stated is None:
        flags = [name for name in values if name.startswith("pooling_mode_") and values[name]]
        known = [name for name in POOLING_FLAGS if name in flags]
        chosen = [POOLING_FLAGS[name] for name in known]
        unknown = [name for name in flags if name not in known]
    else:
        modes = [str(each) for each in (stated if isinstance(stated, list) else [stated])]
        chosen = [POOLING_MODES[mode] for mode in modes if mode in POOLING_MODES]
        unknown = [mode for mode in modes if mode not in POOLING_MODES]
    if unknown or not chosen:
        asked = " and ".join(shown(each) for each in unknown) or "no pooling"
        raise CheckpointError(
            f"{path} asks for {asked}, but must be of {', '.join(POOLING_MODES)}: {ELSEWHERE}"
        )
    return TOGETHER.join(dict.fromkeys(chosen))
