"""Agreement of an embedder's further answers with the network's: weights of words, tokens' vectors.

Measured on texts, as agreement is. Of weights that is Pearson's correlation, over all of all texts;
of vectors the mean cosine.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from export.checks.parity import BATCH_ROWS, Arrays, GraphRunner, cosines, pad, run_network
from models.networks.heads import TextNetwork

WEIGHTS, VECTORS = ("token_weights", "term_weights"), "token_vectors"


def measure_retrieval(
    rows: Sequence[Sequence[int]], network: TextNetwork, run: GraphRunner
) -> dict[str, float]:
    """The figures of the answers that a network has; empty for a network of one vector per text."""
    if not network.embedder_fields:
        return {}
    pairs = list(_outputs(rows, network, run))
    figures: dict[str, float] = {}
    for name in network.output_names:
        by_graph, by_network = (
            np.concatenate([each[name] for each in side]) for side in zip(*pairs, strict=True)
        )
        if name in WEIGHTS:
            figures["weight_correlation"] = _correlation(by_graph.ravel(), by_network.ravel())
        elif name == VECTORS:
            figures["token_vector_cosine"] = float(cosines(by_graph, by_network).mean())
    return {name: round(figure, 5) for name, figure in figures.items()}


def _outputs(
    rows: Sequence[Sequence[int]], network: TextNetwork, run: GraphRunner
) -> Iterator[tuple[Arrays, Arrays]]:
    ordered = sorted(rows, key=len)
    for start in range(0, len(ordered), BATCH_ROWS):
        batch = pad(ordered[start : start + BATCH_ROWS], network.pad_token_id)
        yield run.outputs(batch), run_network(network, batch)


def _correlation(ours: np.ndarray, theirs: np.ndarray) -> float:
    """1 where both are constant, and so alike up to a shift."""
    if not ours.std() and not theirs.std():
        return 1.0
    return float(np.corrcoef(ours, theirs)[0, 1]) if ours.std() and theirs.std() else 0.0
