"""Choices and bounds of embedders, of scores and of images. Imports no PyTorch, for flags."""

from typing import Literal, get_args

# The names of sentence-transformers, but for "last", its lasttoken.
POOLINGS = ("mean", "cls", "last", "max", "mean_sqrt_len_tokens", "weightedmean")
TOGETHER = "+"  # between the names of several, whose vectors follow one another
MAX_VECTOR_SIZE = 65_536  # values
TERM_POOLINGS = ("max", "sum")
TERM_WEIGHTS = ("relu", "log1p_relu")  # of logits, as sentence-transformers has
EMBEDDING_LAYERS = (
    *("first", "last", "second_to_last"),
    *("sum_last_four", "concat_last_four", "sum_all"),
)
# What makes scores of a head's logits, as the manifest has it; empty for what the task does.
ScoreFunction = Literal["", "softmax", "sigmoid", "identity"]
SCORE_FUNCTIONS: tuple[ScoreFunction, ...] = get_args(ScoreFunction)
RESAMPLINGS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # as Pillow has them
MAX_RESIZED = 4_096  # pixels a side of an image, before the middle is cut out
