"""The door to ONNX Runtime, with real graphs of a few nodes."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from service.contract.session_tuning import SessionTuning
from service.contract.tensors import Signature
from service.errors import LoadError, ModelFailed, OutOfMemory
from service.runtime.session import (
    OnnxSession,
    RunStop,
    SessionOptions,
    choose_device,
    cuda_obstacle,
    load_onnxruntime,
)
from tests.fakes.sessions import PATIENCE_S, spec

Shape = Sequence[int | str]


def write_graph(
    path: Path,
    operator: str,
    kinds: tuple[int, int],
    shapes: tuple[Shape, Shape],
    opset: int = 17,
    **attributes: Any,
) -> None:
    """One node from `x` to `y`."""
    inputs, outputs = (
        [helper.make_tensor_value_info(name, kind, shape)]
        for name, kind, shape in zip("xy", kinds, shapes, strict=True)
    )
    node = helper.make_node(operator, ["x"], ["y"], **attributes)
    graph = helper.make_graph([node], "one node", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(path))


@pytest.fixture
def negating(tmp_path: Path) -> Path:
    """`y` = -`x`, float32 [rows, 4]."""
    path = tmp_path / "model.onnx"
    write_graph(path, "Neg", (TensorProto.FLOAT, TensorProto.FLOAT), (("rows", 4), ("rows", 4)))
    return path


def test_a_graph_s_signature_has_minus_one_for_named_axes(negating: Path) -> None:
    session = OnnxSession(negating, SessionOptions())
    assert session.signature == Signature((spec("x", "FP32", -1, 4),), (spec("y", "FP32", -1, 4),))
    assert session.signature.can_batch


def test_outputs_come_in_the_order_asked_for(negating: Path) -> None:
    session = OnnxSession(negating, SessionOptions())
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    (y,) = session.run({"x": x}, ["y"])
    assert y.tolist() == (-x).tolist()


def test_what_the_session_refuses_is_a_model_failure(negating: Path) -> None:
    session = OnnxSession(negating, SessionOptions())
    with pytest.raises(ModelFailed, match="x"):
        session.run({"x": np.zeros((2, 5), np.float32)}, ["y"])
    with pytest.raises(ModelFailed):
        session.run({"x": np.zeros((2, 4), np.float32)}, ["z"])


@pytest.fixture
def long(tmp_path: Path) -> Path:
    """`y` is `x`, float32 [512, 512], after 200 products: some tenths of a second of a core."""
    path = tmp_path / "long" / "model.onnx"
    path.parent.mkdir()
    names = ["x", *(f"x{number}" for number in range(1, 200)), "y"]
    nodes = [helper.make_node("MatMul", [before, "unit"], [to]) for before, to in pairwise(names)]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [512, 512]) for name in "xy")
    unit = numpy_helper.from_array(np.eye(512, dtype=np.float32), "unit")
    graph = helper.make_graph(nodes, "many nodes", [x], [y], [unit])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(path))
    return path


def test_a_run_that_is_stopped_ends_at_once_and_its_session_s_other_runs_go_on(long: Path) -> None:
    """Two run at once, and one is stopped; then one before it begins, then one goes well."""
    session, stops = OnnxSession(long, SessionOptions()), [RunStop(), RunStop()]
    x = np.random.default_rng(0).random((512, 512), np.float32)
    with ThreadPoolExecutor(2) as threads:
        stopped, other = (threads.submit(session.run, {"x": x}, ["y"], stop) for stop in stops)
        while not all(stop._end for stop in stops):
            time.sleep(0.001)
        stops[0].stop()
        with pytest.raises(ModelFailed, match="terminate"):
            stopped.result(PATIENCE_S)
        assert np.array_equal(other.result(PATIENCE_S)[0], x)
    with pytest.raises(ModelFailed, match="terminate"):
        session.run({"x": x}, ["y"], stops[0])
    assert np.array_equal(session.run({"x": x}, ["y"], RunStop())[0], x)


def test_a_graph_is_not_opened_again_on_another_device(
    negating: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """ONNX Runtime's Python interface would do so on the CPU, at load and when a run fails."""
    assert OnnxSession(negating, SessionOptions())._session._enable_fallback is False
    (tmp_path / "broken.onnx").write_bytes(b"not a graph")
    with pytest.raises(LoadError):
        OnnxSession(tmp_path / "broken.onnx", SessionOptions())
    assert "EP Error" not in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"", b"not a graph"])
def test_a_file_that_is_no_graph_is_a_load_error_with_its_name(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "model.onnx").write_bytes(content)
    with pytest.raises(LoadError, match=r"^model\.onnx: "):
        OnnxSession(tmp_path / "model.onnx", SessionOptions())


