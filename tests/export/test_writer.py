"""An export in several precisions: what is written beside `model.onnx`, and what is left out."""

from pathlib import Path
from typing import Any, NoReturn

import onnx
import pytest
from typer.testing import CliRunner

from export.errors import ExportError
from export.exporter import export_any
from export.recipes import decoders as decoder_exporter
from export.recipes import texts as exporter
from export.settings import AUTO, ExportSettings, GraphKind, HeldOut
from export.writer import Built, build_graphs
from models.errors import SettingError
from service.contract.files import ModelSource
from service.contract.manifest import Manifest, Precision, Variant
from service.repository.loading import Openers, load_model
from service.settings import Settings
from tests.commands.test_export import WIDE, app
from tests.export.conftest import checkpoint_of
from tests.export.recipes.test_texts import TEXTS, answers_of, close_call
from tests.fakes.tiny_gpt import liked_text, tiny_generator, tiny_gpt

# Where int8 products saturate (decision 0016), the perplexity of this network rises a lot.
ANY_RISE = 99.0


def kinds(*precisions: Precision) -> list[GraphKind]:
    return [GraphKind(precision) for precision in precisions]


def built_of(kind: GraphKind) -> Built:
    return built(kind.precision)


def built(precision: Precision, **measured: Any) -> Built:
    return Built(onnx.ModelProto(), Variant(precision, **measured))


def test_a_graph_that_is_refused_or_too_dear_is_left_out_with_the_reason() -> None:
    def build(kind: GraphKind) -> Built:
        precision = kind.precision
        if precision == "int8":
            raise ExportError("refused")
        return built(precision)

    def check_cost(variant: Variant) -> None:
        if variant.precision == "fp16":
            raise ExportError("too dear")

    graphs = build_graphs(kinds("fp32", "int8", "fp16", "int8-weights"), build, check_cost)
    assert graphs.main.variant.precision == "fp32"
    assert [other.variant.precision for other in graphs.others] == ["int8-weights"]
    assert graphs.left_out == (("int8", "refused"), ("fp16", "too dear"))


def test_the_first_graph_is_not_left_out_and_nobody_asks_what_it_costs() -> None:
    def refuse(_: object) -> NoReturn:
        raise ExportError("refused")

    assert not build_graphs(kinds("int8"), built_of, refuse).others
    with pytest.raises(ExportError, match="refused"):
        build_graphs(kinds("fp32", "int8"), refuse, lambda _: None)


@pytest.mark.parametrize(
    ("effect", "reason"),
    [
        (0.5, "neighbours move its output by 0.5, the limit is "),
        (float("nan"), "neighbours move its output by nan, the limit is "),
    ],
)
def test_neighbours_may_hardly_change_what_nobody_asked_for(effect: float, reason: str) -> None:
    exporter.check_cost(built("int8", parity={"max_neighbour_effect": 0.0}).variant)
    with pytest.raises(ExportError, match=reason):
        exporter.check_cost(built("int8", parity={"max_neighbour_effect": effect}).variant)


@pytest.mark.parametrize(
    ("precision", "target", "expected"),
    [
        ("auto", "cpu", ["fp32", "int8"]),
        ("int8", "cpu", ["int8"]),
        ("fp16", "cpu", ["fp16"]),
        ("auto", "cuda", ["fp16", "fp16.padded"]),
        ("fp16", "cuda", ["fp16", "fp16.padded"]),
        ("bf16", "cuda", ["bf16", "bf16.padded"]),
        ("auto", "all", ["fp32", "int8", "fp16", "fp16.padded"]),
        ("bf16", "all", ["fp32", "int8", "bf16", "bf16.padded"]),
        ("fp16", "all", ["fp32", "int8", "fp16", "fp16.padded"]),
        ("int8", "all", ["int8", "fp16", "fp16.padded"]),
    ],
)
def test_graphs_are_those_of_precision_and_target(
    precision: Any, target: Any, expected: list[str], tmp_path: Path
) -> None:
    settings = ExportSettings("spam", tmp_path, precision, target=target)
    assert [kind.name for kind in settings.graphs(("fp32", "int8"), "padded")] == expected
    without = [name for name in expected if "." not in name]
    assert [kind.name for kind in settings.graphs(("fp32", "int8"))] == without


@pytest.mark.parametrize(
    ("precision", "target", "message"),
    [
        ("int8", "cuda", "precision is int8, for CUDA it is fp16 or bf16"),
        ("bf16", "cpu", "precision is bf16, which is for CUDA: add --target cuda"),
    ],
)
def test_a_target_without_the_precision_is_refused(
    precision: Any, target: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match=f"^{message}$"):
        ExportSettings("spam", tmp_path, precision, target=target).graphs(("fp32",))


