"""Make one batch of arrays from the items that run together.

Pure: items in, arrays out. Texts are padded on the right to the longest; the rows of
tensor items, which are of equal shape, follow one another.
"""

from collections.abc import Callable, Sequence

import numpy as np

from service.batching.request import Item
from service.contract.tensors import Arrays


def concatenate_rows(items: Sequence[Item]) -> Arrays:
    """The batch of tensor items: rows one after the other."""
    if len(items) == 1:
        return items[0].inputs
    names = items[0].inputs
    return {name: np.concatenate([item.inputs[name] for item in items]) for name in names}


def pad_rows(pad_token_id: int, graph_inputs: Sequence[str]) -> Callable[[Sequence[Item]], Arrays]:
    """A collate function for text items: right-padded int64 [B, S], the mask 1 on tokens."""
    fill = {
        "input_ids": pad_token_id,
        "token_type_ids": 0,
        "target_ids": pad_token_id,
        "vector_mask": 0,
    }
    names = [name for name in graph_inputs if name in fill]

    def pad(items: Sequence[Item]) -> Arrays:
        batch = {
            name: pad_right([item.inputs[name][0] for item in items], fill[name]) for name in names
        }
        if "attention_mask" in graph_inputs:
            batch["attention_mask"] = mask_of([item.num_tokens for item in items])
        return batch

    return pad


def pad_right(rows: Sequence[np.ndarray | Sequence[int]], fill: int) -> np.ndarray:
    """Rows of different lengths as int64 [B, S], S being the longest."""
    padded = np.full((len(rows), max(map(len, rows))), fill, np.int64)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return padded


def mask_of(lengths: Sequence[int]) -> np.ndarray:
    """int64 [B, S], 1 on the tokens of right-padded rows and 0 on their padding."""
    mask: np.ndarray = np.arange(max(lengths)) < np.array(lengths)[:, None]
    return mask.astype(np.int64)
