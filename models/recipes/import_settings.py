"""All settings of an import, each with its choices. Imports no PyTorch, for flags."""

from dataclasses import dataclass

from models.choices import EMBEDDING_LAYERS, POOLINGS
from models.settings import Settings, setting

ONE_OUTPUT_TASKS = ("text-classification", "pair-scoring")  # which a head with one output may have
IMPORT_TASKS = ("auto", *ONE_OUTPUT_TASKS, "embedding", "fill-mask", "text-generation")
COMPARISONS = ("auto", "none")
NETWORKS = ("auto", "own", "transformers")
AS_DECLARED = "as declared"


@dataclass(frozen=True, slots=True)
class ImportSettings(Settings):
    """The task of an imported checkpoint; for embedders, how hidden states become a vector."""

    task: str = setting(
        "auto",
        "Task of the model. Auto takes the task that the checkpoint was trained for; an encoder "
        "without a head becomes an embedder. A head with one output scores pairs; where its folder "
        "says regression and no cross-encoder, it classifies texts, with one label.",
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
    layer_norm: bool | None = setting(
        None,
        "Embedders: apply a layer norm without weights to every embedding before it is scaled and "
        "cut, as the card of nomic-embed-text-v1.5 does, which no file of its folder declares.",
        shown="no",
    )
    dimensions: str | None = setting(
        None,
        "Embedders: the numbers of values that vectors may be cut to, e.g. 512,256, of a model "
        "that was trained for shorter vectors (Matryoshka). By default what config.json has in "
        "matryoshka_dimensions.",
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
    yes_no: str | None = setting(
        None,
        "Decoders that judge pairs by a word, as Qwen3-Reranker: the words for a match and for "
        "none, with a comma between. The score is the probability of the first among the two; of "
        "one word alone its logit.",
        shown="none",
    )
    pair_template: str | None = setting(
        None,
        "Decoders that score pairs: a file with the text that query and document are put into, in "
        "place of {query} and {document}, special tokens included.",
        shown="none",
    )
    adapter: str | None = setting(
        None,
        "LoRA adapter of PEFT to add to the weights: a folder with adapter_config.json and "
        "adapter_model.safetensors, which is of this checkpoint.",
        shown="none",
    )
    network: str = setting(
        "auto",
        "Network of a decoder: own takes Attendant's, of the families that are named above; "
        "transformers takes the library's own code (never a folder's) and makes the graph of it. "
        "Auto takes own where there is one.",
        choices=NETWORKS,
    )
    compare: str = setting(
        "auto",
        "Comparison with the folder's own network, where transformers is installed: token ids of "
        "200 texts, conversations, labels and outputs. None compares nothing.",
        choices=COMPARISONS,
    )
    accept_difference: bool = setting(
        False,
        "Import a folder although its comparison has found a difference, which the manifest keeps.",
    )
    origin: str | None = setting(
        None,
        "Origin of the weights to record, if the folder's name does not tell it.",
        shown="hub id or folder name",
    )
