"""Decoders of other programs over slots, against the graphs that they were made of.

The graphs are in `graphs/`, and `make_graphs.py` says what made them.
"""

import lzma
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from export.adopted.decoders import over_slots
from export.adopted.decoders_building import AdoptedDecoder, Sizes, build_decoder
from export.adopted.decoders_ends import Names, ends_of, take_branch_with_past
from export.adopted.edits import Edit, surround
from export.errors import ExportError
from service.generation.decoders.decoder import OnnxDecoder
from service.runtime.session import OnnxSession, SessionOptions

GRAPHS = Path(__file__).parent / "graphs"
SIZES = Sizes(max_tokens=128, head_size=16)  # genai states the size of a head in its file
# Families by what a graph does, and whether its rows need runs of their own.
FORMS = {
    "gptj": False,  # positions are an input
    "llama_genai": False,  # GroupQueryAttention counts places itself
    "gemma": True,  # positions count from the length of the past
    "gpt2_merged": True,  # the same, in one branch of two
}


def graph(name: str) -> ModelProto:
    return onnx.load_model_from_string(lzma.decompress((GRAPHS / f"{name}.onnx.xz").read_bytes()))


def built(
    name: str,
    folder: Path,
    change: Callable[[ModelProto], None] = lambda _: None,
    *,
    changes_source: bool = False,
) -> AdoptedDecoder:
    """A graph over slots; `change` is made to it alone, or to what it is compared with too."""
    source, place = folder / "source.onnx", folder / "1"
    place.mkdir()
    model, original = graph(name), graph(name)
    change(model)
    onnx.save(model if changes_source else original, source)
    return build_decoder(source, model, place, SIZES, on_step=lambda _: None)


@pytest.mark.parametrize("name", FORMS)
def test_graph_over_slots_writes_the_tokens_of_the_graph_as_it_was(
    name: str, tmp_path: Path
) -> None:
    """Prompts of 1, 5, 12 and 30 tokens with 12 greedy tokens each, and one of 40 in chunks."""
    decoder = built(name, tmp_path)
    found = decoder.differences
    assert decoder.takes_one_row == FORMS[name]
    assert found.same_tokens == found.num_tokens == 48
    assert max(found.together, found.used_slots, found.alone, found.chunks) < 1e-5
    assert decoder.precision == "fp32"
    assert "48 of 48 tokens equal" in decoder.certificate


def test_graph_whose_rows_change_each_other_says_that_a_run_has_one_row(tmp_path: Path) -> None:
    """The server's decoder then runs rows one by one, and pads no prompt."""
    session = OnnxSession(built("gemma", tmp_path).path, SessionOptions())
    decoder = OnnxDecoder(session, num_slots=2, max_tokens=64, max_rows=2)
    assert decoder.shape.takes_one_row
    assert not decoder.pads_prompts
    rows = [np.arange(3, dtype=np.int32), np.arange(9, dtype=np.int32)]
    together = decoder.run(0, rows, [0, 0]).whole().copy()
    alone = [decoder.run(slot, [row], [0]).whole()[0].copy() for slot, row in enumerate(rows)]
    np.testing.assert_array_equal(together, alone)


def test_graph_that_computes_something_else_is_refused_with_both_numbers(tmp_path: Path) -> None:
    """The end of the vocabulary gets larger logits than it had."""

    def change(model: ModelProto) -> None:
        ends = ends_of(model)
        product = next(node for node in model.graph.node if node.output[0] == "logits")
        more = np.linspace(0, 9, ends.vocab_size, dtype=np.float32)
        model.graph.initializer.append(numpy_helper.from_array(more, "more"))
        product.output[0] = "less"
        model.graph.node.append(helper.make_node("Add", ["less", "more"], ["logits"]))

    with pytest.raises(ExportError, match=r"computes something else .* at most 1e-05 is allowed"):
        built("gptj", tmp_path, change)


def _renamed(old: str, new: str) -> Callable[[ModelProto], None]:
    def change(model: ModelProto) -> None:
        for value in (*model.graph.input, *model.graph.output):
            value.name = value.name.replace(old, new)

    return change


def _with_dim(name: str, axis: int, size: int | None) -> Callable[[ModelProto], None]:
    def change(model: ModelProto) -> None:
        for value in (*model.graph.input, *model.graph.output):
            if value.name == name:
                dim = value.type.tensor_type.shape.dim[axis]
                dim.Clear()
                if size is not None:
                    dim.dim_value = size

    return change


def _with_input(name: str) -> Callable[[ModelProto], None]:
    def change(model: ModelProto) -> None:
        model.graph.input.append(helper.make_tensor_value_info(name, TensorProto.INT64, [1]))

    return change


def _of_opset_10(model: ModelProto) -> None:
    model.opset_import[0].version = 10


