"""Embedders of folders with more answers than one vector: BGE-M3 and SPLADE.

BGE-M3 keeps two linear maps beside its encoder, as files that torch.save wrote: a token's weight,
and a token's vector. SPLADE is a network that fills masks, and the pooling of its logits, which
modules.json names. Knows nothing about encoders and their names of weights.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from models.checkpoints import file_names
from models.checkpoints.embedder_files import TermPooling
from models.checkpoints.foreign_tokenizer import load_foreign_tokenizer
from models.checkpoints.lazy import realised
from models.checkpoints.ways_out import ELSEWHERE
from models.checkpoints.weights import read_pickle
from models.errors import CheckpointError, shown
from models.json_files import fields_of, read_object
from models.networks.heads import EncoderNetwork, TextEmbedder
from models.networks.masked import MaskedLanguageModel
from models.networks.retrieval import TermEmbedder, ThreeWayEmbedder

WEIGHT_FILE, VECTOR_FILE = HEAD_FILES = file_names.HEAD_FILES
FORMAT_BYTES = 65_536  # of a file of two tensors, beside their values
# Of no text's weights, as FlagEmbedding has it: by roles, and as XLM-R spells them.
UNWEIGHTED = {
    "cls_token": "<s>",
    "eos_token": "</s>",
    "pad_token": "<pad>",
    "unk_token": "<unk>",
}


def three_way_embedder(embedder: EncoderNetwork, folder: Path, tokenizer: Path) -> ThreeWayEmbedder:
    """The embedder with BGE-M3's two maps; raises CheckpointError where they do not fit it."""
    if not isinstance(embedder, TextEmbedder):
        raise CheckpointError(
            f"{folder} has {' and '.join(HEAD_FILES)}, which belong to an embedder, but its "
            f"config.json is not one's: {ELSEWHERE}"
        )
    size = embedder.config.hidden_size
    weights = _linear(folder / WEIGHT_FILE, size, 1)
    vectors = _linear(folder / VECTOR_FILE, size, None)
    with torch.device("meta"):
        network = ThreeWayEmbedder(
            embedder.encoder,
            embedder.pooling,
            len(vectors["bias"]),
            unweighted_ids(tokenizer),
            normalize=embedder.normalize,
        )
    network.token_weights.load_state_dict(weights, assign=True)
    network.token_vectors.load_state_dict(vectors, assign=True)
    return network.eval()


def term_embedder(model: EncoderNetwork, use: TermPooling, path: Path) -> TermEmbedder:
    """The network that fills masks as one that weighs words."""
    if not isinstance(model, MaskedLanguageModel):
        raise CheckpointError(
            f"{path}: SpladePooling needs a network that fills masks (...ForMaskedLM) and a "
            f"tokenizer with a mask: {ELSEWHERE}"
        )
    with torch.device("meta"):
        network = TermEmbedder(model.encoder, model.head.activation, use.pooling, use.weights)
    network.head = model.head
    return network.eval()


def unweighted_ids(folder: Path) -> list[int]:
    """The ids of special tokens that get no weight."""
    tokenizer = load_foreign_tokenizer(folder)
    path = folder / "tokenizer_config.json"
    with fields_of(path, read_object(path, optional=True)) as values:
        spelt = [_spelling(values, role, name) for role, name in UNWEIGHTED.items()]
    ids = (tokenizer.token_to_id(each) for each in spelt)
    return sorted({each for each in ids if each is not None})


def _spelling(values: Mapping[str, Any], role: str, default: str) -> str:
    stated = values.get(role) or default
    return str(stated["content"] if isinstance(stated, dict) else stated)


def _linear(path: Path, size: int, num_outputs: int | None) -> dict[str, Tensor]:
    """Weight and bias of a linear map from `size` values; None stands for as many at most."""
    most = num_outputs or size
    tensors = read_pickle(path, 8 * most * (size + 1) + FORMAT_BYTES)
    if set(tensors) != {"weight", "bias"}:
        raise CheckpointError(
            f"{path} has {shown(sorted(tensors))}, but must have weight and bias alone"
        )
    tensors = {name: realised(tensor) for name, tensor in tensors.items()}
    weight, bias = tensors["weight"], tensors["bias"]
    fits = bias.dim() == 1 and weight.shape == (len(bias), size) and 1 <= len(bias) <= most
    if not fits or len(bias) != (num_outputs or len(bias)):
        expected = f"[{num_outputs or f'1 to {size}'}, {size}]"
        raise CheckpointError(
            f"{path}: weight has shape {list(weight.shape)} and bias {list(bias.shape)}, but "
            f"weight must have {expected} and bias as many values as it has rows"
        )
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() or not bool(torch.isfinite(tensor).all()):
            raise CheckpointError(f"{path}: {name} has numbers that are not finite, or no floats")
    return tensors
