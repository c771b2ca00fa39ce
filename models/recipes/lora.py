"""Networks that learn by adapters: which of their linear maps have factors, and what else learns.

Knows nothing about the loop or about files.
"""

import copy
from collections.abc import Sequence

from torch import nn

from models.checkpoints.adapter_heads import Classifier, fresh_classifier
from models.checkpoints.checkpoint import Checkpoint
from models.checkpoints.stored_maps import Source, stored_maps
from models.errors import SettingError
from models.networks.decoder_readers import DecoderClassifier
from models.networks.heads import SequenceClassifier
from models.networks.lora import adapt, learn_factors_alone
from models.training.lora_settings import LoraSettings


def adapted_classifier(
    checkpoint: Checkpoint, labels: Sequence[str], settings: LoraSettings
) -> tuple[Classifier, tuple[str, ...]]:
    """A copy of the checkpoint's classifier, if it has these labels, else a fresh head on its body.

    The labels come back in the order of the logits. The head is the one of the checkpoint's family,
    so that PEFT finds what it expects. All of the head learns, and factors in the body.
    """
    model = checkpoint.model
    if set(labels) == set(checkpoint.labels) and type(model) in (
        SequenceClassifier,
        DecoderClassifier,
    ):
        model, labels = copy.deepcopy(model), checkpoint.labels
        if isinstance(model, SequenceClassifier):
            model.head.score_function = ""  # what is trained here is the task's own
    else:
        model = fresh_classifier(checkpoint, len(labels))
    assert isinstance(model, SequenceClassifier | DecoderClassifier), "these are classifiers"
    _adapt(model, checkpoint.source, settings)
    return model, tuple(labels)


def adapted_decoder(model: nn.Module, source: Source, settings: LoraSettings) -> nn.Module:
    """A decoder that learns by factors alone, in place."""
    _adapt(model, source, settings)
    learn_factors_alone(model)
    return model


def _adapt(model: nn.Module, source: Source, settings: LoraSettings) -> None:
    """Raises `SettingError` for targets that no layer has."""
    layers = [
        name
        for stored in stored_maps(model, source).values()
        for name in stored.modules
        if ".layers." in f".{name}"
    ]
    known = sorted({name.rpartition(".")[2] for name in layers})
    for target in settings.targets:
        if target not in known:
            limit = f"of {', '.join(known)}, with commas between, or all-linear"
            raise SettingError("lora_targets", target, limit)
    names = [n for n in layers if not settings.targets or n.endswith(_ends(settings.targets))]
    adapt(model, names, settings.rank, settings.alpha)


def _ends(targets: Sequence[str]) -> tuple[str, ...]:
    return tuple(f".{target}" for target in targets)
