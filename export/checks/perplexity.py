"""The cost of a precision: perplexity on held-out text, of the network and of its graph.

The text is cut into windows, which the graph is fed token by token, in a batch: the way it decodes
when it is served. Perplexity is exp of the mean negative log-likelihood per token (Jelinek et al.
1977); lower is better, and it compares only between equal tokenizers.
"""
# ruff: noqa: N806 - suffixes are array layouts: B rows, S tokens, V vocabulary

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx
import torch

from export.checks.decoding import open_graph
from export.errors import ExportError
from export.graphs.cached_decoder import AnyDecoder

WINDOW_TOKENS = 256
MAX_WINDOWS = 16  # spread over the text: 4,080 predictions take seconds, and noise is below 1 %


def windows_of(token_ids: Sequence[int], max_tokens: int, first: Sequence[int] = ()) -> np.ndarray:
    """int64 [windows, tokens], evenly spread over the text, or `ExportError` where it is short.

    Each begins with `first`, the tokens that a tokenizer puts before a text: decoders that learned
    with them rest their attention on them.
    """
    size = min(WINDOW_TOKENS, max_tokens) - len(first)
    num_windows = min(MAX_WINDOWS, len(token_ids) // size)
    if not num_windows:
        raise ExportError(
            f"the held-out text has {len(token_ids)} tokens, expected at least {size}"
        )
    starts = np.linspace(0, len(token_ids) - size, num_windows).astype(int)
    return np.stack([np.array([*first, *token_ids[start : start + size]]) for start in starts])


def network_perplexity(network: AnyDecoder, windows: np.ndarray) -> float:
    """The network's perplexity by PyTorch, in float32."""

    def logits_of(rows: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            logits: np.ndarray = network(torch.from_numpy(rows[:, :-1])).float().numpy()
        return logits

    losses = [_losses(logits_of(row[None])[0], row[1:]) for row in windows]
    return math.exp(np.concatenate(losses).mean())


def graph_perplexity(
    model: onnx.ModelProto,
    windows: np.ndarray,
    on_step: Callable[[int], None] = lambda _: None,
) -> float:
    """The graph's perplexity in decoding; `on_step` gets the number of finished tokens."""
    num_windows, size = windows.shape
    decoder = open_graph(model, size, num_slots=num_windows)
    losses = []
    for place in range(size - 1):
        new = list(windows[:, place : place + 1])
        logits_BV = decoder.run(0, new, [place] * num_windows).whole()
        losses.append(_losses(logits_BV, windows[:, place + 1]))
        on_step(place + 1)
    return math.exp(np.concatenate(losses).mean())


def _losses(logits_NV: np.ndarray, targets: np.ndarray) -> np.ndarray:  # noqa: N803
    """Negative log-likelihood of each row's target."""
    shifted = logits_NV.astype(np.float64)
    shifted -= shifted.max(axis=1, keepdims=True)
    chosen = shifted[np.arange(len(targets)), targets]
    losses: np.ndarray = np.log(np.exp(shifted).sum(axis=1)) - chosen
    return losses
