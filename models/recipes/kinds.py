"""The kinds of language model that `attendant pretrain` trains from nothing.

Imports no PyTorch: the command line draws a command of its own from each. To add one, add an entry
here, settings derived from `PretrainSettings`, and a module that defines `PRETRAINING`.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from models.recipes.bert_settings import BertSettings
from models.recipes.word_settings import ElmoSettings
from models.training.pretrain_settings import GPTSettings, LlamaSettings, PretrainSettings

if TYPE_CHECKING:
    from models.recipes.pretrain import Pretraining


@dataclass(frozen=True, slots=True)
class PretrainKind:
    """One kind: what a user may set, and where its training is."""

    name: str
    what: str  # it is, in a command's help
    settings: type[PretrainSettings]
    module: str
    network: str  # what comes of it, by its name in models/networks/kinds.py
    shortens: bool = False  # whether it may learn from shorter texts than a checkpoint reads

    def load(self) -> "Pretraining":
        """Imports PyTorch."""
        pretraining: Pretraining = import_module(self.module).PRETRAINING
        return pretraining


PRETRAIN_KINDS = (
    PretrainKind(
        "gpt", "a GPT, which learns to continue text,", GPTSettings, "models.recipes.gpt", "gpt"
    ),
    PretrainKind(
        "llama",
        "a decoder of Llama's kind, which learns to continue text,",
        LlamaSettings,
        "models.recipes.llama",
        "llama",
    ),
    PretrainKind(
        "bert",
        "a BERT, which learns masked words and whether one text follows another,",
        BertSettings,
        "models.recipes.bert",
        "encoder-masked-words",
        shortens=True,
    ),
    PretrainKind(
        "elmo",
        "an ELMo, which learns what comes next and what came before,",
        ElmoSettings,
        "models.recipes.elmo",
        "elmo",
    ),
)
