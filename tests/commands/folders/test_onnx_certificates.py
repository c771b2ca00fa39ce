"""Graphs in ONNX beside weights: what is served is compared with transformers' network of these."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import numpy_helper

from commands.folders import onnx_certificate
from commands.folders.onnx_maker import make
from commands.folders.onnx_remaking import remade
from export.certificates.certificate import Certificate, Row
from models.checkpoints import plan as plans
from models.checkpoints.graph_files import GraphWish
from models.errors import CheckpointError
from tests.commands.folders.test_onnx_decoders import job, write_folder
from tests.commands.folders.test_onnx_folders import with_pooling
from tests.commands.folders.test_verify import rows, verified
from tests.e2e.server import ServerProcess
from tests.fakes.onnx_folders import CLASSES, image_folder, onnx_folder

OUTPUTS = {
    **dict.fromkeys(CLASSES, "logits"),
    "embedding": "vectors",
    "fill-mask": "log probabilities",
    "image-classification": "logits",
}
FP32 = {"variant": "fp32"}


def write(folder: Path, task: str, change: Callable[[onnx.ModelProto], None] | None = None) -> Path:
    """A folder of a task with its weights and its graph."""
    made = image_folder(folder) if task == "image-classification" else None
    network = made or onnx_folder(folder, task, change=change)
    config = (folder / "config.json").read_text()
    network.save_pretrained(folder)
    (folder / "config.json").write_text(config)
    return folder


def manifest_of(target: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((target / "model/1/manifest.json").read_text())
    return values


def row_of(target: Path, what: str) -> Row:
    found = Certificate.from_dict(manifest_of(target)["certificate"]["weights"])
    return next(row for row in found.rows if row.what == what)


def scaled(model: onnx.ModelProto) -> None:
    """One matrix a thousandth larger."""
    tensor = next(
        each for each in model.graph.initializer if each.name.endswith("word_embeddings.weight")
    )
    values = numpy_helper.to_array(tensor) * 1.001
    tensor.CopyFrom(numpy_helper.from_array(values.astype("float32"), tensor.name))


@pytest.mark.parametrize("task", OUTPUTS)
def test_a_graph_beside_weights_is_compared_with_transformers_network(
    task: str, tmp_path: Path
) -> None:
    """In outputs within 1e-5 and, of texts, in the tokens of 200."""
    folder = write(tmp_path / "mine", task)
    target = tmp_path / "out"
    target.mkdir()
    facts = make(job(folder, **FP32), target, lambda _: None)
    outputs = row_of(target, OUTPUTS[task])
    assert outputs.by.startswith(("transformers", "sentence-transformers"))
    assert outputs.max_difference is not None
    assert outputs.max_difference < outputs.limit == 1e-5
    assert outputs.number == outputs.equal > 1
    if task != "image-classification":
        assert row_of(target, "tokens").equal > 190
    text = manifest_of(target)["certificate"]["text"]
    assert facts["certificate"] == text
    graph = "model.onnx" if task == "image-classification" else "onnx/model.onnx"
    assert text.startswith(f"{graph} compared with its own graph as it was")
    assert "; with the weights beside it compared: " in text


def test_a_verification_has_the_folder_s_own_file_of_weights(tmp_path: Path) -> None:
    """As another name of the same file, and not a copy, which large ones have no room for."""
    folder = write(tmp_path / "mine", "text-classification")
    path = folder / "onnx/model.onnx"
    whole = onnx.load(path)
    onnx.save(whole, path, save_as_external_data=True, location="model.data", size_threshold=64)
    plan = plans.recognise(folder, GraphWish("fp32"))
    with remade(plan, {}, tmp_path / "no cache") as (_, certificate):
        assert (path.parent / "model.data").stat().st_nlink == 2
        assert certificate.is_equal
    assert (path.parent / "model.data").stat().st_nlink == 1


def test_a_graph_of_other_weights_is_refused_unless_the_difference_is_accepted(
    tmp_path: Path,
) -> None:
    folder = write(tmp_path / "mine", "text-classification", scaled)
    why = (
        r"onnx/model.onnx is not served: .* logits within .* of transformers .* 1e-05 is allowed.*"
    )
    with pytest.raises(CheckpointError, match=why + "--variant weights takes the weights"):
        make(job(folder, **FP32), tmp_path, lambda _: None)
    assert [each.name for each in tmp_path.iterdir()] == ["mine"]
    make(job(folder, **FP32, **{"import": {"accept_difference": True}}), tmp_path, lambda _: None)
    assert not row_of(tmp_path, "logits").is_equal


def test_a_rounded_graph_has_the_gate_of_rounding_and_is_named(tmp_path: Path) -> None:
    from onnxruntime.quantization import quantize_dynamic

    folder = write(tmp_path / "mine", "text-classification")
    quantize_dynamic(folder / "onnx/model.onnx", folder / "onnx/model_quantized.onnx")
    make(job(folder, variant="quantized"), tmp_path, lambda _: None)
    row = row_of(tmp_path, "logits")
    assert row.limit == 0.5
    assert row.max_difference is not None
    assert row.max_difference > 1e-5
    certificate = manifest_of(tmp_path)["certificate"]
    assert certificate["graph"] == "onnx/model_quantized.onnx"
    assert certificate["weights"]["network"] == "onnx/model_quantized.onnx"


def test_vectors_are_those_of_the_folder_s_pooling(tmp_path: Path) -> None:
    """By transformers' states, pooled as we read the folder."""
    plain = write(tmp_path / "plain", "embedding")
    stated = {"word_embedding_dimension": 24, "pooling_mode_cls_token": True}
    folder = with_pooling(plain, tmp_path / "mine", stated, "Normalize")
    (tmp_path / "out").mkdir()
    make(job(folder, **FP32), tmp_path / "out", lambda _: None)
    certificate = Certificate.from_dict(manifest_of(tmp_path / "out")["certificate"]["weights"])
    row = next(each for each in certificate.rows if each.what == "vectors" and each.by)
    assert row.by.startswith(("sentence-transformers", "transformers"))
    assert row.max_difference is not None
    assert row.max_difference < 1e-5


