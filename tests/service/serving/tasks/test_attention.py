"""The layers and heads that a request asks for, and the answer made of a text's matrices."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.calls.features import Attend
from service.contract.manifest import Manifest
from service.errors import InvalidArgument
from service.records import Timings
from service.serving.tasks.attention import ATTENTION, METHODS, Matrices
from service.serving.tasks.task import MAX_VALUES, OutputRows, TextReply
from service.text.tokenizer import SourceAndTargetTokenizer, TextTokenizer
from tests.fakes.sessions import PAD_ID, write_tokenizer

LAYERS, HEADS = 3, 2
(ATTEND,) = METHODS


def manifest_of(network: str = "") -> Manifest:
    return Manifest(
        "attention", "fp32", 12, PAD_ID, num_layers=LAYERS, num_heads=HEADS, network=network
    )


@dataclass
class Model:
    """One that reads a text, or a source and a target."""

    tokenizer: TextTokenizer
    manifest: Manifest = field(default_factory=manifest_of)
    name: str = "looking"


@pytest.fixture
def model(tmp_path: Path) -> Model:
    write_tokenizer(tmp_path / "tokenizer.json")
    path = tmp_path / "tokenizer.json"
    return Model(SourceAndTargetTokenizer(path, 12, 100, has_encodings=True))


def request_for(**fields: Any) -> Attend:
    return Attend(**{"model": "looking", "text": "win a prize"} | fields)


def answer_of(model: Model, **fields: Any) -> tuple[np.ndarray, dict[str, Any]]:
    """The matrices that a graph gives, [L, H, T, S], and the answer made of them."""
    asked = ATTEND.ask(request_for(**fields), model)
    (row,) = rows = model.tokenizer.encode(asked.inputs, can_truncate=False)
    num_queries = row.target.num_tokens if row.target else row.num_tokens
    shape = LAYERS, HEADS, num_queries, row.num_tokens
    matrices = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    answer = dict(
        asked.answer(TextReply({"attentions": OutputRows(matrices[None], [1])}, rows, Timings(0.0)))
    )
    return matrices, answer | {"matrices": list(answer["matrices"])}


def test_a_request_that_names_nothing_gets_all_layers_and_heads(model: Model) -> None:
    """Of the five tokens of a text, by layer and then by head."""
    matrices, answer = answer_of(model)
    assert answer["num_tokens"] == 5
    pieces = ["[CLS]", "win", "a", "prize", "[SEP]"]
    assert [token.piece for token in answer["queries"]] == pieces
    assert answer["keys"] == answer["queries"]
    places = [(each.layer, each.head) for each in answer["matrices"]]
    assert places == [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]
    for each in answer["matrices"]:
        assert each.weights.tolist() == matrices[each.layer, each.head].ravel().tolist()


def test_a_request_gets_the_layers_and_heads_that_it_names_in_its_order(model: Model) -> None:
    matrices, answer = answer_of(model, layers=(2, 0), heads=(1,))
    places = [(each.layer, each.head) for each in answer["matrices"]]
    assert places == [(2, 1), (0, 1)]
    for each in answer["matrices"]:
        assert each.weights.tolist() == matrices[each.layer, each.head].ravel().tolist()


def test_what_was_written_attends_to_what_was_read(model: Model) -> None:
    """Queries are the target's three tokens, keys the source's five."""
    model.manifest = manifest_of("encoder-decoder")
    _, answer = answer_of(model, target="cash")
    assert [token.piece for token in answer["queries"]] == ["[CLS]", "cash", "[SEP]"]
    assert [token.piece for token in answer["keys"]][1:-1] == ["win", "a", "prize"]
    assert answer["num_tokens"] == 8
    assert [len(each.weights) for each in answer["matrices"]] == [15] * LAYERS * HEADS


@pytest.mark.parametrize(
    ("places", "reason"),
    [
        ({"layers": (0, 3)}, "layers has 3, the model has 3, from 0"),
        ({"layers": (-1,)}, "layers has -1, the model has 3, from 0"),
        ({"heads": (2,)}, "heads has 2, the model has 2, from 0"),
        ({"heads": (0, 1, 0)}, "heads has 3 elements, the model has 2"),
        ({"layers": (1, 0, 1)}, "layers repeats one of [1, 0, 1]"),
    ],
)
def test_layers_and_heads_that_a_model_does_not_have_are_refused(
    model: Model, places: dict[str, tuple[int, ...]], reason: str
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        ATTEND.ask(request_for(**places), model)
    assert str(refused.value) == reason


def test_a_target_is_given_where_the_model_has_one_and_nowhere_else(model: Model) -> None:
    with pytest.raises(InvalidArgument) as refused:
        ATTEND.ask(request_for(target="cash"), model)
    assert str(refused.value) == "target has 4 characters, model 'looking' expects none"
    model.manifest = manifest_of("encoder-decoder")
    with pytest.raises(InvalidArgument) as refused:
        ATTEND.ask(request_for(), model)
    assert str(refused.value) == (
        "target has 0 characters, model 'looking' expects what it wrote of the text"
    )


def test_an_answer_has_as_many_values_as_it_may_have_and_not_one_more() -> None:
    """Two layers of two heads, of 2^19 values each; with a 2^19 + 1st they are refused."""
    side = 2**9
    asked = Matrices((0, 1), (0, 2))
    assert asked.of(np.zeros((2, 3, side, 2 * side), np.float32)).size == MAX_VALUES
    with pytest.raises(InvalidArgument, match="ask for fewer layers or heads, or a shorter text"):
        asked.of(np.zeros((2, 3, side + 1, 2 * side), np.float32))


def test_tensors_of_texts_are_pairs_where_there_are_targets() -> None:
    texts = np.array([[b"win"], [b"a prize"]], object)
    assert ATTENTION.texts_of({"text": texts}) == ["win", "a prize"]
    pairs = ATTENTION.texts_of({"text": texts, "target": texts[::-1]})
    assert pairs == [("win", "a prize"), ("a prize", "win")]


@pytest.mark.parametrize("network", ["", "encoder-decoder"])
def test_clients_see_a_target_where_the_model_has_one(network: str) -> None:
    signature = ATTENTION.signature(manifest_of(network))
    names = [spec.name for spec in signature.inputs]
    assert names == (["text", "target"] if network else ["text"])
    (output,) = signature.outputs
    assert (output.name, output.dims) == ("attentions", (LAYERS, HEADS, -1, -1))


def test_tensors_have_the_layers_and_heads_that_parameters_name(model: Model) -> None:
    """So that a client of binary tensors can ask for a few layers at a time."""
    values = np.arange(LAYERS * HEADS * 4, dtype=np.float32).reshape(1, LAYERS, HEADS, 2, 2)
    reply = TextReply({"attentions": OutputRows(values, [1])}, [], Timings(0.0))
    read = ATTENTION.tensors(model, {"layers": "2,0", "heads": "1"})
    assert np.array_equal(read([], reply)["attentions"], values[:, [2, 0]][:, :, [1]])
    whole = ATTENTION.tensors(model, {"truncate": True})
    assert whole([], reply)["attentions"] is values
    with pytest.raises(InvalidArgument, match="layers has 3, the model has 3, from 0"):
        ATTENTION.tensors(model, {"layers": "3"})
    with pytest.raises(InvalidArgument, match="the parameter heads is '0;1', expected whole"):
        ATTENTION.tensors(model, {"heads": "0;1"})
