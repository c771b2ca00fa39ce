"""Kinds, server and sameness on the device: the parts of the check that are right or wrong.

On a machine with a GPU these are checks of CUDA in full size, and are run as
`pytest -m gpu tests/gpu`; elsewhere they run on the CPU with the smallest models, where the check's
own logic is what is tested. docs/how-to/cuda.md says what was verified on CUDA.
"""

import json
from pathlib import Path

import onnx
import pytest
from onnx import numpy_helper

from loadtests.gpu import environment, parity, sameness, server
from loadtests.gpu.context import Context, Run
from loadtests.gpu.kinds import KINDS, SERVED
from loadtests.gpu.models import Wide, models_of
from loadtests.gpu.report import failed_checks
from tests.gpu.conftest import Exported

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]
ON_CPU = {("classification", "fp16"), ("decoder", "fp16")}  # beside fp32: slow, and proves little


def held(context: Context) -> dict[str, str]:
    """What was found by claim, where all checks of a section hold."""
    assert not failed_checks({"findings": context.findings})
    assert json.loads(json.dumps(context.findings, allow_nan=False)) == context.findings
    return {claim["claim"]: claim["found"] for claim in context.findings["claims"]}


def test_the_machine_is_described_and_a_session_runs(run: Run, exported: Exported) -> None:
    context = exported()
    environment.run(context)
    assert held(context)[f"a session runs on {run.device}"] == "yes"
    assert {"torch", "onnx", "numpy"} <= context.findings["versions"].keys()
    assert any(sentence.startswith("Processor: ") for sentence in context.findings["summary"])


@pytest.mark.parametrize("precision", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_are_pytorchs_and_nodes_are_on_the_device(
    kind: str, precision: Wide, run: Run, exported: Exported
) -> None:
    """One opening is compared and placed; PyTorch's own difference stands beside the limit."""
    assert precision, "a kind has one"
    if obstacle := KINDS[kind].obstacle(run.device, precision):
        pytest.skip(obstacle)
    if run.device == "cpu" and precision == "fp16" and (kind, precision) not in ON_CPU:
        pytest.skip("half precision is for GPUs")
    context = exported((kind, precision))
    parity.compare_all(context, models_of(run, (kind, precision)))
    claims = held(context)
    if not claims:
        assert any("is not exported" in said for said in context.findings["left_out"])
        return
    rows = context.findings["tables"][parity.TABLE]
    assert any(claim.endswith("is as PyTorch") for claim in claims)
    assert any(claim.endswith("computes no node elsewhere") for claim in claims)
    for row in rows:
        assert {"limit", "PyTorch itself", "export, s", "open, s", "run, s"} <= row.keys()
        assert precision == "fp32" or "PyTorch in " in row["PyTorch itself"]


def test_a_planted_fault_is_found(run: Run, exported: Exported, tmp_path: Path) -> None:
    """One weight is moved, of a classifier's last layer but one."""
    if run.device != "cpu":
        pytest.skip("a fault is planted in the graph for the CPU")
    wanted = ("classification", run.precision)
    context = exported(wanted)
    (model,) = models_of(run, wanted)
    path = model.folder / "model.onnx"
    kept = path.read_bytes()
    graph = onnx.load(path)
    (weights,) = (each for each in graph.graph.initializer if each.name == "head.dense.weight")
    values = numpy_helper.to_array(weights).copy()
    values[0, 0] += 1.0
    weights.CopyFrom(numpy_helper.from_array(values, weights.name))
    onnx.save(graph, path)
    try:
        parity.compare_all(context, [model])
    finally:
        path.write_bytes(kept)
    (failed,) = failed_checks({"findings": context.findings})
    assert failed["claim"] == f"classification in {run.precision} is as PyTorch"


def test_the_server_answers_streams_and_drains(run: Run, exported: Exported) -> None:
    context = exported(*[(kind, run.precision) for kind in SERVED])
    context.run.out.mkdir(exist_ok=True)
    server.run(context)
    claims = held(context)
    for part in ("served, answers as PyTorch", "clients left", "SIGTERM", "streamed"):
        assert any(part in claim for claim in claims), part
    assert claims["every call is answered"] == "yes"


def test_memory_does_not_grow_with_rounds_of_loading(run: Run, exported: Exported) -> None:
    context = exported(("classification", run.precision), ("decoder", run.precision))
    server.loading(context)
    assert any("grows over" in claim for claim in held(context))
    assert len(context.findings["used_mib"]) == server.ROUNDS


def test_outputs_are_the_same_in_every_company(run: Run, exported: Exported) -> None:
    halves: list[tuple[str, Wide]] = [(k, "bf16") for k in SERVED] if run.device == "cuda" else []
    context = exported(*[(kind, run.precision) for kind in SERVED], *halves)
    sameness.run(context)
    claims = held(context)
    if run.device == "cpu":
        assert claims["decoder-fp32: share of seeded texts that are the same among 16"] == "1"
        assert len(claims) == 9
    assert any("continues from the cache as it computes anew" in claim for claim in claims)
