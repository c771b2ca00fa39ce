"""Networks that read texts, and what an encoder is used for: class logits, or one vector per text.

Knows nothing about files, tokenizers or training.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, S tokens, D hidden size

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from models.choices import EMBEDDING_LAYERS, POOLINGS, SCORE_FUNCTIONS, ScoreFunction
from models.errors import SettingError, check_choice
from models.networks.encoder import Encoder, EncoderConfig, initialise
from models.networks.layers import ACTIVATIONS
from models.networks.pooling import pool
from models.networks.vector_maps import Pooled, VectorMaps, vector_of

HEAD_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, **ACTIVATIONS}


def _concat_last_four(states: tuple[Tensor, ...]) -> Tensor:
    return torch.cat(states[-4:], dim=-1)


# The strategies of Devlin et al. 2018, table 7. The embeddings count as the first layer, and are
# not among "all" the layers that are summed.
LAYERS: dict[str, Callable[[tuple[Tensor, ...]], Tensor]] = {
    "first": lambda states: states[0],
    "last": lambda states: states[-1],
    "second_to_last": lambda states: states[-2],
    "sum_last_four": lambda states: torch.stack(states[-4:]).sum(dim=0),
    "concat_last_four": _concat_last_four,
    "sum_all": lambda states: torch.stack(states[1:]).sum(dim=0),
}
assert tuple(LAYERS) == EMBEDDING_LAYERS, "what the command line says there is"
NEEDS_FOUR_LAYERS = ("sum_last_four", "concat_last_four")


class ClassificationHead(nn.Module):
    """Pool, dense, activation (, norm), dropout, output: the head of all families.

    BERT's pooler and classifier, RoBERTa's dense and out_proj (both tanh) and DistilBERT's
    pre_classifier and classifier (relu) are this with pooling "cls". ModernBERT's has a norm.
    `score_function` is what makes scores of its logits, where it is not what its task does.
    """

    def __init__(
        self,
        hidden_size: int,
        num_labels: int,
        activation: str = "tanh",
        dropout: float = 0.1,
        pooling: str = "cls",
        norm_eps: float | None = None,
        score_function: ScoreFunction = "",
    ) -> None:
        super().__init__()
        check_choice("activation", activation, HEAD_ACTIVATIONS)
        check_choice("score_function", score_function, SCORE_FUNCTIONS)
        check_choice("pooling", pooling, POOLINGS)
        self.activation = activation
        self.pooling = pooling
        self.score_function: ScoreFunction = score_function
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.norm = None if norm_eps is None else nn.LayerNorm(hidden_size, eps=norm_eps)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(hidden_size, num_labels)
        self.apply(initialise)

    @property
    def num_labels(self) -> int:
        return self.output.out_features

    def forward(self, hidden_BSD: Tensor, attention_mask_BS: Tensor) -> Tensor:
        pooled_BD = pool(hidden_BSD, attention_mask_BS, self.pooling)
        activated_BD = HEAD_ACTIVATIONS[self.activation](self.dense(pooled_BD))
        normed_BD = activated_BD if self.norm is None else self.norm(activated_BD)
        logits: Tensor = self.output(self.dropout(normed_BD))
        return logits


class TextNetwork(nn.Module):
    """Reads right-padded rows of token ids, and gives tensors; what an export asks of it.

    `forward` takes int64 [B, S] tensors by `input_names`: `input_ids`, `attention_mask` and, where
    it has types, `token_type_ids`. It gives [B, values], a row per text, or rows of the real tokens
    of all texts one after the other, [N, values]: no padding leaves a network. A network with
    several `output_names` gives a tuple of such tensors.
    """

    config: Any  # sizes, of the network's own class
    output_name: ClassVar[str]  # of the tensor, or of the first of several
    has_fixed_body: ClassVar[bool] = False  # whether a task learns all but the body
    served_name: ClassVar[str] = ""  # where a server treats it apart

    @property
    def vocab_size(self) -> int:
        return int(self.config.vocab_size)

    @property
    def pad_token_id(self) -> int:
        return int(self.config.pad_token_id)

    @property
    def has_token_types(self) -> bool:
        return False

    @property
    def input_names(self) -> tuple[str, ...]:
        """The parameters of `forward`, which are the graph's inputs."""
        names = "input_ids", "attention_mask", "token_type_ids"
        return names if self.has_token_types else names[:2]

    @property
    def output_names(self) -> tuple[str, ...]:
        """The tensors that `forward` gives, in its order."""
        return (self.output_name,)

    @property
    def embedder_fields(self) -> dict[str, Any]:
        """The manifest's fields of an embedder's answers beside one vector per text."""
        return {}

    @property
    def num_attentions(self) -> int:
        """The attentions that the output depends on: one node each in the exported graph."""
        return 0

    @property
    def embedding_size(self) -> int:
        """Values per embedding, or per token and layer of features; 0 for others."""
        return 0

    @property
    def pooling_description(self) -> str:
        """A description of an embedder's pooling, for people."""
        return ""

    @property
    def score_function(self) -> ScoreFunction:
        """Score function of a server; empty where it is what the task says."""
        return ""

    @property
    def pair_template(self) -> str:
        """Template for the texts of a pair, for one that reads them so; or empty."""
        return ""

    @property
    def learnt_description(self) -> str:
        """A description of learned single weights that have a meaning, for people; or empty."""
        return ""

    @property
    def mask_token_id(self) -> int:
        """The id of the mask token; 0 for a network that fills no masks."""
        return 0

    def as_sample(self, row: list[int]) -> list[int]:
        """Token ids of any text, as one that this network would be asked about."""
        return row

    @property
    def body(self) -> nn.Module:
        """The part that may be pretrained: all but the head."""
        raise NotImplementedError


