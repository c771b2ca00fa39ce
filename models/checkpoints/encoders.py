"""Build the network of a folder that holds an encoder, with the head that its files declare.

What a head is not made of is left out by a rule of `models/checkpoints/left_out.py`, or the folder
is refused. Knows nothing about downloads.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from models.checkpoints.architectures import (
    CLASSIFIER,
    architecture_of,
    check_architecture,
)
from models.checkpoints.families import FAMILIES
from models.checkpoints.family import ANSWERER, NEXT_SENTENCE, TAGGER, Family
from models.checkpoints.foreign_tokenizer import load_foreign_tokenizer
from models.checkpoints.known import unknown_type
from models.checkpoints.left_out import INDICES, POOLER, Rule, renamed, without, without_copies
from models.checkpoints.score_heads import PAIRS, TEXTS, ScoreHead, names_of, score_head
from models.checkpoints.sentence_transformers import EmbedderFolder
from models.checkpoints.weights import WEIGHTS_FILE, assign_weights, build_on_meta, read_weights
from models.errors import CheckpointError
from models.json_files import check_only, fields_of, read_object
from models.networks.encoder import Encoder, EncoderConfig
from models.networks.heads import (
    ClassificationHead,
    EncoderNetwork,
    PairScorer,
    SequenceClassifier,
    TextEmbedder,
)
from models.networks.masked import MaskedLanguageModel
from models.networks.readers import QuestionAnswerer, TokenClassifier

CONFIG_FILE = "config.json"
TOKEN_USES = (TAGGER, ANSWERER)
# Heads of pretraining, as the families name them: published files have them beside any body.
PRETRAINING_HEADS = Rule.of_modules(
    (
        *("cls.predictions", "cls.predictions.transform.dense", "cls.predictions.decoder"),
        *("cls.predictions.transform.LayerNorm", "cls.predictions.transform.layer_norm"),
        *("cls.seq_relationship", "lm_head", "lm_head.dense", "lm_head.layer_norm"),
        *("lm_head.norm", "lm_head.decoder", "lm_predictions.lm_head"),
        *("lm_predictions.lm_head.dense", "lm_predictions.lm_head.LayerNorm"),
        *("mask_predictions.dense", "mask_predictions.LayerNorm", "mask_predictions.classifier"),
        *("vocab_transform", "vocab_layer_norm", "vocab_projector"),
        *("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head"),
        *("discriminator_predictions.dense", "discriminator_predictions.dense_prediction"),
        *("predictions", "predictions.dense", "predictions.LayerNorm", "predictions.decoder"),
        *("sop_classifier.classifier", "head.dense", "head.norm", "decoder"),
    ),
    "a head of pretraining, which this task does not read",
)
OTHER_TASKS = Rule.of_modules(
    (
        *("classifier", "classifier.dense", "classifier.out_proj", "pre_classifier", "qa_outputs"),
        "score",
    ),
    "a head of another task, where modules.json says that the folder embeds",
)
UNREAD_POSITIONS = Rule.of_modules(
    ("embeddings.position_embeddings",), "config.json says that nothing reads a table of positions"
)


@dataclass(frozen=True, slots=True)
class EncoderWithHead:
    """A network of a folder and the names of its outputs."""

    model: EncoderNetwork
    labels: tuple[str, ...]
    max_positions: int


@dataclass(frozen=True, slots=True)
class _Head:
    """Purpose of an encoder by its folder."""

    family: Family
    labels: tuple[str, ...] = ()
    scores: ScoreHead | None = None  # of a classifier
    token_use: str | None = None
    mask_token_id: int | None = None


def read_encoder(use: EmbedderFolder, task: str | None = None) -> EncoderWithHead:
    """An encoder with the head that its folder declares; `task` is that of `score_head`."""
    path, weights_path = use.encoder / CONFIG_FILE, use.encoder / WEIGHTS_FILE
    with fields_of(path, read_object(path)) as given:
        family = family_of(given, path)
        check_architecture(given, path, is_decoder=False, is_declared=use.is_declared)
        values = {**family.defaults, **given}
        config, family = family.config(values), family.adapt(family, values)
        stated = values.get(family.head_dropout)
        head_dropout = config.dropout if stated is None else float(stated)
    stored = without(
        short_names(read_weights(use.encoder), family, weights_path), [INDICES], weights_path
    )
    with fields_of(path, values):
        tensors = family.fold(stored, values)
    head = _head(values, tensors, family, use, task)
    model = build_on_meta(lambda: _network(head, config, tensors, head_dropout, use))
    wanted = {head.family.name_in_file(name) for name in model.state_dict()}
    kept = _without_the_rest(tensors, wanted, head, config, use, weights_path)
    assign_weights(model, kept, weights_path, head.family.name_in_file)
    return EncoderWithHead(model, head.labels, config.max_positions)


def _head(
    values: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    family: Family,
    use: EmbedderFolder,
    task: str | None,
) -> _Head:
    path = use.encoder / CONFIG_FILE
    if use.is_declared:
        return _Head(family)
    if has_classifier(values, tensors, family):
        scores = score_head(values, num_outputs(tensors, family, path), use.encoder, task)
        return _Head(family, scores.labels if scores.task == TEXTS else (), scores)
    token_use = token_use_of(values)
    if token_use is not None:
        family = replace(family, head=family.token_heads[token_use])
        if token_use == ANSWERER:
            return _Head(family, token_use=token_use)
        labels = names_of(values, num_outputs(tensors, family, path), path, least=2)
        return _Head(family, labels, token_use=token_use)
    mask_token_id = mask_of(values, family, use.encoder)
    if mask_token_id is not None:
        check_only(values, {"tie_word_embeddings": True}, path)
        return _Head(family.with_words_head(), mask_token_id=mask_token_id)
    return _Head(family)


def _network(
    head: _Head,
    config: EncoderConfig,
    tensors: Mapping[str, Tensor],
    head_dropout: float,
    use: EmbedderFolder,
) -> EncoderNetwork:
    encoder, family = Encoder(config), head.family
    of_head = family.head_activation if "dense" in family.head else None
    if head.token_use == TAGGER:
        return TokenClassifier(encoder, len(head.labels), head_dropout, of_head)
    if head.token_use == ANSWERER:
        return QuestionAnswerer(encoder, head_dropout, of_head)
    if head.mask_token_id is not None:
        activation = family.words_activation or config.activation
        has_relation = all(f"{name}.weight" in tensors for name in NEXT_SENTENCE.values())
        return MaskedLanguageModel(
            encoder, head.mask_token_id, activation, next_sentence=has_relation
        )
    if head.scores is None:
        return TextEmbedder(encoder, use.pooling, "last", use.normalize)
    classifier = ClassificationHead(
        config.hidden_size,
        len(head.scores.labels),
        family.head_activation,
        head_dropout,
        family.head_pooling,
        config.layer_norm_eps if family.has_head_norm else None,
        head.scores.score_function,
    )
    return (PairScorer if head.scores.task == PAIRS else SequenceClassifier)(encoder, classifier)


def _without_the_rest(
    tensors: dict[str, Tensor],
    wanted: set[str],
    head: _Head,
    config: EncoderConfig,
    use: EmbedderFolder,
    path: Path,
) -> dict[str, Tensor]:
    """The tensors that the network takes, and those of which no rule says why it does not."""
    if head.mask_token_id is not None:
        tensors = without_copies(tensors, _tied(head.family), path)
    rest = {name: tensor for name, tensor in tensors.items() if name not in wanted}
    rules = [POOLER, PRETRAINING_HEADS, *([OTHER_TASKS] if use.is_declared else [])]
    if not config.has_position_table:
        rules.append(UNREAD_POSITIONS)
    left = without(rest, rules, path)
    return {name: tensor for name, tensor in tensors.items() if name in wanted or name in left}


def _tied(family: Family) -> dict[str, str]:
    """Names under which files repeat the table of words and the bias of a head of words."""
    head, words = family.words[""], f"{family.parts['embeddings.words']}.weight"
    return {
        f"{head}.weight": words,
        f"{head}.decoder.weight": words,
        f"{head}.decoder.bias": f"{head}.bias",
    }


def family_of(values: Mapping[str, Any], path: Path) -> Family:
    """Find the naming to use; refuse by name what we would compute differently."""
    model_type = values["model_type"]
    if model_type not in FAMILIES:
        raise unknown_type(model_type, path)
    family = FAMILIES[model_type]
    check_only(values, family.only, path)
    return family


def short_names(tensors: Mapping[str, Tensor], family: Family, path: Path) -> dict[str, Tensor]:
    """Return the tensors under today's names, without the family's prefix.

    Checkpoints of 2018 call a norm's weight and bias gamma and beta.
    """

    def short(name: str) -> str:
        modern = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))
        return modern.removeprefix(family.prefix)

    return renamed(tensors, short, path)


def has_classifier(
    values: Mapping[str, Any], tensors: Mapping[str, Tensor], family: Family
) -> bool:
    """Whether the declared architecture is a classifier; without one, whether the weights are."""
    architecture = architecture_of(values)
    if architecture:
        return architecture.endswith(CLASSIFIER)
    return all(f"{name}.weight" in tensors for name in family.head.values())


def token_use_of(values: Mapping[str, Any]) -> str | None:
    """The declared architecture's use of every token, if any."""
    architecture = architecture_of(values)
    return next((use for use in TOKEN_USES if architecture.endswith(use)), None)


def mask_of(values: Mapping[str, Any], family: Family, folder: Path) -> int | None:
    """The mask's id where the declared architecture fills masks; without a mask it cannot."""
    if not architecture_of(values).endswith(family.fills_masks):
        return None
    found: int | None = load_foreign_tokenizer(folder).token_to_id(family.mask)
    return found


def num_outputs(tensors: Mapping[str, Tensor], family: Family, path: Path) -> int:
    """The logits of a declared head."""
    output = f"{family.head['output']}.weight"
    if output not in tensors:
        raise CheckpointError(f"{path} declares a classifier, but the weights lack {output}")
    return int(tensors[output].shape[0])