REFUSALS: dict[str, tuple[Callable[[ModelProto], None], str]] = {
    "no past": (_renamed("past_key_values", "memory"), "the graph reads no past"),
    "an encoder": (_with_input("encoder_hidden_states"), "reads an encoder's output"),
    "an unknown input": (_with_input("pixels"), "reads pixels, for which there is no value"),
    "no present": (_renamed("present.1.value", "other"), "lacks present.1.value"),
    "a layer of another size": (
        _with_dim("past_key_values.1.key", 3, 8),
        "caches of 2 sizes, expected one",
    ),
    "no number of heads": (
        _with_dim("past_key_values.0.key", 1, None),
        r"'past_key_values.0.key' has dims \['\?', '\?', '\?', 16\]",
    ),
    "one token of each run": (_with_dim("input_ids", 1, 1), "takes one token of a row"),
    "old operators": (_of_opset_10, "operators of version 10, expected 11 or later"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_graph_that_is_no_decoder_is_refused_by_name(case: str, tmp_path: Path) -> None:
    change, message = REFUSALS[case]
    with pytest.raises(ExportError, match=message):
        built("gptj", tmp_path, change)


def test_layers_of_two_kinds_are_refused(tmp_path: Path) -> None:
    """One layer extends its cache by GroupQueryAttention, and the other by Concat."""

    def change(model: ModelProto) -> None:
        node = [each for each in model.graph.node if each.op_type == "GroupQueryAttention"][1]
        node.op_type = "Other"

    with pytest.raises(ExportError, match="1 of 2 layers extend their cache"):
        built("llama_genai", tmp_path, change)


def test_inputs_that_never_vary_and_masks_that_are_read_elsewhere_are_filled_in(
    tmp_path: Path,
) -> None:
    """`num_logits_to_keep` is 0, so all tokens have logits; a mask is 1 wherever a token is."""

    def change(model: ModelProto) -> None:
        kept = helper.make_tensor_value_info("num_logits_to_keep", TensorProto.INT64, [])
        model.graph.input.append(kept)
        product = next(node for node in model.graph.node if "logits" in node.output)
        product.output[0] = "unscaled"
        scaled = [
            helper.make_node("ReduceMax", ["attention_mask"], ["one"], keepdims=0),
            helper.make_node("Add", ["one", "num_logits_to_keep"], ["sum"]),
            helper.make_node("Cast", ["sum"], ["factor"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["unscaled", "factor"], ["logits"]),
        ]
        model.graph.node.extend(scaled)

    decoder = built("llama_genai", tmp_path, change, changes_source=True)
    assert not decoder.takes_one_row
    assert decoder.differences.same_tokens == 48


@pytest.mark.parametrize("opset", [11, 18])
def test_added_nodes_are_of_the_graph_s_version_of_operators(opset: int) -> None:
    """Axes are an attribute before 13, and an input from then on."""
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["rows", "tokens"])
    result = helper.make_tensor_value_info("result", TensorProto.INT64, None)
    model = helper.make_model(
        helper.make_graph([], "edited", [ids], [result]),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=8,
    )
    edit = Edit(model, "new")
    places = edit.unsqueeze(edit.up_to(edit.size("ids", 1)), 0, 2)
    edit.node("Add", places, edit.constant(1), output="result")
    surround(model.graph, edit.nodes, ())
    model.graph.initializer.extend(edit.constants.values())
    session = OnnxSession(model.SerializeToString(), SessionOptions())
    (found,) = session.run({"ids": np.zeros((2, 3), np.int64)}, ["result"])
    np.testing.assert_array_equal(found, [[[1], [2], [3]]])


def test_names_of_tensors_are_those_of_the_folder(tmp_path: Path) -> None:
    """`genai_config.json` may call them otherwise; the graph over slots has the server's names."""
    model = graph("llama_genai")
    for node in model.graph.node:
        for side in (node.input, node.output):
            for place, name in enumerate(side):
                side[place] = name.replace("past_key_values", "past").replace("logits", "scores")
    _renamed("past_key_values", "past")(model)
    _renamed("logits", "scores")(model)
    names = Names(past_key_names="past.%d.key", past_value_names="past.%d.value", logits="scores")
    ends = ends_of(model, names, head_size=16)
    over_slots(model, ends)
    session = OnnxSession(model.SerializeToString(), SessionOptions())
    decoder = OnnxDecoder(session, num_slots=1, max_tokens=8, max_rows=1)
    assert (decoder.shape.num_layers, decoder.shape.head_size) == (2, 16)


def test_logits_of_chosen_tokens_alone_are_computed() -> None:
    """The last product reads the chosen tokens, so a prompt has no logits of all its tokens."""
    for name in FORMS:
        model = graph(name)
        take_branch_with_past(model)
        over_slots(model, ends_of(model, head_size=16))
        makers = {output: node for node in model.graph.node for output in node.output}
        node = makers["logits"]
        while node.op_type != "MatMul":
            node = next(makers[name] for name in node.input if name in makers)
        assert makers[node.input[0]].op_type == "Gather", name
        assert makers[node.input[0]].input[1] == "logit_positions", name


def test_names_of_purposes_that_are_not_known_are_passed_over() -> None:
    names = Names.of({"input_ids": "ids", "past_sequence_length": "lengths"})
    assert names == Names(input_ids="ids")


def test_one_name_for_the_caches_of_all_layers_is_refused() -> None:
    with pytest.raises(ExportError, match="past_key_names is 'past', expected a name with %d"):
        Names.of({"past_key_names": "past"})


@pytest.mark.parametrize("loss", ["then_branch", "an output"])
def test_choice_between_networks_that_is_not_whole_is_refused(loss: str) -> None:
    model = graph("gpt2_merged")
    choice = next(node for node in model.graph.node if node.op_type == "If")
    branch = next(each for each in choice.attribute if each.name == "then_branch")
    if loss == "an output":
        del branch.g.output[-1]
    else:
        choice.attribute.remove(branch)
    with pytest.raises(ExportError, match="the choice by 'use_cache_branch' gives 5 values, and"):
        take_branch_with_past(model)
