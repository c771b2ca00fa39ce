"""Folders of graphs as they are published: what becomes a model of them, and what is refused."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from commands.folders.explanation import explain, page
from commands.folders.onnx_maker import make
from export.adopted.reference import unit
from export.errors import ExportError
from models.checkpoints import plan as plans
from models.checkpoints.graph_files import GraphWish, choose, graphs_in
from models.checkpoints.plan import recognise
from models.errors import CheckpointError, ModelError
from models.recipes.import_settings import ImportSettings
from service.contract.manifest import Manifest
from tests.fakes.onnx_folders import ids_of, image_folder, onnx_folder, run_alone

TEXT = "win the prize now"


def made(folder: Path, target: Path, variant: str | None = None, **changes: Any) -> Manifest:
    """The manifest of the model that is made of a folder."""
    target.mkdir(parents=True, exist_ok=True)
    job = {
        "folder": str(folder),
        "import": changes,
        "variant": variant,
        "precision": "auto",
        "device": "cpu",
    }
    make(job, target, lambda _: None)
    return Manifest.from_json((target / "model" / "1" / "manifest.json").read_text())


def vector(target: Path, folder: Path, text: str = TEXT) -> np.ndarray:
    """The vector that a model gives of a text, beside a shorter one."""
    ids, types = ids_of(folder, text)
    batch = {
        "input_ids": np.concatenate([ids, np.where(np.arange(ids.shape[1]) < 3, ids, 0)]),
        "attention_mask": np.stack([np.ones(ids.shape[1]), np.arange(ids.shape[1]) < 3]),
        "token_type_ids": np.concatenate([types, types]),
    }
    session = onnxruntime.InferenceSession(target / "model" / "1" / "model.onnx")
    names = [each.name for each in session.get_inputs()]
    given = {name: batch[name].astype(np.int64) for name in names}
    return np.asarray(session.run(["embedding"], given)[0][0])


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("embedders") / "mine"
    onnx_folder(folder, "embedding")
    return folder


def copied(folder: Path, target: Path) -> Path:
    subprocess.run(["cp", "-r", folder, target], check=True)  # noqa: S603, S607 - of the tests
    return target


def with_pooling(folder: Path, target: Path, pooling: dict[str, Any], *further: str) -> Path:
    """A copy as sentence-transformers' own, with a pooling and further steps."""
    copied(folder, target)
    steps = ["Transformer", "Pooling", *further]
    paths = ["", "1_Pooling", *(f"{place}_{name}" for place, name in enumerate(further, 2))]
    modules = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{step}"}
        for n, (step, path) in enumerate(zip(steps, paths, strict=True))
    ]
    (target / "modules.json").write_text(json.dumps(modules))
    (target / "1_Pooling").mkdir()
    (target / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return target


POOLINGS: dict[str, tuple[dict[str, Any], Callable[[np.ndarray], np.ndarray]]] = {
    "older": (
        {"word_embedding_dimension": 24, "pooling_mode_cls_token": True},
        lambda states: states[0],
    ),
    "newer": ({"embedding_dimension": 24, "pooling_mode": "lasttoken"}, lambda states: states[-1]),
}


@pytest.mark.parametrize("generation", POOLINGS)
def test_pooling_and_length_are_those_of_the_folder(
    generation: str, embedder: Path, tmp_path: Path
) -> None:
    stated, pooled = POOLINGS[generation]
    folder = with_pooling(embedder, tmp_path / "mine", stated, "Normalize")
    use = {"prompts": {"query": "win "}, "default_prompt_name": "query"}
    use["similarity_fn_name"] = "cosine"
    (folder / "config_sentence_transformers.json").write_text(json.dumps(use))
    manifest = made(folder, tmp_path / "out")
    assert manifest.embedder is not None
    assert manifest.embedder.is_normalized
    assert (manifest.embedder.prompts, manifest.embedder.default_prompt) == (
        {"query": "win "},
        "query",
    )
    assert manifest.embedder.similarity == "cosine"
    assert "which no file states" not in manifest.pooling
    (states,) = run_alone(folder, "onnx/model.onnx", TEXT)
    assert vector(tmp_path / "out", folder) == pytest.approx(unit(pooled(states[0])), abs=1e-5)


def test_a_dense_step_is_added_to_the_graph(embedder: Path, tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    stated = {"embedding_dimension": 24, "pooling_mode": "mean"}
    folder = with_pooling(embedder, tmp_path / "mine", stated, "Dense")
    (folder / "2_Dense").mkdir()
    dense: dict[str, Any] = {"in_features": 24, "out_features": 5, "bias": True}
    dense["activation_function"] = "torch.nn.modules.activation.Tanh"
    (folder / "2_Dense" / "config.json").write_text(json.dumps(dense))
    random = np.random.default_rng(1)
    weight = random.standard_normal((5, 24), np.float32)
    bias = random.standard_normal(5, np.float32)
    file = folder / "2_Dense" / "model.safetensors"
    save_file({"linear.weight": weight, "linear.bias": bias}, file)
    assert made(folder, tmp_path / "out").embedding_size == 5
    (states,) = run_alone(folder, "onnx/model.onnx", TEXT)
    expected = np.tanh(weight @ states[0].mean(axis=0) + bias)
    assert vector(tmp_path / "out", folder) == pytest.approx(expected, abs=1e-5)


def test_where_nothing_states_a_pooling_it_is_the_mean_and_that_is_said(
    embedder: Path, tmp_path: Path
) -> None:
    assert made(embedder, tmp_path / "out").pooling == "mean, which no file states"
    chosen = made(embedder, tmp_path / "two", pooling="cls", normalize=True)
    assert chosen.pooling == "cls, normalised"


def test_the_graphs_own_vectors_of_texts_are_taken(embedder: Path, tmp_path: Path) -> None:
    """As sentence-transformers' own export has them, beside the states of tokens."""
    folder = copied(embedder, tmp_path / "mine")
    path = folder / "onnx" / "model.onnx"
    model = onnx.load(path)
    first = helper.make_node(
        "Gather", ["last_hidden_state", "zero"], ["sentence_embedding"], axis=1
    )
    model.graph.node.append(first)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(0), "zero"))
    info = helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["b", 24])
    model.graph.output.append(info)
    onnx.save(model, path)
    assert made(folder, tmp_path / "out").pooling == "the graph's own sentence_embedding"
    states = run_alone(folder, "onnx/model.onnx", TEXT)[0]
    assert vector(tmp_path / "out", folder) == pytest.approx(states[0, 0], abs=1e-6)
    made(folder, tmp_path / "mean", pooling="mean")
    assert vector(tmp_path / "mean", folder) == pytest.approx(states[0].mean(axis=0), abs=1e-6)


