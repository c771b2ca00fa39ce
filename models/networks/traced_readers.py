"""Networks of transformers that read texts: the library's own modules, body and head.

Knows no family. `forward` is the reference of an export: each row alone and whole, as transformers
computes it. `packed` is the same where `around_body` has put tokens of all rows one after the
other: the body sees those, and a head that reads a whole text sees rows again.

Whether places of tokens count from zero, or padding tokens are left out as RoBERTa has it, is found
by trial.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, S tokens, D hidden size, N real tokens

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from models.choices import ScoreFunction
from models.networks.heads import TextNetwork
from models.networks.layers import Config
from models.networks.masked import SAMPLE_STRIDE
from models.networks.pooling import pool
from models.networks.traced import EAGER, TiedWeights, pin_positions
from models.networks.vector_maps import Pooled, VectorMaps, vector_of

PLACES, COUNTED, UNKNOWN = "places", "counted", ""  # how a body numbers its tokens
NO_TOKEN = -1


@dataclass(frozen=True, slots=True)
class TracedReaderConfig(Config):
    """The sizes of a network, and the configuration that transformers makes it of."""

    section: ClassVar[str] = "traced"
    values: Mapping[str, Any]  # transformers' configuration, as its config.json has it
    factory: str  # of transformers: AutoModel, AutoModelForMaskedLM, ...
    vocab_size: int
    num_layers: int
    hidden_size: int
    max_positions: int
    pad_token_id: int
    numbering: str  # PLACES, COUNTED or UNKNOWN
    num_attentions: int  # that ask transformers' interface; 0 where the network has its own
    type_vocab_size: int = 0


class TracedReader(TiedWeights, TextNetwork):
    """A network of transformers that reads texts, and what a subclass takes of it."""

    config: TracedReaderConfig
    reads_tokens: ClassVar[bool] = False  # the head reads each token by itself

    def __init__(self, network: Any, config: TracedReaderConfig) -> None:  # noqa: ANN401
        super().__init__()
        self.network = network
        self.config = config
        pin_positions(network, config.max_positions)

    @classmethod
    def of(cls, config: TracedReaderConfig, **options: Any) -> Self:  # noqa: ANN401
        """A network whose weights are not set; tables that are no weights are."""
        return cls(network_of(config), config, **options)

    @property
    def body_of_network(self) -> nn.Module:
        """The part without a head, which sees packed tokens."""
        body: nn.Module = self.network.base_model
        return body

    @property
    def body(self) -> nn.Module:
        return self.body_of_network

    @property
    def has_token_types(self) -> bool:
        return self.config.type_vocab_size > 1

    @property
    def num_attentions(self) -> int:
        return self.config.num_attentions

    @property
    def takes_positions(self) -> bool:
        """Whether tokens may be given places, without which they cannot be packed."""
        return self.config.numbering != UNKNOWN and self.config.num_attentions > 0

    def positions(self, input_ids_BS: Tensor) -> Tensor:
        """[B, S] of the body's own numbering; rows are right-padded."""
        if self.config.numbering == COUNTED:
            padding = self.config.pad_token_id
            is_counted_BS = (input_ids_BS != padding).to(torch.int64)
            return is_counted_BS.cumsum(dim=1) * is_counted_BS + padding
        return torch.arange(input_ids_BS.shape[1]).expand_as(input_ids_BS)

    def inputs(self, ids: Tensor, mask: Tensor, types: Tensor | None) -> dict[str, Tensor]:
        """The inputs of transformers by their names."""
        inputs = {"input_ids": ids, "attention_mask": mask}
        return {**inputs, "token_type_ids": types} if types is not None else inputs

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Outputs of transformers for each row alone, one after the other."""
        rows = []
        for row, length in enumerate(attention_mask.sum(dim=1).tolist()):
            ids = input_ids[row : row + 1, :length]
            types = None if token_type_ids is None else token_type_ids[row : row + 1, :length]
            mask = torch.ones_like(ids)
            made = self.network(**self.inputs(ids, mask, types))
            rows.append(self.of_row(made, ids, mask))
        return torch.cat(rows)

    def of_row(self, made: Any, ids: Tensor, mask: Tensor) -> Tensor:  # noqa: ANN401, ARG002
        """The answer of a whole row."""
        return self.answer(made, mask)

    def answer(self, made: Any, mask_BS: Tensor) -> Tensor:  # noqa: ANN401, ARG002
        """The answer in what transformers gives."""
        logits: Tensor = made.logits
        return logits.flatten(0, 1) if self.reads_tokens else logits

    def is_read(self, input_ids: Tensor) -> Tensor | None:  # noqa: ARG002
        """Which of packed tokens a head reads, where it is not all of them."""
        return None


class TracedScorer(TracedReader):
    """Logits, and what makes scores of them: `score_function` as `ClassificationHead` has it."""

    output_name = "logits"

    def __init__(
        self,
        network: Any,  # noqa: ANN401
        config: TracedReaderConfig,
        score_function: ScoreFunction = "",
    ) -> None:
        super().__init__(network, config)
        self.scores_by: ScoreFunction = score_function

    @property
    def score_function(self) -> ScoreFunction:
        return self.scores_by


class TracedClassifier(TracedScorer):
    """Logits [B, num_labels] of whole texts."""

    def __init__(self, network: Any, config: TracedReaderConfig, **options: Any) -> None:  # noqa: ANN401
        super().__init__(network, config, **options)
        values = network.config.get_text_config()
        if getattr(values, "pad_token_id", None) is None:  # as decoders need one to find ends
            values.pad_token_id = NO_TOKEN

    @property
    def num_labels(self) -> int:
        return int(self.network.config.num_labels)


class TracedPairScorer(TracedClassifier):
    """One logit for how well two texts match, which are read together."""


class TracedTokenClassifier(TracedReader):
    """A label for each token: `[N, num_labels]`."""

    output_name = "logits"
    reads_tokens = True

    @property
    def num_labels(self) -> int:
        return int(self.network.config.num_labels)


class TracedAnswerer(TracedReader):
    """Whether an answer starts, and whether it ends, at each token: `[N, 2]`."""

    output_name = "logits"
    reads_tokens = True

    def answer(self, made: Any, mask_BS: Tensor) -> Tensor:  # noqa: ANN401, ARG002
        return torch.stack([made.start_logits, made.end_logits], dim=-1).flatten(0, 1)


class TracedMaskedWords(TracedReader):
    """Logits [M, V] of the masks of all rows, one after the other."""

    output_name = "logits"
    reads_tokens = True

    def __init__(self, network: Any, config: TracedReaderConfig, mask_token_id: int) -> None:  # noqa: ANN401
        super().__init__(network, config)
        self._mask_token_id = mask_token_id

    @property
    def mask_token_id(self) -> int:
        return self._mask_token_id

    def as_sample(self, row: list[int]) -> list[int]:
        """A sample with masks: without any, the output would be empty."""
        return [
            self.mask_token_id if place % SAMPLE_STRIDE == 1 else token
            for place, token in enumerate(row)
        ]

    def of_row(self, made: Any, ids: Tensor, mask: Tensor) -> Tensor:  # noqa: ANN401
        return self.answer(made, mask)[ids.flatten() == self.mask_token_id]

    def is_read(self, input_ids: Tensor) -> Tensor | None:
        return input_ids == self.mask_token_id


class TracedEmbedder(Pooled, TracedReader):
    """One vector per text: the body's last states, pooled."""

    output_name = "embedding"

    def __init__(
        self,
        network: Any,  # noqa: ANN401
        config: TracedReaderConfig,
        pooling: str = "mean",
        normalize: bool = False,
        maps: VectorMaps | None = None,  # between pooling and normalising
    ) -> None:
        super().__init__(network, config)
        self.keep_use(pooling, maps, normalize=normalize)

    def answer(self, made: Any, mask_BS: Tensor) -> Tensor:  # noqa: ANN401
        pooled = pool(made.last_hidden_state, mask_BS, self.pooling)
        return vector_of(pooled, self.maps, normalize=self.normalize)