@pytest.mark.parametrize(
    ("field", "value", "limit"),
    [
        ("version", 0, "must be at least 1"),
        ("max_batch_size", 65_537, "must be from 1 to 65536"),
        ("max_accuracy_drop", float("nan"), "must be from 0 to 1"),
        ("max_perplexity_rise", -0.1, "must be at least 0"),
    ],
)
def test_a_setting_outside_its_limits_is_named_with_the_limit(
    tmp_path: Path, field: str, value: float, limit: str
) -> None:
    values: dict[str, Any] = {field: value}
    with pytest.raises(SettingError, match=f"^{field} is {value}, but {limit}$"):
        ExportSettings("spam", tmp_path, **values)


def graphs_in(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*.onnx")}


def test_an_encoder_s_folder_holds_what_its_manifest_says(tmp_path: Path) -> None:
    """Each precision of `AUTO` is there, or the reason why not; fp16 by the target."""
    settings = ExportSettings("spam", tmp_path, "auto", target="all")
    folder, manifest = export_any(checkpoint_of("bert classifier"), settings)
    assert graphs_in(folder) == set(manifest.graphs) >= {"model.fp16.onnx"}
    assert {*manifest.kinds, *manifest.left_out} == {*AUTO, "fp16", "fp16.padded"}
    assert manifest.parity["max_abs_error"] < 1e-5
    assert 1e-5 < manifest.of_graph("model.fp16.onnx").parity["max_abs_error"] < 5e-2
    written = Manifest.from_json((folder / "manifest.json").read_text())
    assert written == manifest
    opened = load_model(
        ModelSource.of(tmp_path, "spam"),
        Settings(model_repository=tmp_path, precision="fp16"),
        Openers(),
    )
    assert opened.versions[0].manifest == manifest.of_graph("model.fp16.onnx")


def test_a_precision_that_costs_too_much_is_left_out(tmp_path: Path) -> None:
    """The model lives on differences of 1e-3; asked for by name, int8 would be an error."""
    checkpoint = close_call()
    examples = answers_of(checkpoint, tuple(f"{text} {n}" for text in TEXTS for n in range(10)))
    settings = ExportSettings("spam", tmp_path, "auto", max_accuracy_drop=0.005)
    folder, manifest = export_any(checkpoint, settings, HeldOut(examples))
    assert graphs_in(folder) == {"model.onnx"}
    assert manifest.precision == "fp32"
    assert "the limit is 0." in manifest.left_out["int8"], "of accuracy, or of the cosine"


def test_a_decoder_s_cost_is_measured_or_it_is_left_out(tmp_path: Path) -> None:
    other = decoder_exporter.AUTO[1]
    settings = ExportSettings("tale", tmp_path, "auto", max_perplexity_rise=ANY_RISE)
    folder, manifest = export_any(tiny_generator(), settings)
    assert graphs_in(folder) == {"model.onnx"}
    assert manifest.left_out == {
        other: "no held-out text to measure its perplexity on: --held-out names one"
    }
    held_out = liked_text(tiny_gpt(), 2)
    folder, manifest = export_any(tiny_generator(), settings, HeldOut(text=held_out))
    assert graphs_in(folder) == {"model.onnx", f"model.{other}.onnx"}
    assert not manifest.left_out
    assert manifest.variants[0].perplexity["float"] == manifest.perplexity["float"]


def test_the_command_shows_a_column_per_graph_and_what_is_left_out(
    decoder_folder: Path, tmp_path: Path
) -> None:
    held_out = tmp_path / "held_out.txt"
    held_out.write_text(liked_text(tiny_gpt(), 2), encoding="utf-8")
    options = ["--name", "tale", "--repository", str(tmp_path / "r")]
    options += ["--max-perplexity-rise", str(ANY_RISE)]
    result = CliRunner().invoke(
        app, [str(decoder_folder), *options, "--held-out", str(held_out)], env=WIDE
    )
    assert result.exit_code == 0, result.output
    rows = [line.strip("│ ").split(" │ ") for line in result.stdout.splitlines() if "│" in line]
    assert [cell.strip() for cell in rows[0]] == ["precision", *decoder_exporter.AUTO]
    assert {len(row) for row in rows} == {3}
    result = CliRunner().invoke(app, [str(decoder_folder), *options], env=WIDE)
    assert f"{decoder_exporter.AUTO[1]} is left out: no held-out text" in result.stderr
