"""Whether similarities of served embeddings are ordered as PyTorch's, as tasks of MTEB measure it.

    python -m loadtests.measure.similarities build/checkpoints/minilm

Pairs of texts share from none to all of their words. A line of the table is a way to embed them:
PyTorch itself; the server in each precision, over gRPC and over HTTP in base64. The first
correlation is Spearman's of the pairs' cosines with the shares, what MTEB would report; the second
that with PyTorch's cosines, where 1 is the same order.
"""

import base64
import json
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, TypeAlias

import grpc
import numpy as np
import typer
from attendant.v1 import text_pb2, text_pb2_grpc
from rich.console import Console
from rich.table import Table

from export.checks.agreement import rank_correlation
from export.checks.parity import pad, run_network
from export.exporter import export_any
from export.settings import ExportSettings
from loadtests.load.server import Server, start_server
from loadtests.measure.texts import HELP, Pair, pairs_of, real_texts
from models.checkpoints.checkpoint import Checkpoint, load_checkpoint
from models.data.tokenizer import cutting_copy
from service.contract.manifest import Precision

MODEL = "embedder"
REQUEST_TEXTS = 64
PRECISIONS: tuple[Precision, ...] = ("fp32", "int8")
Embed: TypeAlias = Callable[[Sequence[str]], np.ndarray]  # texts to vectors [texts, values]


@dataclass(frozen=True, slots=True)
class Row:
    """One way to embed."""

    way: str
    with_shares: float  # correlation of cosines with the shares of words
    with_torch: float  # and with PyTorch's cosines
    mean_cosine: float  # of vectors with PyTorch's
    least_cosine: float


def main(
    checkpoint: Annotated[Path, typer.Argument(help="An embedder, as `attendant import` wrote.")],
    data: Annotated[Path | None, typer.Option(help=HELP)] = None,
    pairs: Annotated[int, typer.Option(min=10, help="Pairs of texts.")] = 1_000,
) -> None:
    """Print a table of correlations."""
    texts, origin = real_texts(data)
    rows = measure(load_checkpoint(checkpoint), pairs_of(texts, pairs))
    title = f"{checkpoint}: {pairs} pairs of {origin}"
    table = Table("", "with shares", "with PyTorch", "mean cosine", "least", title=title)
    for row in rows:
        figures = row.with_shares, row.with_torch, row.mean_cosine, row.least_cosine
        table.add_row(row.way, *(f"{figure:.5f}" for figure in figures))
    Console().print(table)


def measure(
    checkpoint: Checkpoint, pairs: Sequence[Pair], precisions: Sequence[Precision] = PRECISIONS
) -> list[Row]:
    """A row for PyTorch, and of each precision one over gRPC and one over HTTP."""
    expected = _both(pairs, lambda texts: by_torch(checkpoint, texts))
    rows = [row_of("PyTorch, float32", pairs, expected, expected)]
    with tempfile.TemporaryDirectory() as folder:
        for precision in precisions:
            repository = Path(folder) / precision
            export_any(checkpoint, ExportSettings(MODEL, repository, precision))
            with _served(repository) as server:
                for way, embed in (("gRPC", by_grpc), ("HTTP, base64", by_http)):
                    vectors = _both(pairs, partial(embed, server))
                    rows.append(row_of(f"served {precision}, {way}", pairs, vectors, expected))
    return rows


def row_of(way: str, pairs: Sequence[Pair], vectors: np.ndarray, expected: np.ndarray) -> Row:
    """Figures of vectors [2, pairs, values]: of the first texts and of the others."""
    cosines = cosines_of(*vectors)
    of_torch = cosines_of(vectors, expected).ravel()
    return Row(
        way,
        rank_correlation(cosines, np.array([pair.share for pair in pairs])),
        rank_correlation(cosines, cosines_of(*expected)),
        float(of_torch.mean()),
        float(of_torch.min()),
    )


def cosines_of(vectors: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The cosine of each vector with the other of its place, along the last axis."""
    norms = np.linalg.norm(vectors, axis=-1) * np.linalg.norm(others, axis=-1)
    cosines: np.ndarray = (vectors * others).sum(axis=-1) / norms
    return cosines


def by_torch(checkpoint: Checkpoint, texts: Sequence[str]) -> np.ndarray:
    """Vectors of the network itself, in float32 [texts, values]; every text alone."""
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


if __name__ == "__main__":
    typer.run(main)
