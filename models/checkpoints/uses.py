"""Further tasks that a checkpoint may be exported for, from the same weights.

One entry per use, in `USES`. Knows nothing about graphs.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from models.checkpoints.checkpoint import Checkpoint
from models.errors import SettingError
from models.networks.elmo import Elmo, ElmoEmbedder
from models.networks.features import TokenFeatures


def as_features(checkpoint: Checkpoint) -> Checkpoint:
    """The hidden states of all layers, for any checkpoint with an encoder."""
    network = TokenFeatures(checkpoint.encoder_model.encoder).eval()
    return replace(checkpoint, model=network, task="features", labels=(), metrics={})


def as_embedding(checkpoint: Checkpoint) -> Checkpoint:
    """One vector per text, of an ELMo; encoders are imported as embedders."""
    if not isinstance(checkpoint.model, Elmo):
        limit = "features, or absent: only an ELMo embeds; encoders do once imported as embedders"
        raise SettingError("task", "embedding", limit)
    network = ElmoEmbedder(checkpoint.model).eval()
    return replace(checkpoint, model=network, task="embedding", metrics={})


USES: dict[str, Callable[[Checkpoint], Checkpoint]] = {
    "features": as_features,
    "embedding": as_embedding,
}


def used_for(checkpoint: Checkpoint, task: str | None, also: Iterable[str] = ()) -> Checkpoint:
    """The checkpoint for another task, or as it is for its own or None.

    `also` are tasks that the caller knows beside these, for the message.
    """
    if task is None or task == checkpoint.task:
        return checkpoint
    if task not in USES:
        limit = f"{' or '.join((*USES, *also))}, or absent: the checkpoint is for {checkpoint.task}"
        raise SettingError("task", task, limit)
    return USES[task](checkpoint)
