"""`attendant verify` compares what a server answers with the folder, and that with transformers."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from typer.testing import CliRunner

from commands.folders.importing import read_checkpoint
from commands.folders.verification import COMPARISONS
from commands.main import app
from export.exporter import export_any
from export.settings import ExportSettings
from models.checkpoints.certificate import Certificate
from models.checkpoints.probe_texts import COMPARED
from models.recipes.import_settings import ImportSettings
from service.calls.answers import LabelScore, Timings
from service.calls.texts import Classification, Classifications, Classify
from tests.checkpoints.fields import network
from tests.checkpoints.rows import ROWS
from tests.checkpoints.spellings import tokenizer
from tests.commands.folders.test_explain import classifier
from tests.e2e.server import ServerProcess

LINE = ["verify", "--json"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """Folders by the names of their models, and the address of a server of these."""
    root = tmp_path_factory.mktemp("verify")
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    classifier(root / "classes")
    for head, form in (("embedding", "mean"), ("score", "")):
        row = next(r for r in ROWS if (r.kind, r.head, r.form) == ("bert", head, form))
        row.write(root / head)
    made = network("llama", transformers.AutoModelForCausalLM, vocab_size=600, head_dim=16)
    made.save_pretrained(root / "writing")
    tokenizer("gpt2").save(str(root / "writing" / "tokenizer.json"))
    for name in ("classes", "embedding", "score", "writing"):
        checkpoint = read_checkpoint(str(root / name), ImportSettings())
        export_any(checkpoint, ExportSettings(name, root / "repository", "fp32"))
    with ServerProcess(root / "repository") as server:
        yield root, server.address


def verified(folder: Path, name: str, address: str) -> tuple[int, dict[str, Any]]:
    line = [*LINE, name, "--source", str(folder), "--address", address]
    result = CliRunner().invoke(app, line, catch_exceptions=False)
    return result.exit_code, json.loads(result.stdout)


@pytest.mark.parametrize("name", ["classes", "embedding", "score", "writing"])
def test_a_served_model_equals_its_folder(name: str, served: tuple[Path, str]) -> None:
    root, address = served
    exit_code, found = verified(root / name, name, address)
    assert (exit_code, found["is_equal"]) == (0, True)
    assert found["same_tokens"] == found["texts"] > 190
    assert found["outputs"]
    assert found["max_difference"] < 1e-4
    assert found["certificate"]["compared_with"].startswith("transformers")


def test_a_model_of_another_folder_is_told(served: tuple[Path, str], tmp_path: Path) -> None:
    _, address = served
    folder = classifier(tmp_path)
    path = folder / "model.safetensors"
    from safetensors.torch import load_file, save_file

    save_file({name: 1.5 * each for name, each in load_file(path).items()}, path, {"format": "pt"})
    exit_code, found = verified(folder, "classes", address)
    assert (exit_code, found["is_equal"]) == (1, False)
    assert found["max_difference"] > 1e-3
    assert Certificate(**found["certificate"]).is_equal, "the import itself is right"
    line = ["verify", "classes", "--source", str(folder), "--address", address]
    result = CliRunner().invoke(app, line)
    assert "classes as it is served, in fp32, beside the import" in result.stdout


@pytest.mark.parametrize("number", range(len(COMPARED)))
def test_one_answer_that_is_no_number_is_no_equal_model(number: int, tmp_path: Path) -> None:
    """Wherever it stands among the answers."""
    checkpoint = read_checkpoint(str(classifier(tmp_path)), ImportSettings())

    class Served:
        def ask(self, call: Classify) -> Any:
            scores = [float("nan") if each == number else 0.5 for each in range(len(COMPARED))]
            results = [
                Classification([LabelScore(name, score) for name in checkpoint.labels], 3, False)
                for score in scores
            ]
            return Classifications(
                model=call.model, version="1", timings=Timings(), num_tokens=15, results=results
            )

    client: Any = Served()
    with torch.inference_mode():
        _, difference = COMPARISONS["text-classification"](client, "classes", checkpoint)
    assert math.isnan(difference)


def test_a_model_without_a_kept_export_needs_its_source(
    served: tuple[Path, str], tmp_path: Path
) -> None:
    line = ["verify", "classes", "--folder-cache", str(tmp_path), "--address", served[1]]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 1
    assert "say what it was made of by --source FOLDER" in result.output
