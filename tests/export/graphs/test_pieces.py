"""Pieces of a graph give what the whole gives, with the weights of one of them in memory."""

from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from export.graphs.files import num_bytes, save
from export.graphs.graph import open_session
from export.graphs.pieces import Pieces, _parts
from export.graphs.tensors import Array, made_later
from export.precision.samples import prompt_of
from tests.fakes.tiny_gpt import NUM_LAYERS, random_prompts, tiny_graph

ROWS = random_prompts([9, 1, 30])
CACHES = [f"present.{layer}.{side}" for layer in range(NUM_LAYERS) for side in ("key", "value")]


@pytest.mark.parametrize("max_bytes", [0, 2**14, 2**17, 2**30])
def test_values_of_pieces_are_those_of_the_whole_graph(max_bytes: int) -> None:
    graph = tiny_graph()
    wanted = [*CACHES, "logits"]
    seen: dict[str, list[Array]] = {name: [] for name in wanted}
    feeds = [partial(prompt_of, row) for row in ROWS]
    parts = Pieces(graph, wanted, max_bytes)
    given = list(parts.run(feeds, lambda name, value: seen[name].append(value)))
    assert len(given) == len(parts)
    assert (len(parts) > 1) == (max_bytes < num_bytes(graph))
    assert sorted(name for names in given for name in names) == sorted(wanted)
    session = open_session(graph)
    for place, row in enumerate(ROWS):
        values = session.run(prompt_of(row, session.signature.inputs), wanted)
        for name, value in zip(wanted, values, strict=True):
            np.testing.assert_allclose(seen[name][place], value, rtol=1e-5, atol=1e-5)


def test_one_piece_is_written_at_a_time_and_nothing_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A piece has no weights but its own; its file is gone once a session has read it."""
    most, sizes = 2**16, []

    def measured(model: onnx.ModelProto, path: Path) -> None:
        sizes.append(num_bytes(model))
        assert len(list(path.parent.parent.iterdir())) == 1, "those before were removed"
        save(model, path)

    monkeypatch.setattr("export.graphs.pieces.save", measured)
    with made_later(tmp_path):
        run = Pieces(tiny_graph(), CACHES, most).run([partial(prompt_of, ROWS[0])], lambda *_: None)
        assert list(run)
        assert [file for file in tmp_path.rglob("*") if file.is_file()] == []
    assert len(sizes) > 1
    assert max(sizes) <= most + 2**12, "norms and biases that several nodes share are counted once"


def test_values_that_branches_read_are_passed_to_their_piece() -> None:
    """A branch of a later piece reads a value of the first, which nothing else reads."""
    doubled = helper.make_node("Add", ["x", "x"], ["doubled"])
    summed = helper.make_node("Add", ["x", "weight"], ["summed"])
    branches = [
        helper.make_graph(
            [helper.make_node("Identity", [name], [f"{name}.out"])],
            name,
            [],
            [helper.make_tensor_value_info(f"{name}.out", TensorProto.FLOAT, None)],
        )
        for name in ("doubled", "summed")
    ]
    chosen = helper.make_node(
        "If", ["is_doubled"], ["y"], then_branch=branches[0], else_branch=branches[1]
    )
    graph = helper.make_graph(
        [doubled, summed, chosen],
        "branches",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [3]),
            helper.make_tensor_value_info("is_doubled", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.ones(3, np.float32), "weight")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    fed = {"x": np.arange(3, dtype=np.float32), "is_doubled": np.array(True)}
    seen: dict[str, Array] = {}
    parts = Pieces(model, ["y"], max_bytes=4)
    list(parts.run([lambda specs: {spec.name: fed[spec.name] for spec in specs}], seen.__setitem__))
    assert len(parts) > 1
    assert seen["y"].tolist() == [0, 2, 4]


@given(
    nodes=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), min_size=1, max_size=30),
    max_bytes=st.integers(0, 40),
)
def test_parts_have_every_node_once_and_fit(nodes: list[tuple[int, int]], max_bytes: int) -> None:
    """In their order; more than fits has a part only if one node has it."""
    num_bytes_of, num_passed = zip(*nodes, strict=True)
    parts = _parts(num_bytes_of, num_passed, max_bytes)
    assert [place for part in parts for place in range(part.start, part.stop)] == [
        *range(len(nodes))
    ]
    for part in parts:
        assert sum(num_bytes_of[part]) <= max_bytes or part.stop == part.start + 1
