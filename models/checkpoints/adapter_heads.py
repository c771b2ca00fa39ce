"""The classifier's head of an adapter: its weights are whole, as `modules_to_save` has them.

A head of the base is replaced. A base without one gets the head of its family, whose labels stand
in labels.json of the adapter's folder, a list in the order of the outputs: `attendant train --lora`
writes it, and it may be put beside a stranger's adapter.
"""

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from models.checkpoints.checkpoint import Checkpoint
from models.checkpoints.embedder_use import EmbedderUse
from models.checkpoints.families import FAMILIES
from models.checkpoints.peft import ADAPTER_WEIGHTS, LABELS_FILE, MERGE_FIRST, PeftAdapter
from models.checkpoints.score_heads import PAIRS
from models.checkpoints.stored_maps import naming_of
from models.checkpoints.weights import check_names
from models.errors import CheckpointError, shown
from models.json_files import read_json
from models.networks.decoder_readers import DecoderClassifier, DecoderReader, without_output
from models.networks.gpt import GPT
from models.networks.gpt_classifier import GPTClassifier
from models.networks.heads import ClassificationHead, EncoderNetwork, SequenceClassifier
from models.networks.llama import Llama

Classifier = SequenceClassifier | DecoderClassifier


def with_head(adapter: PeftAdapter, checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint with a copy of its network that has the adapter's head.

    Raises `CheckpointError` for whole weights that are no head's.
    """
    path = adapter.folder / ADAPTER_WEIGHTS
    plain = naming_of(checkpoint.model, checkpoint.source).plain
    saved = {plain(name): torch.from_numpy(array) for name, array in adapter.saved.items()}
    labels = () if checkpoint.task == PAIRS else read_labels(adapter.folder)
    model = copy.deepcopy(checkpoint.model)
    names = set(head_weights(model, checkpoint.source))
    is_part = set(saved) < names and len(labels) == len(checkpoint.labels)  # of the base's head
    if labels and labels != checkpoint.labels and not is_part:
        model = fresh_classifier(checkpoint, len(labels)).eval()
        check_names(saved, head_weights(model, checkpoint.source), path)
    elif not set(saved) <= names:
        raise CheckpointError(
            f"{path} has whole weights ({shown(next(iter(adapter.saved)))} of modules_to_save) "
            "that are of no head of the base. A classifier's: put its labels into "
            f"{LABELS_FILE} beside it, a list in the order of the outputs, or give a base with a "
            f"head, as ForSequenceClassification saves it. Others: {MERGE_FIRST}"
        )
    labels = labels or checkpoint.labels
    _replace(model, saved, checkpoint, path)
    if type(model) is type(checkpoint.model):
        return replace(checkpoint, model=model, labels=labels)
    return replace(
        checkpoint,
        model=model,
        task="text-classification",
        labels=labels,
        chat={},
        sampling={},
        embedder=EmbedderUse(),
    )


def _replace(
    model: nn.Module, saved: Mapping[str, Tensor], checkpoint: Checkpoint, path: Path
) -> None:
    """Put the weights in place; raises `CheckpointError` for another shape."""
    state = model.state_dict()
    for stored, name in head_weights(model, checkpoint.source).items():
        if stored not in saved:
            continue
        if saved[stored].shape != state[name].shape:
            raise CheckpointError(
                f"{path}: {shown(stored)} has shape {list(saved[stored].shape)}, but the base's "
                f"has {list(state[name].shape)}: give a base with the adapter's number of labels"
            )
        state[name].copy_(saved[stored])


def head_weights(model: nn.Module, source: Mapping[str, object]) -> dict[str, str]:
    """By the family's name, our name of each weight of a classifier's head."""
    if not isinstance(model, SequenceClassifier | DecoderClassifier | GPTClassifier):
        return {}
    naming = naming_of(model, source)
    names = (name for name in model.state_dict() if name.startswith(("head.", "output.")))
    kinds = {name: name.rpartition(".")[2] for name in names}
    return {
        naming.name_in_file(name).rpartition(".")[0] + f".{kind}": name
        for name, kind in kinds.items()
    }


def fresh_classifier(checkpoint: Checkpoint, num_labels: int) -> Classifier:
    """A copy of the checkpoint's encoder or decoder with the fresh head that its family has.

    Raises `CheckpointError` for other networks.
    """
    model = checkpoint.model
    naming_of(model, checkpoint.source)  # raises CheckpointError for a network of none
    if isinstance(model, GPT | Llama | DecoderReader | GPTClassifier):
        decoder = model
        if isinstance(model, DecoderReader):
            decoder = model.decoder
        elif isinstance(model, GPTClassifier):
            decoder = model.gpt
        assert isinstance(decoder, GPT | Llama), "what reads texts by a decoder has one"
        return DecoderClassifier(without_output(copy.deepcopy(decoder)), num_labels)
    if not isinstance(model, EncoderNetwork):
        raise CheckpointError(
            f"{checkpoint.origin} is a {type(model).__name__}, but a classifier with adapters is "
            "made of an encoder or a decoder"
        )
    family = FAMILIES[str(checkpoint.source.get("model_type", "bert"))]
    config = model.config
    head = ClassificationHead(
        config.hidden_size,
        num_labels,
        family.head_activation,
        config.dropout,
        family.head_pooling,
        config.layer_norm_eps if family.has_head_norm else None,
    )
    return SequenceClassifier(copy.deepcopy(model.encoder), head)


def read_labels(folder: Path) -> tuple[str, ...]:
    """The labels beside an adapter, in the order of its head's outputs; none without a file."""
    path = folder / LABELS_FILE
    if not path.is_file():
        return ()
    labels = read_json(path)
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise CheckpointError(f"{path} must hold a list of labels")
    if len(labels) < 2 or len(set(labels)) != len(labels):
        raise CheckpointError(f"{path} must hold two or more different labels")
    return tuple(labels)
