"""Two servers for the session: one in good health, one with a broken model and a short queue."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tritonclient import grpc as triton

from export.exporter import export_any
from export.settings import ExportSettings
from models.checkpoints.checkpoint import Checkpoint
from tests.e2e.graphs import (
    add_sub,
    iterations_per_s,
    lookup,
    run_one_at_a_time,
    slow,
    write_graph,
    write_slow_text,
)
from tests.e2e.server import ServerProcess
from tests.fakes.tiny import MAX_TOKENS, tiny_classifier, tiny_embedder

MAX_QUEUE_REQUESTS = 2
LONG_S = 1.0  # of an idle machine: long beside everything that must be quick
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def spam() -> Checkpoint:
    """What `tiny-spam` was exported from."""
    return tiny_classifier()


@pytest.fixture(scope="session")
def embed() -> Checkpoint:
    """What `tiny-embed` was exported from."""
    return tiny_embedder()


@pytest.fixture(scope="session")
def long_iterations() -> int:
    """For which the slow models compute for `LONG_S`, longer where the cores are shared."""
    return int(iterations_per_s() * LONG_S)


@pytest.fixture(scope="session")
def repository(
    tmp_path_factory: pytest.TempPathFactory, spam: Checkpoint, embed: Checkpoint
) -> Path:
    """A text classifier, an embedder and three tensor models, one of them slow."""
    folder = tmp_path_factory.mktemp("repository")
    export_any(spam, ExportSettings("tiny-spam", folder, "fp32"))
    export_any(embed, ExportSettings("tiny-embed", folder, "fp32"))
    write_graph(add_sub(), folder, "add-sub")
    write_graph(lookup(), folder, "lookup")
    write_graph(slow(), folder, "slow")
    run_one_at_a_time(folder, "slow")
    return folder


@pytest.fixture(scope="session")
def server(repository: Path) -> Iterator[ServerProcess]:
    with ServerProcess(repository) as process:
        yield process


@pytest.fixture(scope="session")
def hurt_server(
    tmp_path_factory: pytest.TempPathFactory, long_iterations: int
) -> Iterator[ServerProcess]:
    """Slow models, queues of two requests, and a model that cannot be loaded."""
    folder = tmp_path_factory.mktemp("hurt")
    write_graph(add_sub(), folder, "add-sub")
    write_graph(slow(), folder, "slow")
    run_one_at_a_time(folder, "slow")
    write_slow_text(folder, long_iterations // MAX_TOKENS)
    run_one_at_a_time(folder, "slow-text")
    (folder / "broken/1").mkdir(parents=True)
    (folder / "broken/1/model.onnx").write_bytes(b"no model")
    with ServerProcess(folder, "--max-queue-requests", str(MAX_QUEUE_REQUESTS)) as process:
        yield process


@pytest.fixture(scope="session")
def client(server: ServerProcess) -> Iterator[triton.InferenceServerClient]:
    """An unmodified tritonclient."""
    with triton.InferenceServerClient(server.address) as connected:
        yield connected
