"""Tiny checkpoints with random weights, which export in about a second.

The weights are larger than BERT's fresh ones, so that different texts get clearly different
outputs: two rows that are alike would hide a mix-up.
"""

import string
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing
from torch import nn

from models.checkpoints.checkpoint import Checkpoint
from models.networks.disentangled import Distances
from models.networks.encoder import Encoder, EncoderConfig
from models.networks.heads import ClassificationHead, PairScorer, SequenceClassifier, TextEmbedder
from models.networks.ropes import Rope

UNKNOWN = "[UNK]"
SPECIAL = ("[PAD]", UNKNOWN, "[CLS]", "[SEP]")
WORDS = ("free", "prize", "winner", "claim", "now", "call", "lunch", "tomorrow", "we", "are", "on")
MAX_TOKENS = 64
# Fields of encoders after BERT; one rope turns fast, so that a wrong position shows.
ROPES = tuple(Rope.default(8, theta) for theta in (160_000.0, 10.0))
ROTARY: dict[str, Any] = {"has_position_table": False, "is_gated": True, "attention_bias": False}
MODERN: dict[str, Any] = {
    **ROTARY,
    "num_layers": 3,
    "type_vocab_size": 0,
    "norm_placement": "pre",
    "norm_bias": False,
    "feed_forward_bias": False,
    "ropes": ROPES,
    "layer_ropes": (0, 1, 1),
    "windows": (0, 3, 3),
}
MPNET: dict[str, Any] = {"type_vocab_size": 0, "position_offset": 2, "relative_buckets": 8}
ALBERT: dict[str, Any] = {"num_layers": 4, "num_distinct_layers": 2, "embedding_size": 16}
DEBERTA: dict[str, Any] = {
    "type_vocab_size": 0,
    "has_position_table": False,
    "distances": Distances(num_buckets=8, max_distance=MAX_TOKENS),
}
NOMIC: dict[str, Any] = {**ROTARY, "ropes": ROPES[1:], "layer_ropes": (0, 0)}


def tiny_tokenizer() -> Tokenizer:
    """WordPiece over a few words and every ASCII character."""
    characters = string.ascii_lowercase + string.digits + string.punctuation
    pieces = (*SPECIAL, *WORDS, *characters, *(f"##{character}" for character in characters))
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token=UNKNOWN))
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")],
    )
    return tokenizer


def tiny_config(**changes: Any) -> EncoderConfig:
    sizes: dict[str, Any] = {
        "vocab_size": tiny_tokenizer().get_vocab_size(),
        "hidden_size": 32,
        "num_layers": 2,
        "num_heads": 4,
        "intermediate_size": 64,
        "max_positions": MAX_TOKENS,
    }
    return EncoderConfig(**(sizes | changes))


def tiny_classifier(
    labels: Sequence[str] = ("ham", "spam"),
    *,
    pooling: str = "cls",
    seed: int = 3,  # with which both labels occur
    **changes: Any,
) -> Checkpoint:
    config = tiny_config(**changes)
    head = ClassificationHead(config.hidden_size, len(labels), pooling=pooling)
    model = SequenceClassifier(Encoder(config), head)
    randomise(model, seed)
    return Checkpoint(
        model=model.eval(),
        task="text-classification",
        labels=tuple(labels),
        tokenizer=tiny_tokenizer(),
        max_tokens=config.max_positions,
        origin="random weights",
    )


def tiny_scorer(*, seed: int = 3) -> Checkpoint:
    """One of pairs, with one logit for each."""
    config = tiny_config()
    model = PairScorer(Encoder(config), ClassificationHead(config.hidden_size, 1))
    randomise(model, seed)
    return Checkpoint(
        model=model.eval(),
        task="pair-scoring",
        labels=(),
        tokenizer=tiny_tokenizer(),
        max_tokens=config.max_positions,
        origin="random weights",
    )


def tiny_embedder(
    pooling: str = "mean",
    layers: str = "last",
    *,
    normalize: bool = True,
    seed: int = 0,
    **changes: Any,
) -> Checkpoint:
    config = tiny_config(**changes)
    model = TextEmbedder(Encoder(config), pooling, layers, normalize)
    randomise(model, seed)
    return Checkpoint(
        model=model.eval(),
        task="embedding",
        labels=(),
        tokenizer=tiny_tokenizer(),
        max_tokens=config.max_positions,
        origin="random weights",
    )


def randomise(model: nn.Module, seed: int) -> None:
    """Weights with which a layer keeps the size of what goes through it; biases not zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() == 1:
                is_scale = "norm" in name and name.endswith("weight")
                parameter.copy_(0.1 * noise + (1.0 if is_scale else 0.0))
            elif "embeddings" in name:
                parameter.copy_(noise)
            else:
                parameter.copy_(noise * 1.5 * parameter.shape[1] ** -0.5)


def ragged_batch(
    lengths: Sequence[int], config: EncoderConfig, seed: int = 0
) -> dict[str, np.ndarray]:
    """Right-padded int64 [B, S] inputs with random ids and token types."""
    generator = np.random.default_rng(seed)
    shape = len(lengths), max(lengths)
    mask = (np.arange(shape[1]) < np.array(lengths)[:, None]).astype(np.int64)
    ids = generator.integers(config.vocab_size, size=shape)
    types = generator.integers(max(1, config.type_vocab_size), size=shape)
    return {
        "input_ids": np.where(mask == 1, ids, config.pad_token_id),
        "attention_mask": mask,
        "token_type_ids": types * mask,
    }


def torch_outputs(model: nn.Module, batch: dict[str, np.ndarray]) -> np.ndarray:
    """What the PyTorch module computes for a batch, float32."""
    tensors = {name: torch.from_numpy(array) for name, array in batch.items()}
    tensors.pop(
        "vector_mask", None
    )  # of networks with vectors of tokens, which have several outputs
    with torch.inference_mode():
        outputs: np.ndarray = model(**tensors).numpy()
    return outputs


def torch_outputs_of_texts(checkpoint: Checkpoint, texts: Sequence[str]) -> np.ndarray:
    """What the PyTorch module computes for each text alone, without any padding."""
    rows = []
    for text in texts:
        ids = np.array([checkpoint.tokenizer.encode(text).ids], np.int64)
        batch = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        rows.append(torch_outputs(checkpoint.model, batch))
    return np.concatenate(rows)


def cosines(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Of each row with its counterpart."""
    norms = np.linalg.norm(found, axis=1) * np.linalg.norm(wanted, axis=1)
    similarities: np.ndarray = (found * wanted).sum(axis=1) / norms
    return similarities
