"""The comparison of decoders of Llama's kind, and shares of the machine's limit, without peers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from tokenizers import Tokenizer
from typer.testing import CliRunner

import loadtests.compare.__main__ as compare
import loadtests.compare.panel as panel_module
from loadtests.compare import llamas, models, report
from loadtests.compare.agreement import tokens_agree
from loadtests.compare.comparison import Result, Side, compare_all
from loadtests.compare.environments import NotAvailable, Own, environ
from loadtests.compare.models import Reference, reference_path
from loadtests.compare.panel import PANELS, Choice, compare_models
from loadtests.compare.peers import Program, ours
from loadtests.compare.traffic import GENERATE, LLAMA_TRAFFIC
from loadtests.compare.worker import Answer, Work, generating_in_groups
from loadtests.load.lengths import mixed_sizes
from loadtests.load.turns import Spread
from loadtests.measure import limits
from models.checkpoints.huggingface import load_llama
from models.networks.llama import Llama

WORK = Work([[5, 6], [9, 1]], 2, [8, 3])


def result_of(name: str, traffic: str = "smollm2-alone-8") -> Result:
    return Result(traffic, "what", GENERATE, name, "int8")


def test_all_sides_take_turns_after_a_short_one_and_each_peer_has_a_ratio() -> None:
    """Ours run once a round; the outputs of the first turn of each are cut to four tokens."""
    runs: list[tuple[str, int]] = []

    def side(name: str, seconds: float) -> Side:
        def run(work: Work) -> Answer:
            runs.append((name, work.amount))
            return Answer(seconds, [], first_s=[seconds / 2])

        return Side(name, run, f"{name} agrees")

    sides = [side("ours", 1.0), side("a", 2.0), side("b", 3.0)]
    results = compare_all(sides, {name: result_of(name) for name in "ab"}, WORK, 2)
    assert runs[:3] == [("ours", 7), ("a", 7), ("b", 7)]
    assert runs[3:] == [(name, 11) for name in ("ours", "a", "b", "b", "a", "ours")]
    assert [report.ratios(each) for each in results] == [
        {"ours": Spread(2.0, 2.0, 2.0)},
        {"ours": Spread(3.0, 3.0, 3.0)},
    ]
    assert [(each.agreement, each.amount) for each in results] == [
        ("a agrees", 11),
        ("b agrees", 11),
    ]
    assert results[0].first_s == {"ours": [0.5, 0.5], "a": [1.0, 1.0]}


def test_a_group_has_its_first_tokens_when_its_first_step_ends() -> None:
    answer = generating_in_groups(lambda rows, n: [row * n for row in rows], lambda: 1e9)(
        Work([[1], [2], [3]], 2, [2, 1, 1])
    )
    assert answer.outputs == [[1, 1], [2], [3]]
    assert len(answer.first_s) == 3
    assert min(answer.first_s) > 0


def test_a_rounding_engine_may_choose_first_tokens_that_are_likely() -> None:
    reference, found, likely = [[5, 6], [7, 8]], [[6, 1], [7, 9]], [[5, 6, 2], [7, 1, 3]]
    assert not tokens_agree(reference, found, "int4-weights", likely).fault
    assert tokens_agree(reference, [[9, 1], [9, 8]], "int4-weights", likely).fault
    assert tokens_agree(reference, found, "float32", likely).fault


def test_times_to_first_tokens_are_shown(tmp_path: Path) -> None:
    for name, first_s in (("fast peer", 0.25), ("slow peer", 1.5)):
        result = result_of(name)
        result.amount, result.theirs_s, result.ours_s = 10, [2.0], {"attendant int8": [1.0]}
        result.first_s = {"attendant int8": [0.125], name: [first_s]}
        report.keep(result, tmp_path)
    console = Console(record=True, width=160)
    report.show(report.kept(tmp_path), console)
    text = console.export_text()
    for expected in ("first token", "125", "250", "1,500", "2.00"):
        assert expected in text


def test_all_programs_have_their_weights_in_huge_pages_as_our_images_have() -> None:
    assert environ(2)["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=1"


def test_each_precision_is_exported_to_its_own_folder_and_traffic_fits_the_models() -> None:
    for model, shape in llamas.SHAPES.items():
        assert len({peer.folder for peer in ours(model, (), {})}) == 3
        for kind in LLAMA_TRAFFIC[model]:
            assert kind.quick is not None
            for work in (kind.quick(mixed_sizes), kind.full(mixed_sizes)):
                assert max(map(max, work.rows)) < shape.vocab_size
                assert max(map(len, work.rows)) + max(work.num_tokens) <= 256, "a peer's slots"
            assert kind.quick(mixed_sizes).amount < kind.full(mixed_sizes).amount


def test_a_written_checkpoint_is_imported_and_its_reference_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shape of our own, as small as can be; token 0 ends texts, and the vocabulary is full."""
    fields = {
        "vocab_size": 300,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    monkeypatch.setitem(llamas.SHAPES, "tiny", llamas.Shape("tiny", "llama", fields))
    monkeypatch.setattr(models, "random_prompt", lambda _, size: [*range(1, size + 1)])
    llamas.write_llama(tmp_path, "tiny")
    tokenizer = Tokenizer.from_file(str(tmp_path / "tiny" / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == 300
    assert tokenizer.decode(tokenizer.encode("an é").ids) == "an é"
    loaded = load_llama(tmp_path / "tiny")
    assert isinstance(loaded.model, Llama)
    assert loaded.model.config.max_positions == llamas.CONTEXT
    reference = Reference.read(reference_path(tmp_path, "tiny"))
    assert [row[0] for row in reference.tokens] == [row[0] for row in reference.likely]


class Missing(Own):
    """An environment that cannot be installed."""

    def install(self) -> None:
        raise NotAvailable("pip says no")


def fake(name: str, **options: object) -> Program:
    return Program(name, Own("own"), "fake", GENERATE, "int8", "smollm2", options, in_quick=True)


def test_one_command_compares_and_keeps_also_what_was_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import loadtests.compare.comparison as comparison
    from loadtests.compare.connection import Worker

    def worker(name: str, command: list[str], log: Path, environ: dict[str, str]) -> Worker:
        return Worker(name, [*command[:-1], "tests.fakes.peer"], tmp_path / "log", environ)

    monkeypatch.setattr(comparison, "Worker", worker)
    monkeypatch.setattr(comparison, "BUILD", tmp_path)
    monkeypatch.setattr(panel_module, "MODELS", tmp_path)
    absent = replace(fake("absent"), environment=Missing("none"))
    faked = replace(
        PANELS["llamas"],
        ours=lambda *_: [fake("attendant int8")],
        peers=lambda _: [fake("peer"), fake("bad", wrong=1), absent],
        finish=lambda *_: None,
    )
    Reference([], [], [[4, 4], [7, 8]], [[4, 4], [7, 7]], [[4], [7]]).write(
        reference_path(tmp_path, "smollm2")
    )
    choice = Choice(kinds=["alone-1"], rounds=1, is_quick=True)
    compare_models(faked, ["smollm2"], choice, {}, tmp_path / "results")
    kept = {each.peer: each for each in report.kept(tmp_path / "results")}
    assert kept["peer"].theirs_s == [2.0]
    assert kept["peer"].ours_s == {"attendant int8": [2.0]}
    assert "first tokens" in kept["bad"].fault
    assert kept["absent"].fault == "pip says no"
    help_text = CliRunner().invoke(compare.app, ["llamas", "--help"]).output
    assert "smollm2" in help_text


def decoder_graph(path: Path, **changes: Any) -> Path:
    """Two products of 8 x 16 weights, float32 or int8, that share their weights, and caches."""
    dtype = changes.get("dtype", np.float32)
    operator = "MatMul" if dtype == np.float32 else "MatMulIntegerToFloat"
    domain = "" if dtype == np.float32 else limits.MICROSOFT
    weights = [numpy_helper.from_array(np.ones((8, 16), dtype), "w")]
    nodes = [helper.make_node(operator, [f"x{i}", "w"], [f"y{i}"], domain=domain) for i in range(2)]
    nodes.append(helper.make_node("Mul", ["y0", "y1"], ["y"]))
    if changes.get("is_transposed"):
        nodes.insert(0, helper.make_node("Transpose", ["w"], ["t"]))
        for node in nodes[1:3]:
            node.input[1] = "t"
    cache = helper.make_tensor_value_info(
        "past_key_values.0.key", TensorProto.FLOAT, ["batch", 3, "cache", 4]
    )
    graph = helper.make_graph(nodes, "g", [cache], [], weights)
    onnx.save(helper.make_model(graph), str(path))
    return path


def test_the_cost_of_a_step_counts_weights_once_and_products_each_time(tmp_path: Path) -> None:
    """8 * 16 weights of 4 bytes are read once and multiplied twice; 3 heads of 4 floats cached."""
    cost = limits.cost_of(decoder_graph(tmp_path / "float.onnx"))
    assert cost == limits.Cost(512, 48, 256, is_integer=False)
    for is_transposed in (False, True):
        path = decoder_graph(tmp_path / "int8.onnx", dtype=np.int8, is_transposed=is_transposed)
        assert limits.cost_of(path) == limits.Cost(128, 48, 256, is_integer=True)


def test_blocks_of_four_bits_count_their_scales_and_every_product(tmp_path: Path) -> None:
    packed = numpy_helper.from_array(np.zeros((16, 2, 16), np.uint8), "packed")
    scales = numpy_helper.from_array(np.ones((16, 2), np.float32), "scales")
    node = helper.make_node(
        "MatMulNBits",
        ["x", "packed", "scales"],
        ["y"],
        domain=limits.MICROSOFT,
        K=64,
        N=16,
        bits=4,
        block_size=32,
    )
    onnx.save(
        helper.make_model(helper.make_graph([node], "g", [], [], [packed, scales])),
        str(tmp_path / "blocks.onnx"),
    )
    cost = limits.cost_of(tmp_path / "blocks.onnx")
    assert cost == limits.Cost(16 * 2 * 16 + 16 * 2 * 4, 0, 64 * 16, is_integer=True)


def test_the_share_is_the_larger_of_reading_and_multiplying_over_the_step() -> None:
    """1 row: 100 bytes at 1,000/s against 10 products at 1,000/s, in a step of 0.2 s; 40 rows."""
    machine = {name: [{"seconds": 1.0, "amount": 1e3}] for name in ("bytes", "integer products")}
    steps = {
        "g: 1 row": [{"seconds": 0.2, "bytes": 100, "integer products": 10}],
        "g: 40 rows": [{"seconds": 0.5, "bytes": 100, "integer products": 400}],
    }
    found = {(each.row, each.column): each.median for each in limits.figures({**machine, **steps})}
    columns = ("reading", "multiplying", "share of the limit")
    assert [found["g: 1 row", each] for each in columns] == pytest.approx([100, 10, 0.5])
    assert [found["g: 40 rows", each] for each in columns] == pytest.approx([100, 400, 0.8])


@pytest.mark.parametrize("is_integer", [False, True])
def test_rates_of_the_machine_are_measured(
    is_integer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "READ_BYTES", 2**16)
    monkeypatch.setattr(limits, "PRODUCT_SIZE", 64)
    for turn in (limits.reading(2)(), limits.multiplying(1, is_integer=is_integer)()):
        assert turn["amount"] / turn["seconds"] > 0
