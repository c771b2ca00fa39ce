"""The accuracy that a precision costs: of exported versions, of checkpoints, and as served.

    python -m loadtests.measure accuracy                          # the default models
    python -m loadtests.measure accuracy --version model_repository/spam/1 --labelled sms.tsv
    python -m loadtests.measure accuracy --checkpoint build/checkpoints/minilm --data FOLDER
    python -m loadtests.measure accuracy --families build/all-MiniLM-L6-v2     # random weights
    python -m loadtests.measure accuracy --served build/checkpoints/minilm

A *version*'s graphs are compared with its first, the float32 one: the share of right labels, and
the cosine of outputs. A *checkpoint* is exported in int8 with scales that were found on our own
texts, and compared with PyTorch on others. A *served* embedder is asked over gRPC and over HTTP in
base64: the correlation of the cosines of pairs with PyTorch's, and with the share of words that the
texts of a pair have in common, is Spearman's, what MTEB reports; 1 is the same order. Of families
with random weights errors are those of noise.
"""

import base64
import json
import random
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import grpc
import numpy as np
from attendant.v1 import text_pb2, text_pb2_grpc
from rich.console import Console

from loadtests.load.server import Server, start_server
from loadtests.measure.families import FAMILIES, Family, write_family
from loadtests.measure.records import (
    Column,
    Measure,
    Options,
    Turn,
    Way,
    by_columns,
    option,
)
from loadtests.measure.texts import HELP, Pair, pairs_of, real_texts
from service.batching.collate import mask_of, pad_right
from service.contract.manifest import Manifest, Precision
from service.runtime.cpus import available_cpus
from service.runtime.session import OnnxSession, SessionOptions

if TYPE_CHECKING:
    from models.checkpoints.checkpoint import Checkpoint

MODEL = "embedder"
errors = Console(stderr=True)
BATCH_ROWS = 16
REQUEST_TEXTS = 64
SERVED: tuple[Precision, ...] = ("fp32", "int8")
Embed: TypeAlias = Callable[[Sequence[str]], np.ndarray]  # texts to vectors [texts, values]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyOptions(Options):
    """What is compared; by default the default models."""

    version: list[Path] = option([], "Folder with model.onnx and its variants.")
    labelled: Path = option(
        Path("models/data/spam_heldout.tsv"), "Labelled texts, as for attendant train."
    )
    checkpoint: list[Path] = option([], "As `attendant import` wrote it; exported in int8.")
    families: Path | None = option(
        None, "A Hugging Face folder, whose tokenizer one network per family gets."
    )
    served: list[Path] = option([], "A checkpoint of an embedder.")
    data: Path | None = option(None, HELP)
    limit: int = option(1_000, "Texts, or pairs of them.", min=10)
    rounds: int = option(1, "Rounds that count.", min=1)
    warm_up: int = option(0, "Rounds before them.", min=0)


def ways(options: AccuracyOptions, _: ExitStack) -> dict[str, Way]:
    """A way for each graph, checkpoint, and way to embed."""
    versions = options.version
    if not (versions or options.checkpoint or options.families or options.served):
        versions = [Path(f"model_repository/{name}/1") for name in ("spam", "minilm")]
    found: dict[str, Way] = {}
    for version in versions:
        found |= graph_ways(version, options.labelled, options.limit)
    texts, _origin = real_texts(options.data)
    chosen = random.Random(0).sample(texts, min(options.limit, len(texts)))
    for folder in options.checkpoint:
        found[f"checkpoint {folder.name}"] = partial(_checkpoint_costs, folder, chosen)
    if options.families:
        for family in FAMILIES:
            for kind, is_reranker in (("embedder", False), ("reranker", True)):
                found[f"{family.kind}, {kind}"] = partial(
                    _family_costs, family, options.families, chosen, is_reranker=is_reranker
                )
    for folder in options.served:
        rows = served_ways(folder, pairs_of(texts, options.limit))
        found |= {f"{folder.name}, {name}": way for name, way in rows.items()}
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


def _family_costs(
    family: Family, tokenizer: Path, texts: Sequence[str], *, is_reranker: bool
) -> Turn:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / family.kind
        write_family(family, folder, tokenizer, is_reranker=is_reranker)
        return _checkpoint_costs(folder, texts)


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


def served_ways(folder: Path, pairs: Sequence[Pair]) -> dict[str, Way]:
    """PyTorch itself, and the server in each precision, over gRPC and HTTP."""
    rows: dict[str, Turn] = {}

    def measured(name: str) -> Turn:
        from models.checkpoints.checkpoint import load_checkpoint

        if not rows:
            rows.update(similarities(load_checkpoint(folder), pairs))
        return rows[name]

    names = [TORCH, *(f"served {each}, {way}" for each in SERVED for way in ("gRPC", HTTP))]
    return {name: partial(measured, name) for name in names}


