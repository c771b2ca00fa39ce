"""ELMo for a task: a learned mix of its layers, and a head (Peters et al. 2018, 3.3).

The language models stay as they are. Knows nothing about tokenizers, files or training.
"""
# ruff: noqa: N806 - suffixes are array layouts: B rows, S tokens, N real tokens, D values

from torch import Tensor, nn

from models.networks.elmo import Elmo, ElmoNetwork, ScalarMix
from models.networks.encoder import initialise
from models.networks.heads import ClassificationHead


class MixedElmo(ElmoNetwork):
    """An ELMo whose layers are mixed as a task has learnt to."""

    output_name = "logits"
    has_fixed_body = True

    def __init__(self, elmo: Elmo) -> None:
        super().__init__(elmo)
        self.mix = ScalarMix(elmo.config.num_layers + 1)
        self.dropout = nn.Dropout(elmo.config.dropout)

    @property
    def learnt_description(self) -> str:
        return self.mix.description()

    def mixed(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """[B, S, 2 D]; what it is on padding means nothing."""
        mixed_BSD: Tensor = self.mix(self.elmo.layers(input_ids, attention_mask))
        return mixed_BSD


class ElmoClassifier(MixedElmo):
    """Class logits of a text, from the mean of its tokens' mixes."""

    def __init__(self, elmo: Elmo, num_labels: int) -> None:
        super().__init__(elmo)
        self.head = ClassificationHead(
            elmo.embedding_size, num_labels, "relu", elmo.config.dropout, pooling="mean"
        )

    @property
    def num_labels(self) -> int:
        return self.head.num_labels

    def forward(self, input_ids: Tensor, attention_mask: Tensor, _: Tensor | None = None) -> Tensor:
        """Logits [B, num_labels]."""
        logits: Tensor = self.head(self.mixed(input_ids, attention_mask), attention_mask)
        return logits


class ElmoTokenClassifier(MixedElmo):
    """A label for each token, from its mix."""

    def __init__(self, elmo: Elmo, num_labels: int) -> None:
        super().__init__(elmo)
        self.output = nn.Linear(elmo.embedding_size, num_labels)
        self.output.apply(initialise)

    @property
    def num_labels(self) -> int:
        return self.output.out_features

    def forward(self, input_ids: Tensor, attention_mask: Tensor, _: Tensor | None = None) -> Tensor:
        """Packed rows [N, num_labels]."""
        mixed_ND = self.mixed(input_ids, attention_mask)[attention_mask != 0]
        logits: Tensor = self.output(self.dropout(mixed_ND))
        return logits
