"""The cost of a precision: graphs of one version on texts, compared with its float32 one.

    python -m loadtests.measure.quality model_repository/spam/1 --data models/data/spam_heldout.tsv

For a classifier the share of labels that are right, for any model the cosine of its outputs with
float32's.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer

from models.data.datasets import read_dataset
from models.data.tokenizer import cutting_copy
from service.batching.collate import mask_of, pad_right
from service.contract.manifest import Manifest
from service.runtime.cpus import available_cpus
from service.runtime.session import OnnxSession, SessionOptions

BATCH_ROWS = 16


def main(
    version: Annotated[Path, typer.Argument(help="Folder with model.onnx and its variants.")],
    data: Annotated[list[Path], typer.Option(help="Labelled texts, as for attendant train.")],
    limit: Annotated[int, typer.Option(min=1, help="Texts of each file, from its start.")] = 10_000,
) -> None:
    """Print a table for each file of texts; the first graph is what others are compared with."""
    manifest = Manifest.from_json((version / "manifest.json").read_text(encoding="utf-8"))
    tokenizer = cutting_copy(
        Tokenizer.from_file(str(version / "tokenizer.json")), manifest.max_tokens
    )
    options = SessionOptions(num_threads=available_cpus())
    sessions = {name: OnnxSession(version / name, options) for name in manifest.graphs}
    for file in data:
        examples = read_dataset(file).examples[:limit]
        texts = [example.text for example in examples]
        rows = [encoding.ids for encoding in tokenizer.encode_batch_fast(texts)]
        labels = [example.label for example in examples]
        title = f"{file}, {len(rows)} texts"
        table = Table("graph", "accuracy", "mean cosine", "least cosine", title=title)
        expected = None
        for name, session in sessions.items():
            outputs = _outputs(session, rows, manifest.pad_token_id)
            expected = outputs if expected is None else expected
            accuracy = _accuracy(manifest, labels, outputs)
            table.add_row(name, accuracy, *_cosines(outputs, expected))
        Console().print(table)


def _outputs(session: OnnxSession, rows: Sequence[Sequence[int]], pad_id: int) -> np.ndarray:
    """In the order of the rows, which run in batches of about one length, as the server's do."""
    order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
    outputs = []
    for start in range(0, len(order), BATCH_ROWS):
        batch = [rows[index] for index in order[start : start + BATCH_ROWS]]
        ids, mask = pad_right(batch, pad_id), mask_of(list(map(len, batch)))
        arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        feed = {spec.name: arrays[spec.name] for spec in session.signature.inputs}
        outputs.append(session.run(feed, [session.signature.outputs[0].name])[0])
    return np.concatenate(outputs)[np.argsort(order)]


def _accuracy(manifest: Manifest, labels: Sequence[str], outputs: np.ndarray) -> str:
    if not manifest.labels:
        return ""
    answers = [manifest.labels[index] for index in outputs.argmax(axis=1)]
    return f"{np.mean(np.array(answers) == np.array(labels)):.2%}"


def _cosines(outputs: np.ndarray, expected: np.ndarray) -> tuple[str, str]:
    norms = np.linalg.norm(outputs, axis=1) * np.linalg.norm(expected, axis=1)
    cosines = (outputs * expected).sum(axis=1) / norms
    return f"{cosines.mean():.4f}", f"{cosines.min():.4f}"


if __name__ == "__main__":
    typer.run(main)
