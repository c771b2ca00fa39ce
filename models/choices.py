"""The choices of an embedder's pooling, and of a head's scores. Imports no PyTorch, for flags."""

from typing import Literal, get_args

# The names of sentence-transformers, but for "last", its lasttoken.
POOLINGS = ("mean", "cls", "last", "max", "mean_sqrt_len_tokens", "weightedmean")
EMBEDDING_LAYERS = (
    *("first", "last", "second_to_last"),
    *("sum_last_four", "concat_last_four", "sum_all"),
)
# What makes scores of a head's logits, as the manifest has it; empty for what the task does.
ScoreFunction = Literal["", "softmax", "sigmoid", "identity"]
SCORE_FUNCTIONS: tuple[ScoreFunction, ...] = get_args(ScoreFunction)
