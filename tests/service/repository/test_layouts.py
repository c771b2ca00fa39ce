"""Which of two graphs of an encoder is served: the one that is faster on this device."""

import gc
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tritonclient.grpc.model_config_pb2 import ModelConfig

from service.contract.files import ModelSource
from service.contract.manifest import Manifest, Variant
from service.errors import LoadError, ModelFailed
from service.repository.layouts import BATCHES, LayoutChoice, choose_layout
from service.repository.loading import LoadedVersion, Openers, load_model
from service.repository.measuring import MAX_ROUNDS, Run
from service.runtime.session import OnnxSession, RunStop, Session, SessionOptions
from service.settings import Settings
from tests.fakes.sessions import FakeSession, classifier_manifest, text_session, write_model

PADDED = Variant("fp16", device="cuda", layout="padded")
BOTH = classifier_manifest(
    variants=(Variant("fp16"), PADDED), max_tokens=256, labels=("ham", "spam", "maybe")
)
OVERHEAD_S = 1e-3
LAYOUTS = {
    "packed": lambda lengths: 3 * OVERHEAD_S + 1e-5 * sum(lengths),
    "padded": lambda lengths: OVERHEAD_S + 1e-5 * len(lengths) * max(lengths),
}


class Machine:
    """Graphs whose runs take what a function of their rows' lengths says, by its own clock."""

    def __init__(self, **graphs: Callable[[Sequence[int]], float]) -> None:
        self.now_s = 0.0
        self.ran: list[tuple[str, tuple[int, ...]]] = []
        self.runs: dict[str, Run] = {name: self._run(name, took) for name, took in graphs.items()}

    def _run(self, name: str, seconds: Callable[[Sequence[int]], float]) -> Run:
        def run(lengths: Sequence[int], _: RunStop) -> None:
            self.ran.append((name, tuple(lengths)))
            self.now_s += seconds(lengths)

        return run

    def choose(self, max_tokens: int = 512, max_rows: int = 64) -> LayoutChoice:
        return choose_layout(self.runs, max_tokens, max_rows, 60.0, lambda: self.now_s)


def test_the_faster_graph_is_chosen_with_its_ratio() -> None:
    """2.5 times as long in every batch; the order of the two does not matter."""
    slow, fast = (lambda _, s=s: s for s in (0.15625, 0.0625))
    chosen = LayoutChoice("padded", "2.50 times as fast as packed")
    assert Machine(packed=slow, padded=fast).choose() == chosen
    assert Machine(padded=fast, packed=slow).choose() == chosen
    assert Machine(packed=slow, padded=slow).choose() == LayoutChoice(
        "packed", "1.00 times as fast as padded"
    )


def test_each_batch_has_the_same_weight_however_long_it_takes() -> None:
    """Four times as fast in the longest batch, half as fast in the others: 4 / 2^4 in all."""
    longest = max(BATCHES, key=lambda batch: len(batch) * max(batch))
    packed: dict[tuple[int, ...], float] = {batch: 0.001 * sum(batch) for batch in BATCHES}
    padded = {batch: packed[batch] * (0.25 if batch == longest else 2.0) for batch in BATCHES}
    machine = Machine(
        packed=lambda lengths: packed[tuple(lengths)], padded=lambda lengths: padded[tuple(lengths)]
    )
    ratio = (2.0 ** (len(BATCHES) - 1) * 0.25) ** (1 / len(BATCHES))
    assert machine.choose() == LayoutChoice("packed", f"{ratio:.2f} times as fast as padded")


def test_both_run_every_batch_in_turn_after_first_runs_of_their_own() -> None:
    machine = Machine(**LAYOUTS)
    machine.choose()
    first, measured = machine.ran[: 2 * len(BATCHES)], machine.ran[2 * len(BATCHES) :]
    assert first == [(name, batch) for name in LAYOUTS for batch in BATCHES]
    assert measured == [(name, batch) for batch in BATCHES for name in LAYOUTS] * MAX_ROUNDS


def test_batches_are_as_long_and_as_large_as_the_model_takes_them() -> None:
    machine = Machine(**LAYOUTS)
    machine.choose(max_tokens=16, max_rows=4)
    assert {len(lengths) <= 4 and max(lengths) <= 16 for _, lengths in machine.ran} == {True}
    assert ("packed", (16, 16, 16, 16)) in machine.ran


def test_a_run_disturbed_once_decides_nothing() -> None:
    """One of the measured runs of the faster graph takes a minute."""
    machine = Machine(packed=lambda _: 0.03, padded=lambda _: 0.02)
    calls: list[int] = []

    def now_s() -> float:
        calls.append(1)
        return machine.now_s + (60.0 if len(calls) > 40 else 0.0)

    choice = choose_layout(machine.runs, 512, 64, 1e6, now_s)
    assert choice == LayoutChoice("padded", "1.50 times as fast as packed")


