"""The choices of an embedder's pooling. Imports no PyTorch, for flags."""

POOLINGS = ("mean", "cls")
EMBEDDING_LAYERS = (
    *("first", "last", "second_to_last"),
    *("sum_last_four", "concat_last_four", "sum_all"),
)
