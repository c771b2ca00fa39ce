"""Graphs are traced once per session: tracing is nearly all the time these tests take."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import onnx
import pytest

from export.exporter import export_any
from export.graphs.graph import trace
from export.settings import ExportSettings, Operator
from models.checkpoints.checkpoint import Checkpoint, save_checkpoint
from tests.fakes.tiny import (
    ALBERT,
    DEBERTA,
    MODERN,
    MPNET,
    NOMIC,
    tiny_classifier,
    tiny_embedder,
)
from tests.fakes.tiny_gpt import tiny_generator

CHECKPOINTS: dict[str, Callable[[], Checkpoint]] = {
    "bert classifier": tiny_classifier,
    "bert embedder": tiny_embedder,
    "distilbert": lambda: tiny_classifier(pooling="mean", type_vocab_size=0),
    "roberta": lambda: tiny_embedder(type_vocab_size=1, position_offset=2, pad_token_id=1),
    "modernbert": lambda: tiny_classifier(**MODERN),
    "nomic": lambda: tiny_embedder(**NOMIC),
    "mpnet": lambda: tiny_embedder(**MPNET),
    "albert": lambda: tiny_classifier(**ALBERT),
    "deberta": lambda: tiny_classifier(**DEBERTA),
    "deberta embedder": lambda: tiny_embedder(**DEBERTA),
}


checkpoint_of = cache(lambda name: CHECKPOINTS[name]())
TraceOf = Callable[[str, Operator], onnx.ModelProto]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, and what is in it; empty folders count too."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture(scope="session")
def trace_of() -> TraceOf:
    """The graph of a checkpoint of `CHECKPOINTS`; not to be changed."""
    return cache(lambda name, operator: trace(checkpoint_of(name).encoder_model, operator))


@pytest.fixture(scope="session")
def half_graph() -> onnx.ModelProto:
    """The classifier's in float16; not to be changed."""
    return trace(
        checkpoint_of("bert classifier").encoder_model, "MultiHeadAttention", precision="fp16"
    )


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with version 1 of the classifier `spam` in float32; not to be changed."""
    repository = tmp_path_factory.mktemp("exported")
    export_any(checkpoint_of("bert classifier"), ExportSettings("spam", repository, "fp32"))
    return repository


@pytest.fixture(scope="session")
def checkpoint_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The classifier, saved."""
    folder = tmp_path_factory.mktemp("checkpoints") / "spam"
    save_checkpoint(checkpoint_of("bert classifier"), folder)
    return folder


@pytest.fixture(scope="session")
def decoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of a decoder, saved."""
    folder = tmp_path_factory.mktemp("checkpoints") / "tale"
    save_checkpoint(tiny_generator(), folder)
    return folder