def test_without_time_the_preferred_graph_is_served() -> None:
    def slow(_: Sequence[int], stopping: RunStop) -> None:
        time.sleep(0.002)
        if stopping.is_stopped:
            raise ModelFailed("the run was stopped")

    runs: dict[str, Run] = {"packed": slow, "padded": slow}
    assert choose_layout(runs, 512, 64, 0.001) == LayoutChoice(
        "packed", "preferred, as there was no time to measure"
    )
    assert choose_layout(runs, 512, 64, 0.0) == LayoutChoice(
        "packed", "preferred, as nothing is measured"
    )


def fail_on_rows(lengths: Sequence[int], _: RunStop) -> None:
    if len(lengths) > 1:
        raise ModelFailed("no kernel for several rows")


@pytest.mark.parametrize(("failing", "chosen"), [("packed", "padded"), ("padded", "packed")])
def test_a_graph_whose_runs_fail_is_not_chosen(failing: str, chosen: str) -> None:
    machine = Machine(**LAYOUTS)
    machine.runs[failing] = fail_on_rows
    choice = machine.choose()
    assert (choice.name, choice.reason) == (chosen, f"the runs of {failing} failed")
    assert str(choice.failure) == "no kernel for several rows"


def test_two_graphs_that_fail_are_not_served() -> None:
    machine = Machine(**LAYOUTS)
    machine.runs = dict.fromkeys(LAYOUTS, fail_on_rows)
    with pytest.raises(ModelFailed, match="no kernel for several rows"):
        machine.choose()


def test_a_graph_that_fails_on_batches_is_named_in_the_log_and_two_are_a_load_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def opening(*failing: str) -> Callable[[Path, SessionOptions], FakeSession]:
        def open_it(path: Path, _: SessionOptions) -> FakeSession:
            session = text_session("logits", 3)
            compute = session.compute

            def fail(inputs: Any) -> dict[str, np.ndarray]:
                if len(inputs["input_ids"]) > 1:
                    raise ModelFailed("cuDNN is unavailable for CUDA Execution Provider")
                return compute(inputs)

            session.compute = fail if path.name in failing else compute
            return session

        return open_it

    version = load(tmp_path / "one", opening("model.fp16.onnx"))
    assert version.plan.graph.name == "model.fp16.padded.onnx"
    assert "padded (the runs of packed failed), " in version.description
    assert caplog.messages == [
        "'m': the runs of packed failed: cuDNN is unavailable for CUDA Execution Provider"
    ]
    with pytest.raises(LoadError, match=r"model\.fp16\.onnx: an operator of the model needs cuDNN"):
        load(tmp_path / "two", opening("model.fp16.onnx", "model.fp16.padded.onnx"))


def load(
    repository: Path, opener: Any, manifest: Manifest = BOTH, config: str = "", **settings: Any
) -> LoadedVersion:
    folder = write_model(repository, "m", manifest, config) / "1"
    for filename in manifest.graphs:
        (folder / filename).touch()
    openers = Openers(opener, choose_device=lambda device: "cuda" if device == "auto" else device)
    source, values = ModelSource.of(repository, "m"), {"measure_cost_s": 60.0} | settings
    (version,) = load_model(source, Settings(**values), openers).versions
    return version


class Opener:
    """Sessions by file; those of `slow` take some milliseconds more, `missing` do not open."""

    def __init__(self, slow: Sequence[str] = (), missing: Sequence[str] = ()) -> None:
        self._slow, self._missing = slow, missing
        self.opened: dict[str, weakref.ref[FakeSession]] = {}

    def __call__(self, path: Path, options: SessionOptions) -> FakeSession:
        if path.name in self._missing:
            raise LoadError(f"{path.name}: too little memory on cuda")
        session = text_session("logits", 3)
        if path.name in self._slow:
            compute = session.compute

            def compute_slowly(inputs: Any) -> dict[str, np.ndarray]:
                time.sleep(0.005)
                return compute(inputs)

            session.compute = compute_slowly
        self.opened[path.name] = weakref.ref(session)
        return session