def test_without_pytorch_the_line_says_that_weights_were_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path / "mine", "text-classification")
    monkeypatch.setattr(plans, "has_torch", lambda: False)
    monkeypatch.setattr(onnx_certificate, "has_torch", lambda: False)
    facts = make(job(folder), tmp_path, lambda _: None)
    assert "not compared: PyTorch and transformers are not both installed" in facts["certificate"]
    (tmp_path / "two").mkdir()
    facts = make(job(folder, **{"import": {"compare": "none"}}), tmp_path / "two", lambda _: None)
    assert "weights" not in facts["certificate"]


VERIFIED = {
    "text-classification": "scores",
    "pair-scoring": "logits",
    "embedding": "vectors",
    "token-classification": "entities",
    "fill-mask": "log probabilities",
    "gptj": "log probabilities of 16 greedy tokens",
    "gpt2_merged": "log probabilities of 16 greedy tokens",
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """Folders of graphs by the names of their models, and the address of a server of these."""
    root = tmp_path_factory.mktemp("graphs")
    repository = tmp_path_factory.mktemp("models")
    for name in VERIFIED:
        if name in CLASSES:
            onnx_folder(root / name, name)
        else:
            write_folder(name, root / name)
        make(job(root / name), repository, lambda _: None)
        (repository / "model").rename(repository / name)
    with ServerProcess(repository) as server:
        yield root, server.address


@pytest.mark.parametrize("name", VERIFIED)
def test_a_served_graph_equals_its_folder(name: str, served: tuple[Path, str]) -> None:
    root, address = served
    exit_code, found = verified(root / name, name, address)
    assert (exit_code, found["is_equal"]) == (0, True)
    by_what = rows(found["served"])
    assert by_what["tokens"].equal == by_what["tokens"].number > 180
    outputs = by_what[VERIFIED[name]]
    assert outputs.number > 1
    assert outputs.max_difference is not None
    assert outputs.max_difference < 1e-4
    assert "compared with" in str(Certificate.from_dict(found["certificate"]))


def test_a_served_graph_of_another_folder_is_told(served: tuple[Path, str], tmp_path: Path) -> None:
    folder = write(tmp_path / "mine", "text-classification", scaled)
    exit_code, found = verified(folder, "text-classification", served[1], "--variant", "fp32")
    assert (exit_code, found["is_equal"]) == (1, False)
    certificate = Certificate.from_dict(found["certificate"])
    assert not certificate.is_equal, "the weights beside the graph are others too"
