"""Graphs that are damaged at random: each is refused in a sentence that names it, or is served."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto

from commands.folders.onnx_maker import make
from export.adopted.editing import graphs_in
from export.errors import ExportError
from models.errors import ModelError
from tests.commands.folders.test_onnx_decoders import FILES, job, write_folder
from tests.fakes.onnx_folders import onnx_folder

NUM_SEEDS = 2
MAX_CHARACTERS = 1500
DECODERS = ("gptj", "gpt2_merged")
ENCODERS = ("text-classification", "embedding")
GRAPH = "model.onnx"


def drop_a_node(model: ModelProto, chosen: random.Random) -> None:
    graph = chosen.choice([each for each in graphs_in(model.graph) if each.node])
    del graph.node[chosen.randrange(len(graph.node))]


def rename_an_input(model: ModelProto, chosen: random.Random) -> None:
    chosen.choice(model.graph.input).name = "renamed"


def rename_an_output(model: ModelProto, chosen: random.Random) -> None:
    chosen.choice(model.graph.output).name = "renamed"


def rename_what_a_node_reads(model: ModelProto, chosen: random.Random) -> None:
    node = chosen.choice([each for each in nodes_of(model) if each.input])
    node.input[chosen.randrange(len(node.input))] = "renamed"


def read_what_comes_later(model: ModelProto, chosen: random.Random) -> None:
    nodes = model.graph.node
    node = chosen.choice([each for each in nodes if each.input])
    node.input[chosen.randrange(len(node.input))] = nodes[-1].output[0]


def drop_an_initializer(model: ModelProto, chosen: random.Random) -> None:
    graph = chosen.choice([each for each in graphs_in(model.graph) if each.initializer])
    del graph.initializer[chosen.randrange(len(graph.initializer))]


def shorten_an_initializer(model: ModelProto, chosen: random.Random) -> None:
    tensor = chosen.choice(model.graph.initializer)
    tensor.raw_data = tensor.raw_data[: len(tensor.raw_data) // 2]


def state_a_negative_size(model: ModelProto, chosen: random.Random) -> None:
    tensor = chosen.choice([each for each in model.graph.initializer if each.dims])
    tensor.dims[0] = -tensor.dims[0]


def state_a_huge_size(model: ModelProto, chosen: random.Random) -> None:
    tensor = chosen.choice([each for each in model.graph.initializer if each.dims])
    tensor.dims[0] = 2**62


def state_a_negative_size_of_an_end(model: ModelProto, chosen: random.Random) -> None:
    value = chosen.choice([*model.graph.input, *model.graph.output])
    chosen.choice(value.type.tensor_type.shape.dim).dim_value = -7


def leave_out_a_type(model: ModelProto, chosen: random.Random) -> None:
    chosen.choice([*model.graph.input, *model.graph.output]).ClearField("type")


def change_a_type(model: ModelProto, chosen: random.Random) -> None:
    value = chosen.choice([*model.graph.input, *model.graph.output])
    kinds = (TensorProto.STRING, TensorProto.BOOL, TensorProto.UNDEFINED, 99)
    value.type.tensor_type.elem_type = chosen.choice(kinds)


def leave_out_all_outputs(model: ModelProto, chosen: random.Random) -> None:
    del chosen.choice([*graphs_in(model.graph)]).output[:]


def leave_out_all_inputs(model: ModelProto, _: random.Random) -> None:
    del model.graph.input[:]


def leave_out_opsets(model: ModelProto, _: random.Random) -> None:
    del model.opset_import[:]


def leave_out_attributes(model: ModelProto, chosen: random.Random) -> None:
    del chosen.choice([each for each in nodes_of(model) if each.attribute]).attribute[:]


def leave_out_what_a_node_gives(model: ModelProto, chosen: random.Random) -> None:
    del chosen.choice([*nodes_of(model)]).output[:]


def repeat_a_node(model: ModelProto, chosen: random.Random) -> None:
    model.graph.node.append(chosen.choice(model.graph.node))


def repeat_an_input(model: ModelProto, chosen: random.Random) -> None:
    model.graph.input.append(chosen.choice(model.graph.input))


def give_an_unknown_operator(model: ModelProto, chosen: random.Random) -> None:
    chosen.choice([*nodes_of(model)]).op_type = "Unknown"


def name_no_data(model: ModelProto, chosen: random.Random) -> None:
    tensor = chosen.choice(model.graph.initializer)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL


def nodes_of(model: ModelProto) -> Iterator[NodeProto]:
    for graph in graphs_in(model.graph):
        yield from graph.node


DAMAGES: tuple[Callable[[ModelProto, random.Random], None], ...] = (
    drop_a_node,
    rename_an_input,
    rename_an_output,
    rename_what_a_node_reads,
    read_what_comes_later,
    drop_an_initializer,
    shorten_an_initializer,
    state_a_negative_size,
    state_a_huge_size,
    state_a_negative_size_of_an_end,
    leave_out_a_type,
    change_a_type,
    leave_out_all_outputs,
    leave_out_all_inputs,
    leave_out_opsets,
    leave_out_attributes,
    leave_out_what_a_node_gives,
    repeat_a_node,
    repeat_an_input,
    give_an_unknown_operator,
    name_no_data,
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Valid folders, by their kind."""
    root = tmp_path_factory.mktemp("valid")
    for task in ENCODERS:
        onnx_folder(root / task, task, graph=GRAPH)
    return {
        **{task: root / task for task in ENCODERS},
        **{name: write_folder(name, root / name) for name in DECODERS},
    }


def outcome(folder: Path, target: Path) -> str:
    """Nothing where the folder is served, and else why it is not."""
    target.mkdir()
    try:
        make(job(folder), target, lambda _: None)
    except (ExportError, ModelError) as error:
        assert not [*target.iterdir()], "nothing half made is left"
        return str(error)
    assert [each.name for each in target.iterdir()] == ["model"]
    return ""


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", [*ENCODERS, *DECODERS])
def test_a_damaged_graph_is_served_or_refused_in_a_sentence_that_names_it(
    kind: str,
    damage: Callable[[ModelProto, random.Random], None],
    folders: dict[str, Path],
    tmp_path: Path,
) -> None:
    file = folders[kind] / FILES.get(kind, GRAPH)
    whole = file.read_bytes()
    try:
        for seed in range(NUM_SEEDS):
            model = onnx.load_model_from_string(whole)
            damage(model, random.Random(seed))  # noqa: S311 - the same in each run
            file.write_bytes(model.SerializeToString())
            why = outcome(folders[kind], tmp_path / str(seed))
            if why:
                assert file.name in why or "config.json" in why
                assert "\n" not in why
                assert len(why) < MAX_CHARACTERS
    finally:
        file.write_bytes(whole)