@pytest.mark.parametrize(
    ("slow", "file", "layout"),
    [
        ("model.fp16.padded.onnx", "model.fp16.onnx", "packed"),
        ("model.fp16.onnx", "model.fp16.padded.onnx", "padded"),
    ],
)
def test_the_faster_of_both_is_served_and_the_other_one_closed(
    slow: str, file: str, layout: str, tmp_path: Path
) -> None:
    opener = Opener(slow=(slow,))
    version = load(tmp_path, opener)
    assert list(opener.opened) == ["model.fp16.onnx", "model.fp16.padded.onnx"]
    gc.collect()
    assert {name for name, session in opener.opened.items() if session() is not None} == {file}
    assert version.sessions[0] is opener.opened[file]()
    assert version.plan.graph.name == file
    interface = version.plan.interface
    assert interface.manifest is not None
    assert interface.manifest.layout == layout.removesuffix("packed")
    other = {"packed": "padded", "padded": "packed"}[layout]
    assert interface.layout_reason.endswith(f" times as fast as {other}")
    assert f", {layout} ({interface.layout_reason}), " in version.description
    shown = ModelConfig.FromString(interface.shown)
    assert shown.parameters["encoder_layout"].string_value == layout


@pytest.mark.parametrize(
    ("setting", "parameter", "file"),
    [
        ("padded", "", "model.fp16.padded.onnx"),
        ("packed", "", "model.fp16.onnx"),
        ("padded", "packed", "model.fp16.onnx"),
    ],
)
def test_a_layout_that_is_set_is_opened_alone(
    setting: str, parameter: str, file: str, tmp_path: Path
) -> None:
    """The model's parameter comes before the server's setting; nothing is measured."""
    value = f"value {{ string_value: '{parameter}' }}"
    config = f"parameters {{ key: 'encoder_layout' {value} }}" if parameter else ""
    opener = Opener()
    version = load(tmp_path, opener, config=config, encoder_layout=setting)
    assert list(opener.opened) == [file]
    assert version.plan.interface.layout_reason == ""


def test_a_version_with_one_layout_serves_it_whatever_is_set(tmp_path: Path) -> None:
    opener = Opener()
    load(tmp_path, opener, replace(BOTH, variants=(Variant("fp16"),)), encoder_layout="padded")
    assert list(opener.opened) == ["model.fp16.onnx"]


def test_on_the_cpu_no_graph_for_cuda_is_opened(tmp_path: Path) -> None:
    opener = Opener()
    load(tmp_path, opener, device="cpu", measure_cost_s=0.0)
    assert list(opener.opened) == ["model.onnx"]


def test_one_graph_that_does_not_open_leaves_the_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    version = load(tmp_path, Opener(missing=("model.fp16.onnx",)))
    assert version.plan.graph.name == "model.fp16.padded.onnx"
    assert "padded (the other graph cannot be opened)" in version.description
    assert caplog.messages == [
        "'m' has one graph less to choose from: model.fp16.onnx: too little memory on cuda"
    ]
    both = ("model.fp16.onnx", "model.fp16.padded.onnx")
    with pytest.raises(LoadError, match=r"model\.fp16\.onnx: too little memory"):
        load(tmp_path / "other", Opener(missing=both))


def write_graph(path: Path, num_products: int) -> None:
    """`logits` of the sum of a row's ids, after some products that change nothing."""
    unit = numpy_helper.from_array(np.eye(256, dtype=np.float32), "unit")
    nodes = [
        helper.make_node("CastLike", ["input_ids", "unit"], ["ids"]),
        helper.make_node("ReduceSum", ["ids", "axes"], ["sum"], keepdims=1),
        helper.make_node("Expand", ["sum", "wide"], ["x0"]),
        *(
            helper.make_node("MatMul", [f"x{number}", "unit"], [f"x{number + 1}"])
            for number in range(num_products)
        ),
        helper.make_node("Slice", [f"x{num_products}", "zero", "three", "one"], ["logits"]),
    ]
    constants = {"axes": [1], "wide": [1, 256], "zero": [0], "three": [3], "one": [1]}
    graph = helper.make_graph(
        nodes,
        "sums",
        [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["rows", "tokens"])
            for name in ("input_ids", "attention_mask")
        ],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["rows", 3])],
        [unit, *(numpy_helper.from_array(np.array(v), name) for name, v in constants.items())],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8),
        str(path),
    )


def test_graphs_of_onnx_runtime_are_compared_and_the_smaller_one_stays(tmp_path: Path) -> None:
    """A graph of 200 products and one of one, on the CPU in the place of a GPU."""
    write_graph(tmp_path / "model.fp16.onnx", 200)
    write_graph(tmp_path / "model.fp16.padded.onnx", 1)

    def open_here(path: Path, options: SessionOptions) -> Session:
        assert options.device == "cuda"
        return OnnxSession(tmp_path / path.name, replace(options, device="cpu"))

    version = load(tmp_path / "repository", open_here)
    assert version.plan.graph.name == "model.fp16.padded.onnx"
    assert version.plan.interface.layout_reason.endswith(" times as fast as packed")
    assert float(version.plan.interface.layout_reason.split()[0]) > 1.5
