"""The default models, `minilm` and `spam`, as `make serve` offers them."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tritonclient import grpc as triton
from tritonclient.grpc import aio

from models.checkpoints.checkpoint import load_checkpoint
from models.data.datasets import read_dataset
from tests.e2e.calls import LIMIT_S, text_inputs
from tests.e2e.conftest import ROOT
from tests.e2e.server import ServerProcess
from tests.fakes.tiny import cosines, torch_outputs_of_texts

NUM_SENTENCES = 100
EMBEDDING_SIZE = 384
READY_LIMIT_S = 3.0


@pytest.fixture(scope="module")
def repository() -> Path:
    folder = ROOT / "model_repository"
    missing = [name for name in ("minilm", "spam") if not (folder / name / "1").is_dir()]
    if missing:
        pytest.fail(f"{folder} has no {' and no '.join(missing)}: run `make models`")
    return folder


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[ServerProcess]:
    with ServerProcess(repository) as process:
        yield process


@pytest.fixture(scope="module")
def exact_server(repository: Path) -> Iterator[ServerProcess]:
    """Float32, whatever the machine."""
    with ServerProcess(repository, "--precision", "fp32") as process:
        yield process


def test_default_models_start_in_3_s_without_torch(server: ServerProcess, repository: Path) -> None:
    """A second start, after the fixture's; the best of three, as the cores are shared."""
    starts_s: list[float] = []
    while len(starts_s) < 3 and min(starts_s, default=READY_LIMIT_S) >= READY_LIMIT_S:
        with ServerProcess(repository) as process:
            starts_s.append(process.start_s)
            assert "torch" not in Path(f"/proc/{process.process.pid}/maps").read_text()
    assert min(starts_s) < READY_LIMIT_S, f"ready after {starts_s} s"


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("WINNER!! claim your free prize now", b"spam"),
        ("Are we still on for lunch tomorrow?", b"ham"),
    ],
)
def test_spam_is_told_from_ham(text: str, label: bytes, server: ServerProcess) -> None:
    with triton.InferenceServerClient(server.address) as client:
        reply = client.infer("spam", text_inputs([text]), client_timeout=LIMIT_S)
    assert reply.as_numpy("label")[0, 0] == label
    assert reply.as_numpy("score")[0, 0] > 0.5


async def test_concurrent_embeddings_are_those_of_pytorch(
    server: ServerProcess, exact_server: ServerProcess
) -> None:
    """100 messages of mixed length, each a request of its own, all at once.

    Cosine above 0.9999 in float32, and 0.98 in what the machine chose.
    """
    examples = read_dataset(ROOT / "models/data/spam.tsv").examples
    texts = [example.text for example in examples[:: len(examples) // NUM_SENTENCES]]
    texts = texts[:NUM_SENTENCES]
    assert len(texts) == NUM_SENTENCES
    assert len({len(text) for text in texts}) > 30, "of mixed length"
    folder = ROOT / "build/checkpoints/minilm"
    if not folder.is_dir():
        pytest.fail(f"{folder} is missing: run `make models`")
    wanted = torch_outputs_of_texts(load_checkpoint(folder), texts)
    for process, least in ((exact_server, 0.9999), (server, 0.98)):
        found = await embeddings(process, texts)
        assert found.shape == (NUM_SENTENCES, EMBEDDING_SIZE)
        assert cosines(found, wanted).min() > least


async def embeddings(server: ServerProcess, texts: list[str]) -> np.ndarray:
    async with aio.InferenceServerClient(server.address) as client:
        calls = [
            client.infer("minilm", text_inputs([text]), client_timeout=LIMIT_S) for text in texts
        ]
        replies = await asyncio.gather(*calls)
    return np.concatenate([reply.as_numpy("embedding") for reply in replies])