def test_strings_cross_as_text_with_their_nul_bytes(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    write_graph(path, "Identity", (TensorProto.STRING, TensorProto.STRING), (("n",), ("n",)))
    session = OnnxSession(path, SessionOptions())
    assert session.signature.inputs == (spec("x", "BYTES", -1),)
    texts = np.array(["", "a\0b\0", "\N{SNOWMAN}"], object)
    (found,) = session.run({"x": texts}, ["y"])
    assert found.tolist() == texts.tolist()


def test_a_type_that_the_protocol_has_no_bytes_for_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    kinds = TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT
    write_graph(path, "Cast", kinds, (("n",), ("n",)), opset=19, to=TensorProto.FLOAT)
    with pytest.raises(LoadError, match=r"'x' is tensor\(float8e4m3fn\): not supported"):
        OnnxSession(path, SessionOptions())


def as_bfloat16(values: np.ndarray) -> np.ndarray:
    """The upper halves of float32 numbers, uint16."""
    bits: np.ndarray = (values.astype("<f4").view("<u4") >> 16).astype("<u2")
    return bits


@pytest.mark.parametrize("num_rows", [2, 0])
@pytest.mark.parametrize(
    ("source", "target", "spelt"),
    [
        (TensorProto.BFLOAT16, TensorProto.BFLOAT16, ("BF16", "BF16")),
        (TensorProto.BFLOAT16, TensorProto.FLOAT, ("BF16", "FP32")),
        (TensorProto.FLOAT, TensorProto.BFLOAT16, ("FP32", "BF16")),
    ],
)
def test_bfloat16_crosses_as_its_bits(
    tmp_path: Path, source: int, target: int, spelt: tuple[str, str], num_rows: int
) -> None:
    """In, out and both; rows that are not contiguous, and none at all."""
    path = tmp_path / "model.onnx"
    write_graph(path, "Cast", (source, target), (("n", 3), ("n", 3)), to=target)
    session = OnnxSession(path, SessionOptions())
    assert session.signature == Signature(
        (spec("x", spelt[0], -1, 3),), (spec("y", spelt[1], -1, 3),)
    )
    values = np.array([[1.5, -2, 0], [0.25, float("inf"), 3]], "<f4")[:num_rows]
    arrays = {"BF16": as_bfloat16(values), "FP32": values}
    (found,) = session.run({"x": np.asarray(arrays[spelt[0]], order="F")}, ["y"])
    assert found.dtype == arrays[spelt[1]].dtype
    assert found.shape == (num_rows, 3)
    assert found.tolist() == arrays[spelt[1]].tolist()


def test_a_scalar_of_bfloat16_keeps_its_shape(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    kinds = TensorProto.BFLOAT16, TensorProto.BFLOAT16
    write_graph(path, "Identity", kinds, ((), ()))
    (found,) = OnnxSession(path, SessionOptions()).run({"x": np.array(0x3F80, "<u2")}, ["y"])
    assert (found.shape, found.item()) == ((), 0x3F80)


def test_a_run_of_bfloat16_that_fails_is_a_model_failure(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    kinds = TensorProto.BFLOAT16, TensorProto.BFLOAT16
    write_graph(path, "Identity", kinds, (("n", 3), ("n", 3)))
    with pytest.raises(ModelFailed, match="x"):
        OnnxSession(path, SessionOptions()).run({"x": np.zeros((2, 4), "<u2")}, ["y"])


def test_strings_in_and_bfloat16_out_are_refused_at_load(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    kinds = TensorProto.STRING, TensorProto.BFLOAT16
    write_graph(path, "Cast", kinds, (("n",), ("n",)), to=TensorProto.BFLOAT16)
    with pytest.raises(LoadError, match=r"cannot take the BYTES input 'x' where there is a BF16"):
        OnnxSession(path, SessionOptions())


def test_memory_that_a_run_cannot_have_is_a_failure_of_that_run(tmp_path: Path) -> None:
    """More than a process can address; a small run after it succeeds."""
    path = tmp_path / "expand.onnx"
    kinds, shapes = (TensorProto.INT64, TensorProto.FLOAT), (("n",), ("r",))
    write_graph(path, "ConstantOfShape", kinds, shapes)
    session = OnnxSession(path, SessionOptions())
    with pytest.raises(OutOfMemory, match=r"requested buffer of size|bad_alloc"):
        session.run({"x": np.array([2**46])}, ["y"])
    assert session.run({"x": np.array([3])}, ["y"])[0].tolist() == [0, 0, 0]


def test_sessions_on_the_cpu_share_one_arena(tmp_path: Path) -> None:
    """Three with results of 64 MiB keep the memory of one; one without an arena keeps none."""
    path = tmp_path / "expand.onnx"
    kinds, shapes = (TensorProto.INT64, TensorProto.FLOAT), (("n",), ("r",))
    write_graph(path, "ConstantOfShape", kinds, shapes)
    sessions, used = list[OnnxSession](), list[int]()
    for _ in range(4):
        sessions.append(OnnxSession(path, SessionOptions(num_threads=1)))
        sessions[-1].run({"x": np.array([2**24])}, ["y"])
        used.append(
            int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
        )
    assert used[3] - used[0] < 2**26, "three more would be 192 MiB"
    apart = SessionOptions(tuning=SessionTuning(has_arena=False))
    options = OnnxSession(path, apart)._session.get_session_options()
    assert not options.enable_cpu_mem_arena


def test_threads_are_those_of_the_options(negating: Path) -> None:
    session = OnnxSession(negating, SessionOptions(num_threads=3, can_spin=True))
    options = session._session.get_session_options()
    assert options.intra_op_num_threads == 3
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "1"


def test_threads_that_poll_within_a_run_sleep_after_it(negating: Path) -> None:
    session = OnnxSession(negating, SessionOptions(num_threads=2, spin_us=70))
    options = session._session.get_session_options()
    entries = ("intra_op.allow_spinning", "intra_op.spin_duration_us", "force_spinning_stop")
    found = [options.get_session_config_entry(f"session.{entry}") for entry in entries]
    assert found == ["1", "70", "1"]


def test_threads_that_never_poll_sleep(negating: Path) -> None:
    session = OnnxSession(negating, SessionOptions(num_threads=2, spin_us=0))
    options = session._session.get_session_options()
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"


def test_between_runs_threads_that_poll_within_them_take_no_processor_time(tmp_path: Path) -> None:
    """Three threads that may poll for 0.2 s beside the caller, and a rest of 0.3 s after each run.

    They would take 0.1 to 0.6 s of processor time if they polled on, depending on what else the
    machine does; all of this process takes less than 0.02 s.
    """
    path = tmp_path / "exponents.onnx"
    write_graph(path, "Exp", (TensorProto.FLOAT, TensorProto.FLOAT), (("n",), ("n",)))
    session = OnnxSession(path, SessionOptions(num_threads=4, spin_us=200_000))
    for _ in range(2):
        session.run({"x": np.zeros(1_000_000, np.float32)}, ["y"])
        began_s = time.process_time()
        time.sleep(0.3)
        assert time.process_time() - began_s < 0.02


def test_a_device_that_is_not_there_is_refused_and_auto_takes_what_is() -> None:
    assert choose_device("cpu") == "cpu"
    if not cuda_obstacle():
        assert choose_device("auto") == choose_device("cuda") == "cuda"
        return
    assert choose_device("auto") == "cpu"
    if "CUDAExecutionProvider" in load_onnxruntime().get_available_providers():
        with pytest.raises(LoadError, match="CUDA cannot be used"):
            choose_device("cuda")
        return
    with pytest.raises(LoadError, match=r"install attendant\[gpu\] on a machine with CUDA"):
        choose_device("cuda")


def install(folder: Path, distribution: str) -> None:
    """What pip leaves of an installed distribution, as far as its name goes."""
    metadata = folder / f"{distribution.replace('-', '_')}-1.31.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.31.0\n")


def message_of(folder: Path) -> str:
    """What a fresh interpreter, with `folder` before all else, says of ONNX Runtime."""
    script = """
from service.errors import LoadError
from service.runtime.session import load_onnxruntime
try:
    load_onnxruntime()
except LoadError as error:
    print(error)
"""
    result = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return result.stdout.strip()


def test_two_builds_together_are_refused_with_a_way_out(tmp_path: Path) -> None:
    install(tmp_path, "onnxruntime")
    install(tmp_path, "onnxruntime-gpu")
    assert message_of(tmp_path) == (
        "onnxruntime and onnxruntime-gpu are installed together and overwrite each other: "
        "uninstall all of them, then install one of attendant[cpu], attendant[gpu], "
        "attendant[openvino]"
    )


def test_a_build_in_a_folder_of_its_own_is_taken_before_another(tmp_path: Path) -> None:
    """Where a machine has one and a folder on the path has another, nothing is overwritten."""
    install(tmp_path, "onnxruntime-gpu")
    assert message_of(tmp_path) == ""


def test_a_missing_build_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "onnxruntime.py").write_text("raise ImportError('no library for you')")
    assert message_of(tmp_path) == (
        "ONNX Runtime cannot be imported (no library for you): "
        "pip install 'attendant[cpu]' or 'attendant[gpu]'"
    )
