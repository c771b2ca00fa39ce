"""A decoder that was taught to write, taught to classify (Radford et al. 2018, section 3.2).

What it makes of a text's last token has seen all of the text, and one linear map turns that into
logits. The last token is always the end of text, as the paper's extract token: it is where
pretraining, too, had a whole text behind it, and texts of no characters have a token. Between the
texts of a pair it is the paper's delimiter.
"""
# ruff: noqa: N806 - suffixes are array layouts: B rows, D hidden size

from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from torch import Tensor, nn

from models.networks.encoder import initialise
from models.networks.gpt import GPT, GPTConfig
from models.networks.heads import TextNetwork

HEAD_DROPOUT = 0.1  # Radford et al. 2018, section 4.1


class GPTClassifier(TextNetwork):
    """A GPT, and a linear head on the last token's hidden state."""

    output_name = "logits"

    def __init__(self, gpt: GPT, num_labels: int) -> None:
        super().__init__()
        self.gpt = gpt
        self.config: GPTConfig = gpt.config
        self.dropout = nn.Dropout(HEAD_DROPOUT)
        self.output = nn.Linear(gpt.config.hidden_size, num_labels)
        self.output.apply(initialise)

    @property
    def num_labels(self) -> int:
        return self.output.out_features

    @property
    def pad_token_id(self) -> int:
        """Any would do: nothing that is read sees padding."""
        return self.config.eos_token_id

    @property
    def num_attentions(self) -> int:
        return self.config.num_layers

    @property
    def body(self) -> nn.Module:
        return self.gpt

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor | None = None,  # noqa: ARG002 - a GPT has none
    ) -> Tensor:
        """Logits [B, num_labels]; rows are right-padded."""
        last_BD = self.gpt.last_states(input_ids, attention_mask)
        logits: Tensor = self.output(self.dropout(last_BD))
        return logits


def ending_texts(tokenizer: Tokenizer, eos_token_id: int) -> Tokenizer:
    """A copy that ends each text with the end of text, and each of a pair."""
    ending = Tokenizer.from_str(tokenizer.to_str())
    eos_token = ending.id_to_token(eos_token_id)
    ending.post_processor = TemplateProcessing(
        single=f"$A {eos_token}",
        pair=f"$A {eos_token} $B:1 {eos_token}:1",
        special_tokens=[(eos_token, eos_token_id)],
    )
    return ending
