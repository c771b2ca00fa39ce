"""Checks that the graph computes what the network computes, before anything is written.

The rows are ragged and right-padded, and run in the server's own session. Unless others are given
they are of random tokens: one as long as the model takes, one of the shortest, and lengths between.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import torch
from tokenizers import Tokenizer

from export.errors import ExportError
from export.graphs.graph import open_session
from models.data.tokenizer import cutting_copy
from models.networks.heads import TextNetwork
from service.batching.collate import mask_of, pad_right

NUM_ROWS = 8
BATCH_ROWS = 16
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Parity:
    """The differences between the graph's outputs and the network's, over all values of a batch."""

    max_abs_error: float
    mean_abs_error: float
    min_cosine: float  # of a row's output with the network's
    mean_cosine: float
    max_neighbour_effect: float  # a row in the batch against the row alone, both in the graph

    def to_dict(self) -> dict[str, float]:
        """Rounded to what is meaningful, so that equal exports give equal manifests."""
        return {
            "max_abs_error": float(f"{self.max_abs_error:.2e}"),
            "mean_abs_error": float(f"{self.mean_abs_error:.2e}"),
            "min_cosine": round(self.min_cosine, 5),
            "mean_cosine": round(self.mean_cosine, 5),
            "max_neighbour_effect": float(f"{self.max_neighbour_effect:.2e}"),
        }


class GraphRunner:
    """Runs a graph held in memory as the server would."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._session = open_session(model)
        self._inputs = [spec.name for spec in self._session.signature.inputs]
        self._outputs = [spec.name for spec in self._session.signature.outputs]

    def __call__(self, batch: Arrays) -> np.ndarray:
        """The first output, [B, values], for int64 [B, S] inputs."""
        return next(iter(self.outputs(batch).values()))

    def outputs(self, batch: Arrays) -> Arrays:
        """All outputs by name."""
        inputs = {name: batch[name] for name in self._inputs}
        return dict(zip(self._outputs, self._session.run(inputs, self._outputs), strict=True))


def check_parity(
    network: TextNetwork,
    model: onnx.ModelProto,
    max_tokens: int,
    max_abs_error: float,
    rows: Sequence[Sequence[int]] | None = None,
) -> dict[str, Parity]:
    """Compare each output on ragged rows, or raise `ExportError` where the graph is further off.

    Rows that are not given are pairs, where the network tells the texts of a pair apart.
    """
    batch = pad(rows, network.pad_token_id) if rows else ragged_batch(network, max_tokens)
    return compare_batch(network, model, batch, max_abs_error)


def compare_batch(
    network: TextNetwork, model: onnx.ModelProto, batch: Arrays, max_abs_error: float
) -> dict[str, Parity]:
    """Compare each output for a batch, or raise `ExportError` where the graph is further off."""
    run = GraphRunner(model)
    by_graph, by_network = run.outputs(batch), run_network(network, batch)
    alone = [run.outputs(row) for row in rows_alone(batch)]
    parities: dict[str, Parity] = {}
    for name in network.output_names:
        single = np.concatenate([each[name] for each in alone])
        parities[name] = compare(by_graph[name], by_network[name], single, max_abs_error)
    return parities


def compare(
    by_graph: np.ndarray, by_network: np.ndarray, alone: np.ndarray, max_abs_error: float
) -> Parity:
    """A graph's rows beside a network's, and beside those of the graph for each row alone.

    Raises `ExportError` where they differ from the network's by more than is allowed.
    """
    by_graph, by_network, alone = (
        values.reshape(len(values), -1) for values in (by_graph, by_network, alone)
    )
    # A row of one number has a sign and no direction: then the batch is one row.
    ours, theirs = (
        values.T if values.shape[1] == 1 else values for values in (by_graph, by_network)
    )
    each_cosine = cosines(ours, theirs)
    parity = Parity(
        max_abs_error=float(np.abs(by_graph - by_network).max()),
        mean_abs_error=float(np.abs(by_graph - by_network).mean()),
        min_cosine=float(each_cosine.min()),
        mean_cosine=float(each_cosine.mean()),
        max_neighbour_effect=float(np.abs(by_graph - alone).max()),
    )
    if not parity.max_abs_error <= max_abs_error:  # also where it is not a number
        raise ExportError(
            f"the graph's outputs differ from PyTorch's by up to {parity.max_abs_error:.2e}, "
            f"the limit is {max_abs_error:.0e}"
        )
    return parity


def cosines(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """[N] of rows with rows; 1 where both are zeros."""
    norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    products = (ours * theirs).sum(axis=1)
    are_zeros = ~ours.any(axis=1) & ~theirs.any(axis=1)
    values: np.ndarray = np.where(are_zeros, 1.0, products / np.where(norms == 0, 1.0, norms))
    return values


def run_network(network: TextNetwork, batch: Arrays) -> Arrays:
    """The PyTorch module's float32 outputs for the same batch, by name."""
    tensors = {name: torch.from_numpy(batch[name]) for name in network.input_names}
    with torch.inference_mode():
        outputs = network(**tensors)
    each = outputs if isinstance(outputs, tuple) else (outputs,)
    return {
        name: output.float().numpy()
        for name, output in zip(network.output_names, each, strict=True)
    }


def outputs_of_texts(
    run: GraphRunner,
    tokenizer: Tokenizer,
    texts: Sequence[str | tuple[str, str]],
    max_tokens: int,
    pad_id: int,
) -> Iterator[np.ndarray]:
    """Outputs of texts, or pairs, in their order, batch by batch; cut as the server cuts."""
    cutting = cutting_copy(tokenizer, max_tokens)
    for start in range(0, len(texts), BATCH_ROWS):
        encodings = cutting.encode_batch_fast(list(texts[start : start + BATCH_ROWS]))
        types = [encoding.type_ids for encoding in encodings]
        yield run(pad([encoding.ids for encoding in encodings], pad_id, types))


def pad(rows: Sequence[Sequence[int]], pad_id: int, types: Sequence[Sequence[int]] = ()) -> Arrays:
    """Right-padded int64 [B, S] inputs of rows of token ids, and of their types or 0.

    Vectors are asked for of all tokens but the first.
    """
    ids, mask = pad_right(rows, pad_id), mask_of(list(map(len, rows)))
    vector_mask = mask.copy()
    vector_mask[:, :1] = 0
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "token_type_ids": pad_right(types, 0) if types else np.zeros_like(ids),
        "vector_mask": vector_mask,
    }


def ragged_batch(network: TextNetwork, max_tokens: int) -> Arrays:
    """Rows of random tokens, the longest as long as the model takes, the shortest of two.

    Of pairs, where the network tells the texts of a pair apart.
    """
    generator = np.random.default_rng(0)
    lengths = np.linspace(max_tokens, min(2, max_tokens), NUM_ROWS).astype(int)
    rows = [
        network.as_sample(generator.integers(network.vocab_size, size=length).tolist())
        for length in lengths
    ]
    halves = [[0] * (len(row) - len(row) // 2) + [1] * (len(row) // 2) for row in rows]
    return pad(rows, network.pad_token_id, halves if network.has_token_types else ())


def rows_alone(batch: Arrays) -> Iterator[Arrays]:
    """Each row of a batch without its padding."""
    for row, length in enumerate(batch["attention_mask"].sum(axis=1)):
        yield {name: values[[row], :length] for name, values in batch.items()}
