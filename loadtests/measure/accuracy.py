"""The accuracy that a precision costs: of exported versions, and of checkpoints.

    python -m loadtests.measure accuracy                          # the default models
    python -m loadtests.measure accuracy --version model_repository/spam/1 --labelled sms.tsv
    python -m loadtests.measure accuracy --checkpoint build/checkpoints/minilm --data FOLDER

A *version*'s graphs are compared with its first, the float32 one: the share of right labels, and
the cosine of outputs. A *checkpoint* is exported in int8 with scales that were found on our own
texts, and compared with PyTorch on others.
"""

import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console

from loadtests.measure.records import Column, Measure, Options, Turn, Way, by_columns, option
from loadtests.measure.texts import HELP, real_texts
from service.batching.collate import mask_of, pad_right
from service.contract.manifest import Manifest, Precision
from service.runtime.cpus import available_cpus
from service.runtime.session import OnnxSession, SessionOptions

if TYPE_CHECKING:
    from models.checkpoints.checkpoint import Checkpoint

errors = Console(stderr=True)
BATCH_ROWS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyOptions(Options):
    """What is compared; by default the default models."""

    version: list[Path] = option([], "Folder with model.onnx and its variants.")
    labelled: Path = option(
        Path("models/data/spam_heldout.tsv"), "Labelled texts, as for attendant train."
    )
    checkpoint: list[Path] = option([], "As `attendant import` wrote it; exported in int8.")
    data: Path | None = option(None, HELP)
    limit: int = option(1_000, "Texts.", min=10)
    rounds: int = option(1, "Rounds that count.", min=1)
    warm_up: int = option(0, "Rounds before them.", min=0)


def ways(options: AccuracyOptions, _: ExitStack) -> dict[str, Way]:
    """A way for each graph, and for each checkpoint."""
    versions = options.version
    if not (versions or options.checkpoint):
        versions = [Path(f"model_repository/{name}/1") for name in ("spam", "minilm")]
    found: dict[str, Way] = {}
    for version in versions:
        found |= graph_ways(version, options.labelled, options.limit)
    if options.checkpoint:
        texts = real_texts(options.data)
        chosen = random.Random(0).sample(texts, min(options.limit, len(texts)))
        for folder in options.checkpoint:
            found[f"checkpoint {folder.name}"] = partial(_checkpoint_costs, folder, chosen)
    return found


def graph_ways(version: Path, labelled: Path, limit: int) -> dict[str, Way]:
    """The graphs of a version on labelled texts."""
    from tokenizers import Tokenizer

    from models.data.datasets import read_dataset
    from models.data.tokenizer import cutting_copy

    manifest = Manifest.from_json((version / "manifest.json").read_text(encoding="utf-8"))
    whole = Tokenizer.from_file(str(version / "tokenizer.json"))
    examples = read_dataset(labelled).examples[:limit]
    encoded = cutting_copy(whole, manifest.max_tokens).encode_batch_fast(
        [example.text for example in examples]
    )
    rows, labels = [each.ids for each in encoded], [example.label for example in examples]
    expected: list[np.ndarray] = []

    def compared(name: str) -> Turn:
        session = OnnxSession(version / name, SessionOptions(num_threads=available_cpus()))
        outputs = _outputs(session, rows, manifest.pad_token_id)
        if not expected:
            expected.append(outputs)
        cosines = cosines_of(outputs, expected[0])
        turn = {"mean": float(cosines.mean()), "least": float(cosines.min())}
        if not manifest.labels:
            return turn
        answers = [manifest.labels[index] for index in outputs.argmax(axis=1)]
        return {**turn, "accuracy": float(np.mean(np.array(answers) == np.array(labels)))}

    title = version.parent.name
    return {f"{title}, {name}": partial(compared, name) for name in manifest.graphs}


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


def _checkpoint_costs(folder: Path, texts: Sequence[str]) -> Turn:
    from models.checkpoints.checkpoint import load_checkpoint

    return costs_of(load_checkpoint(folder), texts)


def costs_of(
    checkpoint: "Checkpoint", texts: Sequence[str], precision: Precision = "int8"
) -> dict[str, float]:
    """The figures that a manifest has, of these texts; none where the export is refused."""
    import onnx

    from export.checks.agreement import measure_agreement, sample_texts
    from export.checks.parity import GraphRunner
    from export.errors import ExportError
    from export.exporter import export_any
    from export.settings import ExportSettings

    network = checkpoint.text_network
    with tempfile.TemporaryDirectory() as folder:
        try:
            version, _ = export_any(checkpoint, ExportSettings("model", Path(folder), precision))
        except ExportError as error:
            errors.print(f"{checkpoint.origin} is refused: {error}")
            return {"refused": 1.0}
        graph = GraphRunner(onnx.load(version / "model.onnx"))
    samples = sample_texts(
        checkpoint.task, checkpoint.tokenizer, texts, checkpoint.max_tokens, network
    )
    return measure_agreement(checkpoint.task, checkpoint.labels, samples, network, graph)


def cosines_of(vectors: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The cosine of each vector with the other of its place, along the last axis."""
    norms = np.linalg.norm(vectors, axis=-1) * np.linalg.norm(others, axis=-1)
    cosines: np.ndarray = (vectors * others).sum(axis=-1) / norms
    return cosines


def _either(*names: str) -> Callable[[Mapping[str, float]], float]:
    """The first of these numbers that a turn has."""
    return lambda turn: next((turn[name] for name in names if name in turn), turn[names[0]])


ACCURACY = Measure(
    "accuracy",
    "Answers, cosines and orders of a precision beside float32's",
    "What int8 costs",
    AccuracyOptions,
    ways,
    by_columns(
        Column("right labels", "accuracy", "%"),
        Column("mean cosine", _either("mean", "mean_text_cosine"), "cosine"),
        Column("least cosine", _either("least", "least_text_cosine"), "cosine"),
        Column("same labels", "same_labels", "%"),
        Column("same nearest neighbour", "same_neighbours", "%"),
        Column("mean change of scores", "mean_score_difference"),
        Column("scores with float32's", "score_correlation", "correlation"),
        Column("similarities with PyTorch's", "similarity_correlation", "correlation"),
        Column("refused by the export", "refused"),
    ),
)
