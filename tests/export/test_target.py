"""Exports for CUDA: their graphs hold the fused nodes and nothing that CUDA has no kernel for.

Nothing here runs on CUDA. Values are compared on the CPU, where each export compares them before it
writes: fp16 as it is, bf16 and graphs over blocks in float32 with their own rounded weights.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from export.checks.parity import GraphRunner, pad
from export.checks.provider_support import check_supported, unsupported_nodes
from export.errors import ExportError
from export.exporter import Exported, export_any
from export.graphs.candidates import with_candidates
from export.graphs.graph import fused_ops, open_session, trace
from export.graphs.widened import widened
from export.settings import ExportSettings
from models.checkpoints.checkpoint import Checkpoint
from models.networks.vit import VisionTransformer, ViTConfig
from service.contract.files import ModelSource
from service.contract.manifest import Manifest, Precision
from service.repository.loading import Openers, load_model
from service.settings import Settings
from tests.export.conftest import checkpoint_of
from tests.export.recipes.test_features import MADE
from tests.export.recipes.test_recurrent import graph_of as graph_of_recurrent
from tests.fakes.tiny_gpt import NUM_LAYERS, tiny_generator
from tests.fakes.tiny_llama import tiny_llama, tiny_llama_generator
from tests.fakes.tiny_transformer import tiny_writer


def export(checkpoint: Checkpoint, folder: Path, precision: Precision, **more: Any) -> Exported:
    settings = ExportSettings("spam", folder, precision, target="cuda")
    return export_any(checkpoint, settings, **more)


def digits() -> Checkpoint:
    torch.manual_seed(0)
    network = VisionTransformer(ViTConfig(num_layers=2), num_labels=3)
    return Checkpoint(
        model=network,
        task="image-classification",
        labels=("a", "b", "c"),
        tokenizer=tiny_generator().tokenizer,
        max_tokens=network.config.max_positions,
        origin="random weights",
    )


def graphs_of(exported: Exported) -> dict[str, onnx.ModelProto]:
    return {path.name: onnx.load(path) for path in sorted(exported.folder.glob("*.onnx"))}


CANDIDATES = ["logits", "top_logits", "top_ids", "log_sum"]
BEAM_STEP = {"GroupQueryAttention": 2, "Attention": 2}
KINDS: list[tuple[str, Callable[[], Checkpoint], dict[str, dict[str, int]]]] = [
    (
        "encoder",
        lambda: checkpoint_of("bert classifier"),
        {"{}": {"Attention": 2}, "{}.padded": {"Attention": 2}},
    ),
    (
        "embedder",
        lambda: checkpoint_of("roberta"),
        {"{}": {"Attention": 2}, "{}.padded": {"Attention": 2}},
    ),
    (
        "features",
        lambda: MADE["features"](),
        {"{}": {"Attention": 4}, "{}.padded": {"Attention": 4}},
    ),
    (
        "decoder",
        tiny_generator,
        {"{}": {"GroupQueryAttention": NUM_LAYERS}, "{}.paged": {"PagedAttention": NUM_LAYERS}},
    ),
    (
        "rotary decoder",
        lambda: tiny_llama_generator(tiny_llama(query_key_norm="head", windows=(8, 0, 8))),
        {"{}": {"GroupQueryAttention": 3}, "{}.paged": {"PagedAttention": 3}},
    ),
    ("vision", digits, {"{}": {"Attention": 2}}),
]


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize(("checkpoint", "expected"), [kind[1:] for kind in KINDS], ids=lambda _: "")
def test_each_kind_s_graphs_have_their_fused_nodes_and_a_kernel_for_every_node(
    checkpoint: Callable[[], Checkpoint],
    expected: dict[str, dict[str, int]],
    precision: Precision,
    tmp_path: Path,
) -> None:
    """The manifest says which graphs there are, in what layout, and that they are for CUDA."""
    exported = export(checkpoint(), tmp_path, precision)
    manifest, found = exported.manifest, graphs_of(exported)
    assert manifest.kinds == tuple(name.format(precision) for name in expected)
    assert manifest.left_out == {}
    for (filename, variant), fused in zip(manifest.graphs.items(), expected.values(), strict=True):
        graph = found[filename]
        assert unsupported_nodes(graph) == ()
        counted = fused_ops(graph)
        assert {name: counted[name] for name in fused} == fused
        assert variant.device == "cuda" or (precision == "fp16" and not variant.layout)
        assert types_of_weights(graph) == {TYPES[precision]}
        assert {end.type.tensor_type.elem_type for end in outputs(graph)} <= {
            *(TensorProto.FLOAT, TensorProto.INT64)
        }


TYPES = {"fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}


def types_of_weights(graph: onnx.ModelProto) -> set[int]:
    """Of matrices: sizes and constants are integers."""
    return {tensor.data_type for tensor in graph.graph.initializer if len(tensor.dims) == 2}


def outputs(graph: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    return [end for end in graph.graph.output if not end.name.startswith("present.")]


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_an_encoder_decoder_has_both_graphs_for_cuda(precision: Precision, tmp_path: Path) -> None:
    exported = export(tiny_writer(), tmp_path, precision)
    found = graphs_of(exported)
    assert sorted(found) == ["encoder.onnx", "model.onnx"]
    assert all(unsupported_nodes(graph) == () for graph in found.values())
    assert exported.manifest.device == "cuda"
    assert fused_ops(found["encoder.onnx"])["Attention"] == 2
    step = fused_ops(found["model.onnx"])
    assert {name: step[name] for name in BEAM_STEP} == BEAM_STEP
    assert [end.name for end in outputs(found["model.onnx"])] == CANDIDATES


def test_an_encoder_decoder_for_both_targets_has_two_of_each_graph(tmp_path: Path) -> None:
    settings = ExportSettings("dates", tmp_path, "auto", target="all")
    exported = export_any(tiny_writer(), settings)
    assert sorted(graphs_of(exported)) == [
        *("encoder.onnx", "model.fp16.encoder.onnx", "model.fp16.onnx", "model.onnx"),
    ]
    assert [graph.device for graph in exported.manifest.graphs.values()] == ["cpu", "cuda"]
    for precision in ("fp32", "fp16"):
        served = Settings(precision=precision, device="cpu", kv_cache_bytes=2**20)
        (version,) = load_model(ModelSource.of(tmp_path, "dates"), served, Openers()).versions
        assert version.decoder is not None, "an encoder of another type would be refused"
        assert version.manifest is not None
        assert version.manifest.precision == precision


@pytest.mark.parametrize("attention", ["none", "dot", "additive"])
def test_a_recurrent_network_s_float32_graph_is_for_cuda_too(attention: str) -> None:
    assert unsupported_nodes(graph_of_recurrent(attention)) == ()


def test_lstms_in_bfloat16_are_refused_by_name(tmp_path: Path) -> None:
    message = r"^CUDA has no kernel for 4 of \d+ nodes: LSTM_\d+ \(LSTM of bfloat16\), "
    with pytest.raises(ExportError, match=message):
        export(MADE["elmo"](), tmp_path, "bf16")
    assert not list(tmp_path.iterdir())


def gemma() -> Checkpoint:
    return tiny_llama_generator(tiny_llama(activation="gelu_tanh", norm_placement="both"))


def test_gemma_in_float16_is_refused_and_by_default_in_bfloat16(tmp_path: Path) -> None:
    message = "precision is fp16, whose largest value is 65504, but .* bf16 holds them"
    with pytest.raises(ExportError, match=message):
        export(gemma(), tmp_path, "fp16")
    exported = export(gemma(), tmp_path, "auto")  # type: ignore[arg-type]
    assert exported.manifest.kinds == ("bf16", "bf16.paged")


def test_graphs_for_a_cpu_are_not_for_cuda(tmp_path: Path) -> None:
    exported = export_any(tiny_generator(), ExportSettings("tale", tmp_path, "fp32"))
    manifest: Manifest = exported.manifest
    assert manifest.device == "cpu"
    (graph,) = graphs_of(exported).values()
    assert {node.operator for node in unsupported_nodes(graph)} == {"GroupQueryAttention"}
    with pytest.raises(
        ExportError, match=r"2 of \d+ nodes: GroupQueryAttention_\d+ \(Group.*float"
    ):
        check_supported(graph)


@pytest.mark.parametrize("vocab_size", [7, 300])
def test_candidates_are_the_largest_logits_and_the_logarithm_of_their_sum(vocab_size: int) -> None:
    """At most 256, and all of a smaller vocabulary; equal logits of 200 do not overflow."""
    shape: list[str | int | None] = ["rows", vocab_size]
    given, logits = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "logits")
    )
    node = helper.make_node("Identity", ["x"], ["logits"])
    graph = helper.make_graph([node], "g", [given], [logits])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    session = open_session(with_candidates(model))
    x = np.random.default_rng(0).normal(size=(5, vocab_size)).astype(np.float32)
    x[4] = 200.0
    names = ["logits", "top_logits", "top_ids", "log_sum"]
    whole, top, ids, log_sum = session.run({"x": x}, names)
    count = min(256, vocab_size)
    assert np.array_equal(whole, x)
    assert np.array_equal(top, -np.sort(-x, axis=1)[:, :count])
    assert np.array_equal(np.take_along_axis(x, ids, axis=1), top)
    assert all(len(set(row)) == count for row in ids.tolist())
    largest = x.max(axis=1)
    expected = largest + np.log(np.exp(x - largest[:, None]).sum(axis=1))
    np.testing.assert_allclose(log_sum, expected, rtol=1e-6)


def test_only_graphs_for_cuda_give_candidates(tmp_path: Path) -> None:
    for target, names in (("cuda", CANDIDATES), ("cpu", ["logits"])):
        settings = ExportSettings(target, tmp_path, "fp16", target=target)  # type: ignore[arg-type]
        (graph, *_) = graphs_of(export_any(tiny_generator(), settings)).values()
        assert [end.name for end in outputs(graph)] == names


# --- the check itself ---------------------------------------------------------------------------


def graph_of(*nodes: onnx.NodeProto, given: int = TensorProto.FLOAT) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info("x", given, ["rows", 4])],
        [helper.make_tensor_value_info("y", TensorProto.UNDEFINED, None)],
        [numpy_helper.from_array(torch.tensor([1]).numpy(), "one")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])


def test_a_node_is_judged_by_the_type_that_reaches_it() -> None:
    cast = helper.make_node("Cast", ["x"], ["b"], "cast", to=TensorProto.BFLOAT16)
    norm = helper.make_node("ReduceL2", ["b", "one"], ["y"], "norm")
    (missing,) = unsupported_nodes(graph_of(cast, norm))
    assert str(missing) == "norm (ReduceL2 of bfloat16)"
    assert unsupported_nodes(graph_of(helper.make_node("ReduceL2", ["x", "one"], ["y"]))) == ()


def test_an_operator_that_the_table_lacks_has_no_kernel() -> None:
    missing = unsupported_nodes(graph_of(helper.make_node("Det", ["x"], ["y"], "det")))
    assert [str(node) for node in missing] == ["det (Det of float)"]


def test_nodes_that_compute_sizes_may_be_on_the_cpu() -> None:
    """`Mod` has no kernel in the table, and here depends on nothing but a shape."""
    shape = helper.make_node("Shape", ["x"], ["s"], "shape")
    size = helper.make_node("Mod", ["s", "one"], ["y"], "size")
    assert unsupported_nodes(graph_of(shape, size)) == ()
    value = helper.make_node("Mod", ["x", "one"], ["y"], "value")
    assert [node.name for node in unsupported_nodes(graph_of(value))] == ["value"]


# --- layouts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bert classifier", "distilbert", "roberta"])
def test_a_padded_graph_answers_as_the_packed_one_and_packs_nothing(name: str) -> None:
    network = checkpoint_of(name).text_network
    padded, packed = (
        trace(network, "Attention", precision="bf16", is_padded=is_padded)
        for is_padded in (True, False)
    )
    operators = {node.op_type for node in padded.graph.node}
    assert operators.isdisjoint(("NonZero", "CumSum"))
    batch = pad([[5, 6, 7, 8, 9], [6], [7, 8]], network.pad_token_id)
    by_padded, by_packed = (GraphRunner(widened(graph))(batch) for graph in (padded, packed))
    assert abs(by_padded - by_packed).max() < 1e-5


@pytest.mark.parametrize("is_padded", [False, True])
def test_attention_for_cuda_is_told_lengths_and_no_mask(is_padded: bool) -> None:
    """A mask would keep flash attention from being taken."""
    network = checkpoint_of("bert embedder").text_network
    graph = trace(network, "Attention", precision="fp16", is_padded=is_padded)
    assert graph.opset_import[0].version == 24
    attentions = [node for node in graph.graph.node if node.op_type == "Attention"]
    for node in attentions:
        assert node.input[3] == ""
        assert len(node.input) == 7
    assert len({node.input[6] for node in attentions}) == 1, "the lengths are computed once"