class EncoderNetwork(TextNetwork):
    """An encoder, and what a subclass puts on it."""

    config: EncoderConfig

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.config = encoder.config

    @property
    def has_token_types(self) -> bool:
        return self.config.type_vocab_size > 1

    @property
    def num_attentions(self) -> int:
        return self.config.num_layers

    @property
    def body(self) -> nn.Module:
        return self.encoder


class SequenceClassifier(EncoderNetwork):
    """An encoder with a classification head on its last layer."""

    output_name = "logits"

    def __init__(self, encoder: Encoder, head: ClassificationHead) -> None:
        super().__init__(encoder)
        self.head = head

    @property
    def num_labels(self) -> int:
        return self.head.num_labels

    @property
    def score_function(self) -> ScoreFunction:
        return self.head.score_function

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Logits [B, num_labels]."""
        states = self.encoder(input_ids, attention_mask, token_type_ids)
        logits: Tensor = self.head(states[-1], attention_mask)
        return logits


class PairScorer(SequenceClassifier):
    """An encoder that reads two texts together, with one logit for how well they match."""

    def __init__(self, encoder: Encoder, head: ClassificationHead) -> None:
        assert head.num_labels == 1, "a pair has one score"
        super().__init__(encoder, head)


class TextEmbedder(Pooled, EncoderNetwork):
    """An encoder whose hidden states are pooled into one vector per row."""

    output_name = "embedding"

    def __init__(
        self,
        encoder: Encoder,
        pooling: str = "mean",
        layers: str = "last",
        normalize: bool = False,
        maps: VectorMaps | None = None,  # between pooling and normalising
    ) -> None:
        super().__init__(encoder)
        check_choice("layers", layers, LAYERS)
        if layers in NEEDS_FOUR_LAYERS and encoder.config.num_layers < 4:
            limit = f"another choice: the encoder has only {encoder.config.num_layers} layers"
            raise SettingError("layers", layers, limit)
        self.layers = layers
        self.keep_use(pooling, maps, normalize=normalize)

    @property
    def num_attentions(self) -> int:
        num_layers: int = self.config.num_layers
        return {"first": 0, "second_to_last": num_layers - 1}.get(self.layers, num_layers)

    @property
    def pooled_size(self) -> int:
        """Values of a vector in front of the maps."""
        size: int = super().pooled_size
        return size * (4 if self.layers == "concat_last_four" else 1)

    @property
    def pooled_states(self) -> str:
        return self.layers.replace("_", " ")

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Embeddings [B, embedding_size]; of length 1 if `normalize`."""
        states = self.encoder(input_ids, attention_mask, token_type_ids)
        pooled = pool(LAYERS[self.layers](states), attention_mask, self.pooling)
        return vector_of(pooled, self.maps, normalize=self.normalize)
