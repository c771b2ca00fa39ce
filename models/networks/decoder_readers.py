"""Decoders that read texts instead of writing them: class logits, a score, or one vector per text.

What a decoder makes of a text's last token has seen all of the text (Radford et al. 2018, section
3.2), so that is what a head reads; an embedder may also take the mean over the tokens. GPT and all
that `models/networks/llama.py` computes may be the decoder. Its output layer is not needed, and is
none of its weights here.

Knows nothing about files, tokenizers or training.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, S tokens, D hidden size

from dataclasses import replace
from typing import TypeAlias

import torch
from torch import Tensor, nn

from models.choices import SCORE_FUNCTIONS, ScoreFunction
from models.errors import check_choice, check_range
from models.networks.encoder import initialise
from models.networks.gpt import GPT, GPTConfig
from models.networks.heads import TextNetwork
from models.networks.llama import Llama, LlamaConfig
from models.networks.pooling import pool
from models.networks.vector_maps import Pooled, VectorMaps, vector_of

Decoder: TypeAlias = GPT | Llama


class DecoderReader(TextNetwork):
    """A decoder, and what a subclass puts on it."""

    config: GPTConfig | LlamaConfig

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder
        self.config = decoder.config

    @property
    def pad_token_id(self) -> int:
        """Any would do: nothing that is read sees padding."""
        return 0

    @property
    def num_attentions(self) -> int:
        return self.config.num_layers

    @property
    def body(self) -> nn.Module:
        return self.decoder


class DecoderClassifier(DecoderReader):
    """A decoder, and a linear map of its last token.

    Files say which token that is by `ignored_token_id`: the last that is another. A text may end
    with that token where it also ends texts, and the head then reads what stands before it.
    """

    output_name = "logits"

    def __init__(
        self,
        decoder: Decoder,
        num_labels: int,
        ignored_token_id: int | None = None,
        score_function: ScoreFunction = "",
    ) -> None:
        super().__init__(decoder)
        check_choice("score_function", score_function, SCORE_FUNCTIONS)
        if ignored_token_id is not None:
            check_range("ignored_token_id", ignored_token_id, 0, self.config.vocab_size - 1)
        self.ignored_token_id = ignored_token_id
        self.scores_by: ScoreFunction = score_function
        self.output = nn.Linear(self.config.hidden_size, num_labels, bias=False)
        self.output.apply(initialise)

    @property
    def score_function(self) -> ScoreFunction:
        return self.scores_by

    @property
    def num_labels(self) -> int:
        return self.output.out_features

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor | None = None,  # noqa: ARG002 - a decoder has none
    ) -> Tensor:
        """Logits [B, num_labels]; rows are right-padded."""
        if self.ignored_token_id is not None:
            attention_mask = without_end(input_ids, attention_mask, self.ignored_token_id)
        logits: Tensor = self.output(self.decoder.last_states(input_ids, attention_mask))
        return logits


class DecoderPairScorer(DecoderClassifier):
    """A decoder that reads two texts together, with one logit for how well they match.

    With a `pair_template` they are put into it, in place of {query} and {document}, and read as one
    text.
    """

    def __init__(
        self,
        decoder: Decoder,
        ignored_token_id: int | None = None,
        score_function: ScoreFunction = "",
        pair_template: str = "",
    ) -> None:
        super().__init__(decoder, 1, ignored_token_id, score_function)
        self.template = pair_template

    @property
    def pair_template(self) -> str:
        return self.template


class DecoderEmbedder(Pooled, DecoderReader):
    """A decoder whose last token's state, or another pooling of all, is the vector of a text."""

    output_name = "embedding"

    def __init__(
        self,
        decoder: Decoder,
        pooling: str = "last",
        normalize: bool = False,
        maps: VectorMaps | None = None,  # between pooling and normalising
    ) -> None:
        super().__init__(decoder)
        self.keep_use(pooling, maps, normalize=normalize)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor | None = None,  # noqa: ARG002 - a decoder has none
    ) -> Tensor:
        """Embeddings [B, embedding_size]; of length 1 if `normalize`."""
        if self.pooling == "last":
            pooled = self.decoder.last_states(input_ids, attention_mask)
        else:
            hidden_BSD = self.decoder.hidden_states(input_ids, attention_mask)
            pooled = pool(hidden_BSD, attention_mask, self.pooling)
        return vector_of(pooled, self.maps, normalize=self.normalize)


def without_end(ids_BS: Tensor, attention_mask_BS: Tensor, token_id: int) -> Tensor:
    """The mask of rows without the tokens of that id at their ends; a first token stays."""
    place_S = torch.arange(ids_BS.shape[1], device=ids_BS.device)
    is_other_BS = ((ids_BS != token_id) & (attention_mask_BS != 0)).to(torch.int64)
    last_B1 = (is_other_BS * place_S).amax(dim=1, keepdim=True)
    return attention_mask_BS * (place_S <= last_B1).to(attention_mask_BS.dtype)


def without_output(decoder: Decoder) -> Decoder:
    """The decoder without an output layer of its own."""
    if isinstance(decoder, GPT) or decoder.output is None:
        return decoder
    with torch.device("meta"):
        body = Llama(replace(decoder.config, is_tied=True))
    state = decoder.state_dict()
    del state["output.weight"]
    body.load_state_dict(state, assign=True)
    return body