@pytest.mark.parametrize(
    "inputs",
    [
        ("input_ids", "attention_mask"),
        ("input_ids", "attention_mask", "position_ids"),
    ],
)
@pytest.mark.parametrize("opset", [14, 18])
def test_every_set_of_inputs_that_encoders_have_is_given(
    inputs: tuple[str, ...], opset: int, tmp_path: Path
) -> None:
    folder = tmp_path / "mine"
    onnx_folder(folder, "embedding", inputs=inputs, opset=opset)
    made(folder, tmp_path / "out")
    (states,) = run_alone(folder, "onnx/model.onnx", TEXT)
    assert vector(tmp_path / "out", folder) == pytest.approx(states[0].mean(axis=0), abs=1e-5)


@pytest.mark.parametrize(
    "name",
    [
        *("model.onnx_data", "model.onnx.data", "model.data"),
        # as files of a model, and the mark of tensors that an export makes later
        *("manifest.json", "labels.txt", "original.onnx", "model.weights", "made later"),
    ],
)
def test_external_data_beside_the_graph_come_with_it(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    onnx_folder(folder, "text-classification", graph="model.onnx")
    whole = run_alone(folder, "model.onnx", TEXT)[0]
    model = onnx.load(folder / "model.onnx")
    onnx.save(
        model, folder / "model.onnx", save_as_external_data=True, location=name, size_threshold=64
    )
    made(folder, tmp_path / "out")
    version = tmp_path / "out" / "model" / "1"
    assert (version / "model.onnx.data0").read_bytes() == (folder / name).read_bytes()
    (folder / name).unlink()  # the model stands by itself
    (version / "tokenizer.json").rename(version / "kept.json")
    (version / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    assert run_alone(version, "model.onnx", TEXT)[0] == pytest.approx(whole, abs=1e-6)


def test_a_graph_that_scales_a_whole_run_gives_each_text_a_run_of_its_own(tmp_path: Path) -> None:
    from onnxruntime.quantization import quantize_dynamic

    folder = tmp_path / "mine"
    onnx_folder(folder, "text-classification")
    path = folder / "onnx" / "model_quantized.onnx"
    quantize_dynamic(folder / "onnx" / "model.onnx", path)
    (folder / "onnx" / "model.onnx").unlink()
    operators = {node.op_type for node in onnx.load(path).graph.node}
    assert "DynamicQuantizeLinear" in operators
    manifest = made(folder, tmp_path / "out")
    assert manifest.precision == "int8"
    assert manifest.certificate["runs_alone"]
    assert "so each row has a run of its own" in manifest.certificate["text"]
    assert "max_batch_size: 1\n" in (tmp_path / "out" / "model" / "config.pbtxt").read_text()
    explained = explain("x", recognise(folder), ImportSettings(), "auto", tmp_path)
    assert explained.details is not None
    assert "each text has a run of its own" in explained.details.remarks[0]


def test_graphs_without_a_configuration_are_told_by_their_outputs(tmp_path: Path) -> None:
    for task in ("text-classification", "embedding", "question-answering"):
        folder = tmp_path / task
        onnx_folder(folder, task, graph="model.onnx")
        (folder / "config.json").unlink()
        manifest = made(folder, tmp_path / "out" / task)
        assert manifest.task == task
    folder = tmp_path / "image-classification"
    image_folder(folder)
    (folder / "config.json").unlink()
    assert len(made(folder, tmp_path / "out" / folder.name).labels) == 3


NAMES = [
    "onnx/model.onnx",
    "onnx/model_fp16.onnx",
    "onnx/model_quantized.onnx",
    "onnx/model_q4f16.onnx",
    "onnx/model_qint8_avx512_vnni.onnx",
    "onnx/model.onnx_data",
]


@pytest.mark.parametrize(
    ("wish", "name"),
    [
        (GraphWish(), "onnx/model.onnx"),
        (GraphWish(target="cuda"), "onnx/model_fp16.onnx"),
        (GraphWish(precision="int8"), "onnx/model_quantized.onnx"),
        (GraphWish("q4f16"), "onnx/model_q4f16.onnx"),
        (GraphWish("fp32"), "onnx/model.onnx"),
        (GraphWish("model_fp16.onnx"), "onnx/model_fp16.onnx"),
        (GraphWish("qint8_avx512_vnni"), "onnx/model_qint8_avx512_vnni.onnx"),
    ],
)
def test_the_graph_that_a_wish_means_is_chosen(wish: GraphWish, name: str) -> None:
    assert choose(graphs_in(NAMES), wish).name == name


@pytest.mark.parametrize("half", ["onnx/model_fp16.onnx", "onnx/model_q4f16.onnx"])
def test_a_cpu_computes_in_half_only_what_has_no_other_form(half: str) -> None:
    others = ["onnx/model_int8.onnx", "onnx/model_q4.onnx", "onnx/model_bnb4.onnx"]
    for other in others:
        assert choose(graphs_in([half, other]), GraphWish()).name == other
    assert choose(graphs_in([half]), GraphWish()).name == half


@pytest.mark.parametrize(
    ("variant", "form", "why"),
    [
        (None, "transformers", ""),
        ("weights", "transformers", ""),
        ("quantized", "onnx", ""),
        ("onnx/model.onnx", "onnx", ""),
        ("q4", "", r"'q4': none of fp32 \(onnx/model.onnx\), .*, weights is it"),
    ],
)
def test_a_variant_is_one_of_all_graphs_and_the_weights(
    variant: str | None, form: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "mine"
    onnx_folder(folder, "text-classification").save_pretrained(folder)
    (folder / "onnx" / "model_quantized.onnx").touch()
    plan = recognise(folder, GraphWish(variant))
    assert plan.form == form
    assert re.search(why, plan.refusal)
    expected = {"fp32", "quantized", "weights"}
    if form == "transformers":
        assert set(plan.variants) == expected - {"weights"}
    if form == "onnx":
        assert {*plan.variants, "fp32" if variant != "quantized" else variant} == expected
    monkeypatch.setattr(plans, "has_torch", lambda: False)
    assert recognise(folder, GraphWish(variant)).form == (form if variant else "onnx")


def test_a_variant_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    graphs, weights = tmp_path / "graphs", tmp_path / "weights"
    network = onnx_folder(graphs, "text-classification")
    network.save_pretrained(weights)
    refusal = recognise(graphs, GraphWish("weights")).refusal
    assert refusal == "--variant is 'weights': none of fp32 (onnx/model.onnx) is it"
    refusal = recognise(weights, GraphWish("fp32")).refusal
    assert refusal.startswith("--variant is 'fp32': none of weights is it")


@pytest.mark.parametrize(
    ("names", "wish", "why"),
    [
        (NAMES, GraphWish("q8"), r"--variant is 'q8': none of fp32 \(onnx/model.onnx\)"),
        (NAMES, GraphWish(precision="bf16"), "there is no graph in bf16; there are fp32"),
        (["a.onnx", "b.onnx"], GraphWish(), "graphs of 2 networks, a, b: name one of them by"),
    ],
)
def test_a_wish_that_no_graph_meets_is_refused(names: list[str], wish: GraphWish, why: str) -> None:
    with pytest.raises(CheckpointError, match=why):
        choose(graphs_in(names), wish)


def test_weights_come_before_graphs_where_torch_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "mine"
    onnx_folder(folder, "text-classification").save_pretrained(folder)
    assert recognise(folder).form == "transformers"
    assert recognise(folder, GraphWish("fp32")).form == "onnx"
    monkeypatch.setattr(plans, "has_torch", lambda: False)
    assert recognise(folder).form == "onnx"


def test_a_graph_is_made_a_model_without_torch(embedder: Path, tmp_path: Path) -> None:
    job: dict[str, Any] = {
        "form": "onnx",
        "folder": str(embedder),
        "import": {},
        "variant": None,
        "precision": "auto",
        "device": "cpu",
        "target": str(tmp_path),
        "install": "",
    }
    program = (
        "import sys; sys.modules.update(dict.fromkeys(('torch', 'transformers', 'onnxscript')))\n"
        "from commands.folders.worker import main; main()"
    )
    with subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(json.dumps(job) + "\n")
        worker.stdin.flush()
        *steps, last = worker.stdout
    assert all('"step"' in line for line in steps)
    assert '"facts"' in last


def test_the_page_says_what_is_taken_and_what_is_left(embedder: Path, tmp_path: Path) -> None:
    folder = copied(embedder, tmp_path / "mine")
    (folder / "onnx" / "model_q4.onnx").write_bytes(b"")
    (folder / "flax_model.msgpack").write_bytes(b"")
    explained = explain("./mine", recognise(folder), ImportSettings(), "auto", tmp_path)
    reasons = {file["name"]: file["why"] for file in asdict(explained.plan)["left_out"]}
    assert reasons["onnx/model_q4.onnx"] == "another graph (--variant q4)"
    assert reasons["flax_model.msgpack"] == "another form of the weights"
    assert {file.name for file in explained.plan.taken} >= {"onnx/model.onnx", "tokenizer.json"}
    assert explained.commands() == ["attendant serve ./mine"]
    assert explained.details is not None
    assert explained.details.pooling == "mean, which no file states"
    assert page(explained)


def changed(folder: Path, change: Callable[[onnx.ModelProto], object]) -> None:
    path = folder / "model.onnx"
    model = onnx.load(path, load_external_data=False)
    change(model)
    onnx.save(model, path)


def relocated(folder: Path, location: str, offset: str | None = None) -> None:
    """Let the graph name its external data elsewhere."""
    path = folder / "model.onnx"
    onnx.save(
        onnx.load(path),
        path,
        save_as_external_data=True,
        location="model.onnx_data",
        size_threshold=64,
    )

    def change(model: onnx.ModelProto) -> None:
        for tensor in model.graph.initializer:
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = location
                if entry.key == "offset" and offset is not None:
                    entry.value = offset

    changed(folder, change)


def stray_input(model: onnx.ModelProto) -> None:
    info = helper.make_tensor_value_info("task_id", TensorProto.INT64, ["b"])
    model.graph.input.append(info)


def linked(folder: Path) -> None:
    relocated(folder, "model.onnx_data")
    (folder / "model.onnx_data").rename(folder.parent / "elsewhere")
    os.symlink(folder.parent / "elsewhere", folder / "model.onnx_data")


def rename_output(model: onnx.ModelProto) -> None:
    model.graph.node.append(helper.make_node("Identity", ["logits"], ["answer"]))
    model.graph.output[0].name = "answer"


def two_graphs(folder: Path) -> None:
    (folder / "model.onnx").rename(folder / "text.onnx")
    (folder / "image.onnx").touch()


def short_data(folder: Path) -> None:
    relocated(folder, "model.onnx_data")
    os.truncate(folder / "model.onnx_data", 100)


def no_config(folder: Path) -> None:
    changed(folder, rename_output)
    (folder / "config.json").unlink()


ODD: dict[str, tuple[Callable[[Path], object], str]] = {
    "0 bytes": (lambda f: (f / "model.onnx").write_bytes(b""), "is not a readable graph in ONNX"),
    "noise": (lambda f: (f / "model.onnx").write_bytes(b"\xff" * 99), "is not a readable graph"),
    "truncated": (
        lambda f: os.truncate(f / "model.onnx", (f / "model.onnx").stat().st_size // 2),
        "is not a readable graph in ONNX",
    ),
    "opset": (
        lambda f: changed(f, lambda model: setattr(model.opset_import[0], "version", 99)),
        "ONNX Runtime cannot open the graph",
    ),
    "stray input": (lambda f: changed(f, stray_input), "the graph takes the input 'task_id'"),
    "stray output": (lambda f: changed(f, rename_output), "needs an output logits of 2 axes"),
    "two graphs": (
        two_graphs,
        "graphs of 2 networks, image, text: name one of them by --variant",
    ),
    "no data": (
        lambda f: relocated(f, "gone"),
        "gone is missing, which model.onnx has its weights",
    ),
    "short data": (
        short_data,
        "has 100 bytes, and model.onnx reads",
    ),
    "path out": (lambda f: relocated(f, "../secret"), "must name a file beside it"),
    "name of no file": (lambda f: relocated(f, "\0"), "is missing, which model.onnx has its"),
    "long name": (lambda f: relocated(f, "x" * 300), "is missing, which model.onnx has its"),
    "absolute path": (lambda f: relocated(f, "/etc/passwd"), "must name a file beside it"),
    "negative place": (
        lambda f: relocated(f, "model.onnx", offset="-1"),
        "the place of the data of .* is not readable: .*offset",
    ),
    "link out": (linked, "is a link to .*elsewhere, outside of the folder"),
    "labels": (
        lambda f: (f / "config.json").write_text(
            json.dumps(
                {**json.loads((f / "config.json").read_text()), "id2label": {"0": "a", "1": "b"}}
            )
        ),
        "labels",
    ),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "tokenizer.json is missing"),
    "no config": (
        no_config,
        "no config.json says what the graph is for, and its outputs, answer, do not either",
    ),
    "config": (lambda f: (f / "config.json").write_text("[]"), "config.json holds a list"),
    "setting": (lambda f: (f / "wish").write_text("pooling=mean"), "it is for embedders"),
}


@pytest.mark.parametrize("case", ODD)
def test_an_odd_folder_is_refused_in_a_sentence(
    case: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path / "mine"
    onnx_folder(folder, "text-classification", graph="model.onnx")
    spoil, why = ODD[case]
    spoil(folder)
    settings = {"pooling": "mean"} if case == "setting" else {}
    with pytest.raises((ExportError, ModelError), match=why):
        made(folder, tmp_path / "out", **settings)
    assert not list((tmp_path / "out").iterdir()), "nothing half made is left"


def test_a_graph_cut_off_anywhere_is_refused(embedder: Path, tmp_path: Path) -> None:
    folder = copied(embedder, tmp_path / "mine")
    path = folder / "onnx" / "model.onnx"
    whole = path.read_bytes()
    for share in np.random.default_rng(3).random(12):
        path.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises((ExportError, ModelError)):
            made(folder, tmp_path / "out")


def test_a_folder_of_the_hubs_cache_has_links_to_its_blobs(tmp_path: Path) -> None:
    folder = tmp_path / "models--a--b" / "snapshots" / "c"
    onnx_folder(folder, "text-classification", graph="model.onnx")
    blobs = tmp_path / "models--a--b" / "blobs"
    blobs.mkdir()
    for number, path in enumerate(sorted(folder.iterdir())):
        path.rename(blobs / str(number))
        os.symlink(f"../../blobs/{number}", path)
    assert made(folder, tmp_path / "out").task == "text-classification"