class TracedYesNoScorer(TracedScorer):
    """One logit for a pair of texts by the last token's state, as `DecoderPairScorer` has it."""

    def __init__(
        self,
        network: Any,  # noqa: ANN401
        config: TracedReaderConfig,
        score_function: ScoreFunction = "",
        pair_template: str = "",
    ) -> None:
        super().__init__(network, config, score_function)
        self.template = pair_template
        self.output = nn.Linear(config.hidden_size, 1, bias=False)

    @property
    def pair_template(self) -> str:
        return self.template

    def answer(self, made: Any, mask_BS: Tensor) -> Tensor:  # noqa: ANN401
        logits: Tensor = self.output(pool(made.last_hidden_state, mask_BS, "last"))
        return logits


def network_of(config: TracedReaderConfig) -> Any:  # noqa: ANN401 - of transformers
    """A network that has read nothing yet, without weights."""
    import transformers
    from transformers.initialization import no_init_weights

    values = dict(config.values)
    made = transformers.AutoConfig.for_model(values.pop("model_type"), **values)
    with torch.device("cpu"), no_init_weights(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        factory: Any = getattr(transformers, config.factory)
        network = factory.from_config(
            made, dtype=torch.float32, attn_implementation=EAGER, trust_remote_code=False
        )
    network.tie_weights()
    return without_pooler(network) if config.factory == "AutoModel" else network


def without_pooler(network: Any) -> Any:  # noqa: ANN401
    """The body without what reads its first token after it, which no vector is made of."""
    if isinstance(getattr(network, "pooler", None), nn.Module):
        network.pooler = nn.Identity()  # not none: some bodies call it whatever it is
    return network
