"""All settings of an import, each with its choices. Imports no PyTorch, for flags."""

from dataclasses import dataclass

from models.choices import EMBEDDING_LAYERS, POOLINGS
from models.settings import Settings, setting

IMPORT_TASKS = ("auto", "text-classification", "embedding", "fill-mask", "text-generation")
AS_DECLARED = "as declared"


@dataclass(frozen=True, slots=True)
class ImportSettings(Settings):
    """The task of an imported checkpoint; for embedders, how hidden states become a vector."""

    task: str = setting(
        "auto",
        "Task of the model. Auto takes the task that the checkpoint was trained for; an encoder "
        "without a head becomes an embedder.",
        choices=IMPORT_TASKS,
    )
    pooling: str | None = setting(
        None,
        "Embedders: how token vectors become one vector. By default what the checkpoint "
        "declares, else mean, which is better if neither was trained.",
        choices=POOLINGS,
        shown=AS_DECLARED,
    )
    layers: str | None = setting(
        None,
        "Embedders: which hidden states to pool. Sentence embedders are trained with the last "
        "layer.",
        choices=EMBEDDING_LAYERS,
        shown="last",
    )
    normalize: bool | None = setting(
        None,
        "Embedders: scale every embedding to length 1. By default what the checkpoint declares, "
        "else not.",
        shown=AS_DECLARED,
    )
    context: int | None = setting(
        None,
        "Decoders: the longest prompt and output together, in tokens; encoder-decoders: the "
        "longest source, and the longest output. By default what the "
        "checkpoint states; of Phi's long contexts, the length before they were stretched, as "
        "longer texts need other positions throughout.",
        low=1,
        shown=AS_DECLARED,
    )
    origin: str | None = setting(
        None,
        "Origin of the weights to record, if the folder's name does not tell it.",
        shown="hub id or folder name",
    )
