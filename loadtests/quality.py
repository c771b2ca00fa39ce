"""What a precision costs: graphs of one version on texts, beside its float32 one.

    python -m loadtests.quality model_repository/spam/1 --data models/data/spam_heldout.tsv

For a classifier the share of labels that are right, for any model the cosine of its outputs with
float32's, and by how much a text's output differs when others are in its batch.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer

from models.datasets import Dataset, read_dataset
from models.tokenizer import cutting_copy
from service.collate import mask_of, pad_right
from service.cpus import available_cpus
from service.manifest import Manifest
from service.runtime import OnnxSession, SessionOptions

BATCH_ROWS = 16
ROWS_ALONE = 64  # texts that are computed alone too


def main(
    version: Annotated[Path, typer.Argument(help="Folder with model.onnx and its variants.")],
    data: Annotated[list[Path], typer.Option(help="Labelled texts, as for attendant train.")],
    graph: Annotated[list[Path] | None, typer.Option(help="Further graphs of the model.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Texts of each file, from its start.")] = 10_000,
) -> None:
    """Print a table for each file of texts; the first graph is what others are compared with."""
    manifest = Manifest.from_json((version / "manifest.json").read_text(encoding="utf-8"))
    paths = [*(version / name for name in manifest.filenames.values()), *(graph or [])]
    tokenizer = cutting_copy(
        Tokenizer.from_file(str(version / "tokenizer.json")), manifest.max_tokens
    )
    runners = {path: _Runner(path, manifest.pad_token_id) for path in paths}
    for file in data:
        dataset = read_dataset(file)
        examples = dataset.examples[:limit]
        texts = [example.text for example in examples]
        rows = [encoding.ids for encoding in tokenizer.encode_batch_fast(texts)]
        titles = ("graph", "accuracy", "mean cosine", "least cosine", "neighbours' effect")
        table = Table(*titles, title=f"{file}, {len(rows)} texts")
        expected = None
        for path, run in runners.items():
            found = run.in_batches(rows)
            expected = found if expected is None else expected
            table.add_row(
                str(path),
                _accuracy(manifest, Dataset(dataset.name, examples), found),
                *_cosines(found, expected),
                f"{_neighbour_effect(run, rows, found):.1e}",
            )
        Console().print(table)


class _Runner:
    """A graph on rows of token ids."""

    def __init__(self, path: Path, pad_id: int) -> None:
        self._session = OnnxSession(path, SessionOptions(num_threads=available_cpus()))
        self._pad_id = pad_id

    def __call__(self, rows: Sequence[Sequence[int]]) -> np.ndarray:
        ids = pad_right(rows, self._pad_id)
        mask = mask_of(list(map(len, rows)))
        arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        signature = self._session.signature
        feed = {spec.name: arrays[spec.name] for spec in signature.inputs}
        return self._session.run(feed, [signature.outputs[0].name])[0]

    def in_batches(self, rows: Sequence[Sequence[int]]) -> np.ndarray:
        """Batches of rows of about one length, as the server makes them; outputs in order."""
        order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
        batches = [order[i : i + BATCH_ROWS] for i in range(0, len(order), BATCH_ROWS)]
        found = np.concatenate([self([rows[index] for index in batch]) for batch in batches])
        return found[np.argsort(order)]


def _accuracy(manifest: Manifest, dataset: Dataset, found: np.ndarray) -> str:
    if not manifest.labels:
        return ""
    wanted = [example.label for example in dataset.examples]
    labels = [manifest.labels[index] for index in found.argmax(axis=1)]
    return f"{np.mean(np.array(labels) == np.array(wanted)):.2%}"


def _cosines(found: np.ndarray, expected: np.ndarray) -> tuple[str, str]:
    norms = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
    cosines = (found * expected).sum(axis=1) / norms
    return f"{cosines.mean():.4f}", f"{cosines.min():.4f}"


def _neighbour_effect(run: _Runner, rows: Sequence[Sequence[int]], found: np.ndarray) -> float:
    """Largest difference of a value between a text in its batch and the text alone."""
    alone = np.concatenate([run([row]) for row in rows[:ROWS_ALONE]])
    return float(np.abs(alone - found[:ROWS_ALONE]).max())


if __name__ == "__main__":
    typer.run(main)
