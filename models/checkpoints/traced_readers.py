"""Build networks of transformers' own that read texts, from a folder as it stands there.

What the folder is for decides the factory of transformers: `factory_of` has it. Nothing of a folder
is run. A weight that the network does not have is left out where it is of a head of the class that
config.json names, and vectors are made of the body; any other is refused by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from models.checkpoints import file_names
from models.checkpoints.architectures import architecture_of
from models.checkpoints.decoder_readers import ending_as_declared
from models.checkpoints.foreign_tokenizer import load_foreign_tokenizer
from models.checkpoints.score_heads import PAIRS, names_of, score_head
from models.checkpoints.sentence_transformers import EmbedderFolder
from models.checkpoints.settings_files import longest_text
from models.checkpoints.traced import check_loading, loaded
from models.checkpoints.traced_types import BODY, MASKS, check_config, factory_of
from models.checkpoints.ways_out import ELSEWHERE
from models.errors import CheckpointError
from models.json_files import read_object
from models.networks.reader_makers import FACTORIES, reader_of
from models.networks.traced_readers import (
    TracedAnswerer,
    TracedClassifier,
    TracedEmbedder,
    TracedMaskedWords,
    TracedPairScorer,
    TracedReader,
    TracedTokenClassifier,
    without_pooler,
)

TOKENIZER_CONFIG = "tokenizer_config.json"


@dataclass(frozen=True, slots=True)
class TracedReaderFolder:
    """A network of a folder, its labels, the longest text, and the tokenizer with its ends."""

    model: TracedReader
    labels: tuple[str, ...]
    max_tokens: int
    tokenizer: Tokenizer


def load_traced_reader(
    use: EmbedderFolder, context: int | None = None, task: str | None = None
) -> TracedReaderFolder:
    """The network of a folder for texts of at most `context` tokens.

    `task` decides what one output scores: texts or pairs. Raises `CheckpointError` for what would
    be lost or run, and `SettingError`.
    """
    import transformers
    from transformers.models.auto import auto_factory

    folder = use.encoder
    path = folder / file_names.CONFIG_FILE
    values = read_object(path)
    check_config(values, path, is_embedder=use.is_declared)
    if use.terms is not None or use.three_ways is not None:
        raise CheckpointError(
            f"{path}: weights of words and three kinds of answers are read for networks of "
            f"Attendant's own alone: {ELSEWHERE}"
        )
    tokenizer = ending_as_declared(load_foreign_tokenizer(folder), folder)
    factory = factory_of(values, is_embedder=use.is_declared)
    mask = mask_of(folder, tokenizer) if factory == MASKS else None
    if factory == MASKS and mask is None:  # which no text can hold
        factory = BODY
    classes = getattr(transformers, factory)._model_mapping  # noqa: SLF001 - as its factories do
    choose: Any = auto_factory._get_model_class  # noqa: SLF001
    network, loading = loaded(folder, lambda stated: choose(stated, classes))
    if factory == BODY:
        network = without_pooler(network)
        loading = _without_heads(network, loading, architecture_of(values))
    check_loading(loading, folder)
    num_outputs, labels = int(network.config.num_labels), tuple[str, ...]()
    kind = next(each for each, name in FACTORIES.items() if name == factory)
    options: dict[str, Any] = {}
    if kind is TracedClassifier:
        scores = score_head(values, num_outputs, folder, task)
        options["score_function"] = scores.score_function
        if scores.task == PAIRS:
            kind = TracedPairScorer
        else:
            labels = scores.labels
    elif kind is TracedTokenClassifier:
        labels = names_of(values, num_outputs, path, least=2)
    elif kind is TracedMaskedWords:
        options["mask_token_id"] = mask
    elif kind is TracedEmbedder:
        options |= {"pooling": use.pooling, "normalize": use.normalize}
    else:
        assert kind is TracedAnswerer, "all kinds are here"
    longest = longest_text(folder)
    model = reader_of(network, kind, context, longest, **options)
    most = model.config.max_positions
    return TracedReaderFolder(model, labels, min(most, longest or most), tokenizer)


def mask_of(folder: Path, tokenizer: Tokenizer) -> int | None:
    """The id of the token that stands for a word to be found; None where there is none."""
    stated = read_object(folder / TOKENIZER_CONFIG, optional=True).get("mask_token")
    content = stated.get("content") if isinstance(stated, dict) else stated
    found: int | None = None if content is None else tokenizer.token_to_id(str(content))
    return found


def _without_heads(
    network: Any,  # noqa: ANN401
    loading: Mapping[str, Any],
    architecture: str,
) -> Mapping[str, Any]:
    """The report on weights, without those of the pooler and of heads of the named class."""
    import transformers

    own = set(network.state_dict())
    left = {*loading.get("unexpected_keys", ())}
    stated: Any = getattr(transformers, architecture, None)
    if left and stated is not None:
        with torch.device("meta"):
            whole = stated(network.config)
        body = f"{whole.base_model_prefix}."
        left -= {name for name in whole.state_dict() if not name.startswith(body)}
    return {
        **loading,
        "missing_keys": [name for name in loading.get("missing_keys", ()) if name in own],
        "unexpected_keys": sorted(name for name in left if not name.startswith("pooler.")),
    }
