"""Which graph of a version is served: the machine's choice or a setting's, with its reason."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from attendant.v1 import text_pb2
from rich.console import Console
from tritonclient.grpc import service_pb2 as pb

from commands.ask.trials import Trial, trial_table
from service.calls.models import ModelFacts
from service.contract.files import ModelSource
from service.contract.manifest import GraphDevice, Layout, Manifest, Precision, Variant
from service.contract.precision import (
    INT8_PRODUCTS,
    Choice,
    choose_graph,
    choose_precision,
    has_graph_for,
    of_layout,
)
from service.errors import LoadError
from service.repository.loading import LoadedVersion, Openers, load_model
from service.runtime.cpus import cpu_flags
from service.settings import Settings
from tests.fakes.serving import serving
from tests.fakes.sessions import (
    FakeSession,
    FakeSessions,
    classifier_manifest,
    embedder_manifest,
    text_session,
    write_model,
)

PLAIN = frozenset(("fpu", "avx2"))
VNNI = PLAIN | {"avx512_vnni"}
ENCODER: tuple[Precision, ...] = ("fp32", "int8", "fp16")
DECODER: tuple[Precision, ...] = ("fp32", "int8-weights", "int4-weights")


@pytest.mark.parametrize(
    ("present", "wanted", "device", "flags", "expected", "reason"),
    [
        (ENCODER, "auto", "cpu", VNNI, "int8", "the processor has avx512_vnni"),
        (ENCODER, "auto", "cpu", {"amx_int8", *VNNI}, "int8", "the processor has amx_int8"),
        (ENCODER, "auto", "cpu", {"avx_vnni"}, "int8", "the processor has avx_vnni"),
        (ENCODER, "auto", "cpu", {"asimddp"}, "int8", "the processor has asimddp"),
        (ENCODER, "auto", "cpu", PLAIN, "fp32", "the processor has none of amx_int8, "),
        (("int8", "fp32"), "auto", "cpu", PLAIN, "fp32", "the processor has none of amx_int8, "),
        (ENCODER, "auto", "cpu", (), "fp32", "the processor has none of amx_int8, "),
        (ENCODER, "auto", "cuda", VNNI, "fp16", "a GPU computes it fastest"),
        (("fp32", "bf16"), "auto", "cuda", VNNI, "bf16", "there is no fp16 for the GPU"),
        (ENCODER[:2], "auto", "cuda", VNNI, "fp32", "there is no fp16 for the GPU"),
        (("fp32", "fp16"), "auto", "cpu", VNNI, "fp32", "there is no int8 for the processor"),
        (ENCODER, "auto", "openvino", VNNI, "fp32", "OpenVINO rounds float32 as its load_config"),
        (ENCODER, "int8", "openvino", VNNI, "int8", "requested by --precision"),
        (DECODER, "auto", "cpu", VNNI, "int8-weights", "the processor has avx512_vnni"),
        (DECODER[::2], "auto", "cpu", VNNI, "int4-weights", "the processor has avx512_vnni"),
        (("int8",), "auto", "cpu", PLAIN, "int8", "the only one there is"),
        (("fp16",), "auto", "cpu", PLAIN, "fp16", "the only one there is"),
        (("fp16", "int8"), "auto", "cpu", PLAIN, "fp16", "the processor has none of"),
        (ENCODER, "fp32", "cpu", VNNI, "fp32", "requested by --precision"),
        (ENCODER, "int8", "cuda", PLAIN, "int8", "requested by --precision"),
    ],
)
def test_machine_and_wish_choose(
    present: tuple[Precision, ...],
    wanted: str,
    device: str,
    flags: frozenset[str],
    expected: str,
    reason: str,
) -> None:
    choice = choose_precision(present, wanted, "--precision", device, frozenset(flags))
    assert choice.precision == expected
    assert choice.reason.startswith(reason)


# --- graphs for devices ---------------------------------------------------------------------------

Graph = tuple[Precision, GraphDevice, Layout]
ENCODER_GRAPHS: tuple[Graph, ...] = (
    *(("fp32", "any", ""), ("int8", "cpu", "")),
    *(("fp16", "any", ""), ("fp16", "cuda", "padded")),
    *(("bf16", "cuda", ""), ("bf16", "cuda", "padded")),
)
DECODER_GRAPHS: tuple[Graph, ...] = (
    *(("fp32", "cpu", ""), ("int8", "cpu", "")),
    *(("fp16", "cuda", ""), ("fp16", "cuda", "paged")),
)
OLD_DECODER: tuple[Graph, ...] = (("fp32", "any", ""), ("int8", "any", ""))


def manifest_of(graphs: tuple[Graph, ...]) -> Manifest:
    main, *others = (Variant(graph[0], device=graph[1], layout=graph[2]) for graph in graphs)
    encoder = classifier_manifest()
    decoder = Manifest(task="text-generation", precision="fp32", max_tokens=8, pad_token_id=0)
    is_decoder = graphs in (DECODER_GRAPHS, OLD_DECODER, DECODER_GRAPHS[2:])
    return replace(
        decoder if is_decoder else encoder,
        precision=main.precision,
        device=main.device,
        variants=tuple(others),
    )


def chosen_of(
    graphs: tuple[Graph, ...], requested: str, device: str
) -> tuple[tuple[str, ...], Choice]:
    manifest = manifest_of(graphs)
    return choose_graph(manifest, [*manifest.graphs], requested, "--precision", device, VNNI)


@pytest.mark.parametrize(
    ("graphs", "requested", "device", "expected"),
    [
        *((ENCODER_GRAPHS, precision, "cuda", True) for precision in ("auto", "fp32", "bf16")),
        *((ENCODER_GRAPHS, precision, "cuda", False) for precision in ("int8", "int4-weights")),
        (ENCODER_GRAPHS, "int8", "cpu", True),
        (ENCODER_GRAPHS, "bf16", "cpu", False),
        (ENCODER_GRAPHS[1:2], "auto", "cuda", False),
        (DECODER_GRAPHS, "auto", "cuda", True),
        (DECODER_GRAPHS, "fp16", "cpu", True),  # slowly, so by name only
        (DECODER_GRAPHS[2:], "auto", "cpu", False),
        (OLD_DECODER, "auto", "cuda", False),
        (OLD_DECODER, "auto", "cpu", True),
    ],
)
def test_a_device_is_taken_where_a_graph_is_for_it_in_the_precision(
    graphs: tuple[Graph, ...], requested: str, device: GraphDevice, expected: bool
) -> None:
    manifest = manifest_of(graphs)
    assert has_graph_for(device, manifest, manifest.graphs, requested) is expected


def test_a_graph_of_a_name_of_its_own_is_the_first_one() -> None:
    manifest = manifest_of((ENCODER_GRAPHS[1], ENCODER_GRAPHS[2]))
    assert not has_graph_for("cuda", manifest, ["mine.onnx"], "auto")
    assert has_graph_for("cuda", manifest, ["mine.onnx", "model.fp16.onnx"], "auto")


@pytest.mark.parametrize(
    ("graphs", "layout", "expected"),
    [
        (ENCODER_GRAPHS[2:4], "auto", ["model.onnx", "model.fp16.padded.onnx"]),
        (ENCODER_GRAPHS[2:4], "packed", ["model.onnx"]),
        (ENCODER_GRAPHS[2:4], "padded", ["model.fp16.padded.onnx"]),
        (DECODER_GRAPHS[2:], "slots", ["model.onnx"]),
        (DECODER_GRAPHS[2:], "paged", ["model.fp16.paged.onnx"]),
        (ENCODER_GRAPHS[2:3], "padded", ["model.onnx"]),
        (((ENCODER_GRAPHS[0]), ENCODER_GRAPHS[1]), "padded", ["model.onnx", "model.int8.onnx"]),
    ],
)
def test_a_layout_that_is_set_leaves_its_graphs_or_all_where_none_has_it(
    graphs: tuple[Graph, ...], layout: str, expected: list[str]
) -> None:
    manifest = manifest_of(graphs)
    assert of_layout(manifest, [*manifest.graphs], layout) == tuple(expected)


def test_a_single_graph_of_a_name_of_its_own_has_the_layout_that_is_set() -> None:
    assert of_layout(manifest_of(ENCODER_GRAPHS), ["mine.onnx"], "padded") == ("mine.onnx",)


@pytest.mark.parametrize(
    ("graphs", "requested", "device", "expected", "reason"),
    [
        (ENCODER_GRAPHS, "auto", "cpu", ["int8"], "the processor has avx512_vnni"),
        (ENCODER_GRAPHS, "auto", "openvino", [""], "OpenVINO rounds"),
        (ENCODER_GRAPHS, "auto", "cuda", ["fp16", "fp16.padded"], "a GPU computes it fastest"),
        (ENCODER_GRAPHS, "bf16", "cuda", ["bf16", "bf16.padded"], "requested by --precision"),
        (ENCODER_GRAPHS, "fp32", "cuda", [""], "requested by --precision"),
        (ENCODER_GRAPHS, "fp16", "cpu", ["fp16"], "requested by --precision"),
        (ENCODER_GRAPHS[:2], "auto", "cuda", [""], "the only one for cuda"),
        (ENCODER_GRAPHS[4:], "auto", "cuda", ["", "bf16.padded"], "the only one there is"),
        ((ENCODER_GRAPHS[0], ENCODER_GRAPHS[4]), "auto", "cuda", ["bf16"], "there is no fp16 for"),
        (DECODER_GRAPHS, "auto", "cpu", ["int8"], "the processor has avx512_vnni"),
        (DECODER_GRAPHS, "auto", "cuda", ["fp16.paged", "fp16"], "the only one for cuda"),
        (DECODER_GRAPHS, "fp16", "cuda", ["fp16.paged", "fp16"], "requested by --precision"),
        (DECODER_GRAPHS, "fp16", "cpu", ["fp16"], "requested by --precision"),
        (OLD_DECODER, "auto", "cpu", ["int8"], "the processor has avx512_vnni"),
    ],
)
def test_only_graphs_for_the_device_are_chosen_preferred_layout_first(
    graphs: tuple[Graph, ...], requested: str, device: str, expected: list[str], reason: str
) -> None:
    names, choice = chosen_of(graphs, requested, device)
    assert names == tuple(f"model.{kind}.onnx" if kind else "model.onnx" for kind in expected)
    assert choice.reason.startswith(reason)


ENCODER_LISTED = (
    "there is fp32, int8 (for cpu), fp16, fp16.padded (for cuda), bf16 (for cuda), "
    "bf16.padded (for cuda)"
)


@pytest.mark.parametrize(
    ("graphs", "requested", "device", "expected"),
    [
        (
            *(ENCODER_GRAPHS, "int8", "cuda"),
            f"--precision asks for precision int8, {ENCODER_LISTED}: "
            "int8 is not for cuda, for which `attendant export --target cuda` writes others",
        ),
        (
            *(ENCODER_GRAPHS, "bf16", "cpu"),
            f"--precision asks for precision bf16, {ENCODER_LISTED}: "
            "bf16 is not for cpu, for which `attendant export` writes others",
        ),
        (
            *(ENCODER_GRAPHS[1:2], "fp32", "cuda"),
            "--precision asks for precision fp32, there is int8 (for cpu): "
            "`attendant export --precision fp32` writes one for cuda",
        ),
        (
            *(DECODER_GRAPHS, "bf16", "cuda"),
            "--precision asks for precision bf16, there is fp32 (for cpu), int8 (for cpu), "
            "fp16 (for cuda), fp16.paged (for cuda): "
            "`attendant export --target cuda --precision bf16` writes one for cuda",
        ),
        (
            *(OLD_DECODER, "auto", "cuda"),
            "no graph is for cuda, there is fp32 (for cpu), int8 (for cpu): "
            "`attendant export --target cuda` writes one for cuda",
        ),
        (
            *(OLD_DECODER, "fp32", "cuda"),
            "--precision asks for precision fp32, there is fp32 (for cpu), int8 (for cpu): "
            "fp32 is not for cuda, for which `attendant export --target cuda` writes others",
        ),
        (
            *(DECODER_GRAPHS[2:], "auto", "cpu"),
            "no graph is for cpu, there is fp16 (for cuda), fp16.paged (for cuda): "
            "`attendant export` writes one for cpu",
        ),
        (
            *(OLD_DECODER, "int8-weights", "cpu"),
            "--precision asks for precision int8-weights, there is fp32 (for cpu), "
            "int8 (for cpu): `attendant export --precision int8-weights` writes one for cpu",
        ),
    ],
)
def test_a_graph_that_is_not_there_is_refused_with_those_that_are_and_the_export_that_writes_it(
    graphs: tuple[Graph, ...], requested: str, device: str, expected: str
) -> None:
    with pytest.raises(LoadError) as caught:
        chosen_of(graphs, requested, device)
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("processor : 0\nflags\t\t: fpu avx512_vnni\nprocessor : 1\nflags : fpu\n", VNNI),
        ("processor : 0\nFeatures\t: fp asimddp\n", {"fp", "asimddp"}),
        ("processor : 0\n", frozenset()),
    ],
)
def test_flags_are_the_first_processor_s(
    text: str, expected: frozenset[str], tmp_path: Path
) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(text)
    assert cpu_flags(path) - {"avx2"} == expected - {"avx2"}
    assert cpu_flags(tmp_path / "none") == frozenset()


# --- a version with two graphs ------------------------------------------------------------------


def two_graphs(repository: Path, name: str = "spam", config: str = "", version: int = 1) -> Path:
    """A classifier with an int8 graph beside `model.onnx`, with a cost of its own."""
    variant = Variant("int8", parity={"min_cosine": 0.99})
    manifest = classifier_manifest(parity={"min_cosine": 1.0}, variants=(variant,))
    folder = write_model(repository, name, manifest, config, version)
    (folder / str(version) / "model.int8.onnx").touch()
    return folder


class Opened(FakeSessions):
    """Notes the files that are opened."""

    def __init__(self) -> None:
        super().__init__(
            spam=lambda: text_session("logits", 3), mini=lambda: text_session("embedding", 4)
        )
        self.names: list[str] = []

    def __call__(self, path: Path, options: object) -> FakeSession:
        self.names.append(path.name)
        return super().__call__(path, options)  # type: ignore[arg-type]


def load(repository: Path, **settings: str) -> tuple[LoadedVersion, list[str]]:
    opened = Opened()
    chosen = Settings(model_repository=repository, **settings)  # type: ignore[arg-type]
    loaded = load_model(ModelSource.of(repository, "spam"), chosen, Openers(opened))
    return loaded.versions[-1], opened.names


def parameter_text(value: str) -> str:
    return f"parameters {{ key: 'precision' value {{ string_value: '{value}' }} }}"


@pytest.mark.parametrize(
    ("config", "setting", "expected"),
    [
        ("", "int8", ("int8", "--precision")),
        ("", "fp32", ("fp32", "--precision")),
        (parameter_text("int8"), "fp32", ("int8", "config.pbtxt")),
        (parameter_text("fp32"), "auto", ("fp32", "config.pbtxt")),
        (parameter_text("fp32"), "int4-weights", ("fp32", "config.pbtxt")),
    ],
)
def test_the_model_s_wish_goes_before_the_server_s(
    config: str, setting: str, expected: tuple[Precision, str], tmp_path: Path
) -> None:
    two_graphs(tmp_path, config=config)
    version, opened = load(tmp_path, precision=setting)
    precision, asked_by = expected
    assert opened == ["model.onnx" if precision == "fp32" else f"model.{precision}.onnx"]
    assert version.plan.choice == Choice(precision, f"requested by {asked_by}")
    assert f"text-classification, {precision} (requested by {asked_by})" in version.description


def test_what_was_measured_is_that_of_the_graph_that_runs(tmp_path: Path) -> None:
    two_graphs(tmp_path)
    for precision, cosine in (("fp32", 1.0), ("int8", 0.99)):
        version, _ = load(tmp_path, precision=precision)
        assert version.manifest is not None
        assert (version.manifest.precision, version.manifest.parity) == (
            precision,
            {"min_cosine": cosine},
        )


def test_auto_takes_int8_where_this_processor_multiplies_it_fast(tmp_path: Path) -> None:
    two_graphs(tmp_path)
    _, opened = load(tmp_path)
    is_fast = not cpu_flags().isdisjoint(INT8_PRODUCTS)
    assert opened == ["model.int8.onnx" if is_fast else "model.onnx"]


def test_openvino_is_given_the_exact_graph(tmp_path: Path) -> None:
    accelerator = "cpu_execution_accelerator { name: 'openvino' }"
    text = f"optimization {{ execution_accelerators {{ {accelerator} }} }}"
    two_graphs(tmp_path, config=text)
    assert load(tmp_path)[1] == ["model.onnx"]


def test_a_graph_that_was_removed_is_not_there(tmp_path: Path) -> None:
    """Either may be, to save room."""
    folder = two_graphs(tmp_path)
    (folder / "1/model.int8.onnx").unlink()
    assert load(tmp_path)[1] == ["model.onnx"]
    with pytest.raises(LoadError, match=r"--precision asks for precision int8, there is fp32: "):
        load(tmp_path, precision="int8")
    (folder / "1/model.onnx").rename(folder / "1/model.int8.onnx")
    version, opened = load(tmp_path)
    assert opened == ["model.int8.onnx"]
    assert version.plan.choice == Choice("int8", "the only one there is")
    (folder / "1/model.int8.onnx").unlink()
    with pytest.raises(LoadError, match=r"^version 1 has no model\.onnx$"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("filename", "expected"), [("model.int8.onnx", "int8"), ("other.onnx", "fp32")]
)
def test_a_file_that_the_configuration_names_is_the_one(
    filename: str, expected: str, tmp_path: Path
) -> None:
    folder = two_graphs(tmp_path, config=f"default_model_filename: '{filename}'")
    (folder / "1" / filename).touch()
    version, opened = load(tmp_path)
    assert opened == [filename]
    assert version.plan.choice == Choice(expected, "the only one there is")  # type: ignore[arg-type]


def test_a_file_that_no_manifest_lists_is_not_chosen(tmp_path: Path) -> None:
    """It was never measured."""
    folder = write_model(tmp_path, "spam", classifier_manifest())
    (folder / "1/model.int8.onnx").touch()
    assert load(tmp_path)[1] == ["model.onnx"]


# --- a server -----------------------------------------------------------------------------------


async def test_a_server_serves_the_chosen_graph_and_says_so(tmp_path: Path) -> None:
    """Per version: the second has float32 only. In ModelConfig and in the typed API."""
    two_graphs(tmp_path, config="version_policy { all {} }")
    write_model(tmp_path, "spam", classifier_manifest(), version=2)
    write_model(tmp_path, "mini", embedder_manifest())
    opened = Opened()
    expected = "int8" if not cpu_flags().isdisjoint(INT8_PRODUCTS) else "fp32"
    async with serving(tmp_path, opened) as served:
        found = {}
        for name, version in (("spam", "1"), ("spam", "2"), ("mini", "1")):
            request = pb.ModelConfigRequest(name=name, version=version)
            answer = await served.inference.ModelConfig(request)
            found[name, version] = answer.config.parameters["precision"].string_value
        listed = await served.text.ListModels(text_pb2.ListModelsRequest())
    assert found == {("spam", "1"): expected, ("spam", "2"): "fp32", ("mini", "1"): "fp32"}
    assert {(m.name, m.version): m.precision for m in listed.models} == found
    assert "model.int8.onnx" in opened.names or expected == "fp32"


def test_a_precision_that_the_model_lacks_is_refused(tmp_path: Path) -> None:
    two_graphs(tmp_path, config=parameter_text("int8-weights"))
    with pytest.raises(LoadError, match=r"config\.pbtxt asks for .* there is fp32, int8: "):
        load(tmp_path)


@pytest.mark.parametrize(
    ("variants", "text"),
    [
        (
            [{"precision": "int8"}, {"precision": "int8"}],
            "variants repeat a precision and layout: fp32, int8",
        ),
        ([{"precision": "fp32"}], "variants repeat a precision and layout: fp32, fp32"),
        ([{"precision": "../x"}], "variants.precision is '../x', expected one of"),
        ([{"precision": "fp16", "device": "tpu"}], "variants.device is 'tpu', expected one of"),
        ([{"precision": "fp16", "layout": "x"}], "variants.layout is 'x', expected one of"),
        ([{"file": "x"}], "unexpected keyword argument 'file'"),
        ([3], "must be a mapping"),
        (3, "not iterable"),
    ],
)
def test_variants_that_cannot_be_are_refused(variants: object, text: str) -> None:
    fields = json.loads(classifier_manifest().to_json())
    with pytest.raises(LoadError) as caught:
        Manifest.from_json(json.dumps(fields | {"variants": variants}))
    assert str(caught.value).startswith("manifest.json: ")
    assert text in str(caught.value)


def test_variants_survive_their_file() -> None:
    manifest = classifier_manifest(
        variants=(
            Variant("int8", {"Attention": 2}, {"min_cosine": 0.99}),
            Variant("fp16", device="cuda", layout="padded"),
        ),
        left_out={"fp16": "too far off"},
    )
    assert Manifest.from_json(manifest.to_json()) == manifest
    assert [*manifest.graphs] == ["model.onnx", "model.int8.onnx", "model.fp16.padded.onnx"]
    assert manifest.kinds == ("fp32", "int8", "fp16.padded")
    padded = manifest.of_graph("model.fp16.padded.onnx")
    assert (padded.precision, padded.layout, padded.device) == ("fp16", "padded", "cuda")
    assert not padded.variants


def test_the_start_table_shows_the_precision() -> None:
    model = ModelFacts(name="spam", version="1", precision="int8", example="lunch")
    printed = Console(width=120)
    with printed.capture() as captured:
        printed.print(trial_table([Trial(model, "ham", 0.001)]))
    assert "precision" in captured.get()
    assert "int8" in captured.get()
