"""`attendant explain`: what a folder is, what is taken, what it costs, and a way out that works."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import transformers
from typer.testing import CliRunner

from commands.folders.sources import parse_source
from commands.main import app
from models.checkpoints.folder_plan import name_of
from models.checkpoints.plan import recognise
from models.errors import CheckpointError
from tests.checkpoints.fields import network
from tests.export.test_adapters import write_peft
from tests.models.tiny import word_tokenizer

WIDE = {"COLUMNS": "300", "NO_COLOR": "1", "TERM": "dumb"}


def classifier(folder: Path, kind: str = "bert") -> Path:
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    classes: Any = transformers.AutoModelForSequenceClassification
    network(kind, classes).save_pretrained(folder)
    word_tokenizer().save(str(folder / "tokenizer.json"))
    stated = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(stated))
    return folder


def explained(*arguments: object) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["explain", *map(str, arguments), "--json"], env=WIDE)
    document: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == (1 if document["refusal"] else 0)
    return document


def test_a_folder_is_explained_without_its_weights(tmp_path: Path) -> None:
    """The values of the weights are gone; names, types and shapes stand in the header."""
    folder = classifier(tmp_path / "Finbert Tone")
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    header = whole[: 8 + int.from_bytes(whole[:8], "little")]
    weights.write_bytes(header)
    os.truncate(weights, len(whole))  # with zeros
    (folder / "README.md").write_text("read me")
    (folder / "modeling.py").write_text("raise SystemExit")
    document = explained(folder)
    assert (document["form"], document["name"]) == ("transformers", "finbert-tone")
    assert document["details"]["task"] == "text-classification"
    assert document["details"]["labels"]
    assert document["num_weights"] > 0
    assert "model.safetensors" in {file["name"] for file in document["taken"]}
    reasons = {file["name"]: file["why"] for file in document["left_out"]}
    assert reasons == {"README.md": "for readers", "modeling.py": "code, which is never run"}
    assert document["commands"][0] == f"attendant serve '{folder}'"


def test_the_page_says_what_tensors_are_left_out(tmp_path: Path) -> None:
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    network("bert", transformers.AutoModel).save_pretrained(tmp_path)
    word_tokenizer().save(str(tmp_path / "tokenizer.json"))
    page = CliRunner().invoke(app, ["explain", str(tmp_path)], env=WIDE)
    assert page.exit_code == 0
    assert "left out pooler.dense.bias, pooler.dense.weight: the pooler, which" in page.output
    assert "costs here" in page.output


def test_what_an_import_refuses_explain_refuses_in_the_same_words(tmp_path: Path) -> None:
    folder = classifier(tmp_path)
    path = folder / "config.json"
    for changes in (
        {"model_type": "spiral"},
        {"model_type": "mixtral"},
        {"quantization_config": {"bits": 4}},
        {"position_embedding_type": "relative_key"},
    ):
        whole = path.read_text()
        path.write_text(json.dumps({**json.loads(whole), **changes}))
        refusal = explained(folder)["refusal"]
        line = ["import", str(folder), str(tmp_path / "out")]
        imported = CliRunner().invoke(app, line, env=WIDE)
        assert imported.exit_code == 1
        assert refusal
        assert " ".join(refusal.split()) in imported.stderr
        path.write_text(whole)


def test_recognising_needs_no_torch(tmp_path: Path) -> None:
    folder = classifier(tmp_path)
    program = (
        "import sys; from pathlib import Path; from models.checkpoints.plan import recognise;"
        "import models.checkpoints.hub;"
        "task = recognise(Path(sys.argv[1])).task;"
        "print(task, sorted({'torch', 'transformers'} & {*sys.modules}))"
    )
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "text-classification []"


def test_the_way_out_of_a_graph_alone_works_line_by_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "mine"
    (folder / "onnx").mkdir(parents=True)
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Neg", ["x"], ["y"])],
        "g",
        [value("x", onnx.TensorProto.FLOAT, ["n", 2])],
        [value("y", onnx.TensorProto.FLOAT, ["n", 2])],
    )
    opset = [onnx.helper.make_opsetid("", 18)]
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=opset, ir_version=10),
        folder / "onnx" / "model_q4.onnx",
    )
    *copying, serving = explained(folder)["commands"]
    for line in copying:
        subprocess.run(line, shell=True, check=True)  # noqa: S602 - the line is ours
    assert serving == "attendant serve models"
    assert recognise(Path("models")).form == "repository"


def test_the_page_has_whole_names_and_commands_that_can_be_copied(tmp_path: Path) -> None:
    """In 80 columns: no name is cut, and a command with a path that has a space is one line."""
    folder = classifier(tmp_path / "a folder whose name is long")
    name = "a_file_with_a_name_of_some_sixty_characters_that_is_not_read_.md"
    (folder / name).write_text("read me")
    result = CliRunner().invoke(app, ["explain", str(folder)], env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    lines = [line.strip() for line in result.output.splitlines()]
    assert f"attendant serve '{folder}'" in lines
    assert "…" not in result.output


def test_the_commands_have_the_flags_that_were_given(tmp_path: Path) -> None:
    """Each line with those that it has, so that what it makes is what was explained."""
    folder = classifier(tmp_path / "folder")
    flags = ["--precision", "fp32", "--offline", "--compare", "none"]
    serving, importing, exporting, _ = explained(folder, *flags)["commands"]
    assert serving == f"attendant serve {folder} {' '.join(flags)}"
    assert importing.endswith(" --compare none")
    assert exporting.endswith(" --precision fp32")


def test_an_adapter_is_explained_with_its_base_and_the_lines_that_serve_it(tmp_path: Path) -> None:
    write_peft(tmp_path / "polite", num_in=256)
    path = tmp_path / "polite/adapter_config.json"
    stated = {**json.loads(path.read_text()), "base_model_name_or_path": "owner/base"}
    path.write_text(json.dumps(stated))
    document = explained(tmp_path / "polite")
    assert (document["form"], document["base"], document["refusal"]) == (
        "adapter",
        "owner/base",
        "",
    )
    assert document["commands"][:2] == [
        f"attendant serve {tmp_path}/polite",
        f"attendant serve BASE --adapter {tmp_path}/polite",
    ]
    page = CliRunner().invoke(app, ["explain", str(tmp_path / "polite")])
    assert page.exit_code == 0
    assert "owner/base" in page.output


def test_a_variant_alone_is_taken_and_one_beside_others_is_left_out(tmp_path: Path) -> None:
    folder = classifier(tmp_path / "mine")
    copied = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").rename(folder / "model.fp16.safetensors")
    assert "model.fp16.safetensors" in {file["name"] for file in explained(folder)["taken"]}
    (folder / "model.safetensors").write_bytes(copied)
    explanation = explained(folder)
    assert "model.safetensors" in {file["name"] for file in explanation["taken"]}
    assert "model.fp16.safetensors" in {file["name"] for file in explanation["left_out"]}


@pytest.mark.parametrize(
    ("given", "name", "where", "revision"),
    [
        ("Qwen/Qwen3-0.6B", "qwen3-0.6b", "Qwen/Qwen3-0.6B", None),
        ("mine=Qwen/Qwen3-0.6B@abc", "mine", "Qwen/Qwen3-0.6B", "abc"),
        ("./some where/", "some-where", "./some where/", None),
        ("a=./b", "a", "./b", None),
    ],
)
def test_a_source_has_a_name_a_place_and_a_revision(
    given: str, name: str, where: str, revision: str | None
) -> None:
    source = parse_source(given)
    assert (source.name, source.where, source.revision) == (name, where, revision)


def test_a_source_without_a_folder_is_refused() -> None:
    with pytest.raises(CheckpointError, match="write NAME=FOLDER"):
        parse_source("mine=")
    assert name_of("...") == "model"


def test_numbers_of_tensors_are_those_of_the_headers(tmp_path: Path) -> None:
    folder = classifier(tmp_path)
    from safetensors.numpy import load_file

    values = load_file(folder / "model.safetensors")
    floats = sum(each.size for each in values.values() if each.dtype == np.float32)
    assert recognise(folder).num_weights == floats


@pytest.mark.parametrize("place", ["/etc", "../other"])
def test_a_module_outside_of_the_folder_is_refused(place: str, tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text(json.dumps([{"path": place}]))
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").touch()
    assert f"path is '{place}', but must be in the folder" in recognise(tmp_path).refusal


def test_a_graph_whose_name_looks_like_a_pattern_has_its_data(tmp_path: Path) -> None:
    """The list of the parts of weights is another form of the weights too."""
    for name in ("model[1].onnx", "model[1].onnx_data", "model.safetensors.index.json"):
        (tmp_path / name).write_text("{}")
    plan = recognise(tmp_path)
    assert [(file.name, file.why) for file in plan.taken] == [
        ("model[1].onnx", "graph"),
        ("model[1].onnx_data", "graph"),
    ]
    assert [file.why for file in plan.left_out] == ["another form of the weights"]