TORCH, HTTP = "PyTorch, float32", "HTTP, base64"


def similarities(
    checkpoint: "Checkpoint", pairs: Sequence[Pair], precisions: Sequence[Precision] = SERVED
) -> dict[str, Turn]:
    """Figures of PyTorch, and of each precision over gRPC and over HTTP."""
    from export.exporter import export_any
    from export.settings import ExportSettings

    expected = _both(pairs, lambda texts: by_torch(checkpoint, texts))
    rows: dict[str, Turn] = {TORCH: similarity_of(pairs, expected, expected)}
    with tempfile.TemporaryDirectory() as folder:
        for precision in precisions:
            repository = Path(folder) / precision
            export_any(checkpoint, ExportSettings(MODEL, repository, precision))
            with _served(repository) as server:
                for way, embed in (("gRPC", by_grpc), (HTTP, by_http)):
                    vectors = _both(pairs, partial(embed, server))
                    name = f"served {precision}, {way}"
                    rows[name] = similarity_of(pairs, vectors, expected)
    return rows


def similarity_of(pairs: Sequence[Pair], vectors: np.ndarray, expected: np.ndarray) -> Turn:
    """Figures of vectors [2, pairs, values]: of the first texts and of the others."""
    from export.checks.agreement import rank_correlation

    cosines = cosines_of(*vectors)
    of_torch = cosines_of(vectors, expected).ravel()
    return {
        "with_shares": rank_correlation(cosines, np.array([pair.share for pair in pairs])),
        "with_torch": rank_correlation(cosines, cosines_of(*expected)),
        "mean": float(of_torch.mean()),
        "least": float(of_torch.min()),
    }


def cosines_of(vectors: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The cosine of each vector with the other of its place, along the last axis."""
    norms = np.linalg.norm(vectors, axis=-1) * np.linalg.norm(others, axis=-1)
    cosines: np.ndarray = (vectors * others).sum(axis=-1) / norms
    return cosines


def by_torch(checkpoint: "Checkpoint", texts: Sequence[str]) -> np.ndarray:
    """Vectors of the network itself, in float32 [texts, values]; every text alone."""
    from export.checks.parity import pad, run_network
    from models.data.tokenizer import cutting_copy

    network = checkpoint.text_network
    tokenizer = cutting_copy(checkpoint.tokenizer, checkpoint.max_tokens)
    rows = (
        pad([encoding.ids], network.pad_token_id)
        for encoding in tokenizer.encode_batch_fast(list(texts))
    )
    return np.concatenate([run_network(network, row)[network.output_name] for row in rows])


def by_grpc(server: Server, texts: Sequence[str]) -> np.ndarray:
    with grpc.insecure_channel(server.address) as channel:
        stub = text_pb2_grpc.TextServiceStub(channel)
        request = text_pb2.EmbedRequest(model=MODEL, texts=texts, truncate=True)
        return np.array([each.values for each in stub.Embed(request).results], np.float32)


def by_http(server: Server, texts: Sequence[str]) -> np.ndarray:
    body = {
        "model": MODEL,
        "input": list(texts),
        "encoding_format": "base64",
        "truncate_prompt_tokens": -1,
    }
    request = urllib.request.Request(
        f"http://{server.http_address}/v1/embeddings",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request) as response:  # noqa: S310
        answers = json.loads(response.read())["data"]
    return np.array([np.frombuffer(base64.b64decode(each["embedding"]), "<f4") for each in answers])


def _both(pairs: Sequence[Pair], embed: Embed) -> np.ndarray:
    """Vectors [2, pairs, values], in requests of few texts."""
    texts = [pair.text for pair in pairs] + [pair.other for pair in pairs]
    starts = range(0, len(texts), REQUEST_TEXTS)
    vectors = np.concatenate([embed(texts[start : start + REQUEST_TEXTS]) for start in starts])
    return vectors.reshape(2, len(pairs), -1)


@contextmanager
def _served(repository: Path) -> Iterator[Server]:
    server = start_server(repository, ["--http-port", "0"])
    try:
        yield server
    finally:
        server.stop()


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
        Column(
            "similarities with PyTorch's",
            _either("with_torch", "similarity_correlation"),
            "correlation",
        ),
        Column("similarities with shares of words", "with_shares", "correlation"),
        Column("refused by the export", "refused"),
    ),
)
