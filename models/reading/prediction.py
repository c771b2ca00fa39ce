"""What a network gives for each token of many rows."""

import torch
from torch import Tensor, nn

from models.batches import Rows, sorted_batches
from models.evaluation import EVALUATION_ROWS


def predict_rows(model: nn.Module, rows: Rows) -> list[Tensor]:
    """A network's packed rows, [tokens, outputs] of each row in their order.

    The model comes back in the mode that it was in.
    """
    was_training = model.training
    model.eval()
    lengths = rows.lengths()
    found: dict[int, Tensor] = {}
    with torch.inference_mode():
        for indices in sorted_batches(lengths, EVALUATION_ROWS):
            *inputs, _ = rows.batch(indices)
            outputs = model(*inputs).split([lengths[i] for i in indices])
            found.update(zip(indices, outputs, strict=True))
    model.train(was_training)
    return [found[i] for i in range(len(rows))]
