"""The GPU check in its CPU mode, as a command from a checkout that is not installed."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import onnx
import pytest
from onnx import numpy_helper

from loadtests.gpu.checkpoints import KINDS
from loadtests.gpu.server import TINY_ROUNDS
from tests.fakes.checkout import ROOT, interpreter_without_us

LIMIT_S = 900.0  # of a whole run, on a machine with other work
SECTIONS = "1,2,3,4,5"
pytestmark = pytest.mark.timeout(2 * LIMIT_S)


class Check(NamedTuple):
    """A folder of a report, and how the command is run."""

    python: Path
    out: Path

    def run(self, *flags: str, device: str = "cpu") -> "subprocess.CompletedProcess[str]":
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        command: list[str | Path] = [self.python, "-m", "loadtests.gpu", "--device", device]
        return subprocess.run(  # noqa: S603 - our own interpreter
            [*command, "--tiny", "--out", self.out, "--minutes", "30", *flags],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    def findings(self, number: int) -> dict[str, Any]:
        (path,) = self.out.glob(f"{number:02d}-*.json")
        record = json.loads(path.read_text())
        assert record["state"] == "done", record["error"]
        findings: dict[str, Any] = record["findings"]
        return findings

    def claims(self, number: int) -> dict[str, dict[str, Any]]:
        return {each["claim"]: each for each in self.findings(number)["claims"]}


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Check:
    """Sections 1 to 5, run once."""
    folder = tmp_path_factory.mktemp("gpu-check")
    check = Check(interpreter_without_us(folder / "environment"), folder / "out")
    done = check.run("--sections", SECTIONS)
    assert done.returncode == 0, done.stderr
    return check


def test_the_machine_is_described(check: Check) -> None:
    findings = check.findings(1)
    assert findings["versions"]["onnxruntime"] == findings["onnxruntime"]
    assert {"torch", "onnx", "numpy"} <= findings["versions"].keys()
    assert findings["machine"]["cores"] >= 1
    assert check.claims(1)["a session runs on cpu"]["holds"]


def test_every_kind_is_compared_with_pytorch(check: Check) -> None:
    """In float32 to a hundred-thousandth of the outputs' size, in float16 to three hundredths."""
    figures = check.findings(2)["figures"]
    exact = {each["kind"]: each for each in figures if each["arithmetic"] == "fp32"}
    assert exact.keys() == KINDS.keys()
    for kind, each in exact.items():
        assert each["relative"] < 1e-5, kind
        assert each["mean_cosine"] > 0.999999, kind
        assert each["agreement"] in (None, 1.0), kind
        assert each["num_rows"] >= 8, kind
    half = [each for each in figures if each["arithmetic"] == "fp16"]
    graphs = {(each["kind"], each["layout"]) for each in half}
    assert graphs == {("classification", ""), ("classification", "padded"), ("decoder", "")}
    assert all(1e-5 < each["relative"] < 0.03 for each in half)
    left_out = check.findings(2)["left_out"]
    assert "decoder in fp16, paged: the CPU provider has no PagedAttention" in left_out
    assert check.claims(2)["every kind of model was compared"]["holds"]
    (not_on_cpu,) = [s for s in left_out if "bfloat16" in s]
    assert all(f"{kind}-bf16" in not_on_cpu for kind in KINDS)


def test_every_graphs_nodes_are_read(check: Check) -> None:
    (table,) = check.findings(3)["tables"]
    rows = {row[0]: row for row in table["rows"]}
    assert rows["classification-fp32"][3] == "2 Attention"
    assert rows["decoder-fp32"][3] == "2 GroupQueryAttention"
    assert all(row[1] > 10 and row[2] == "none" for row in rows.values())
    assert {f"{kind}-fp32 computes no node elsewhere" for kind in KINDS} <= check.claims(3).keys()


def test_the_server_answers_streams_reloads_and_drains(check: Check) -> None:
    claims = check.claims(4)
    for part in ("served, answers as PyTorch", "clients left", "SIGTERM", "streamed", "grows over"):
        assert any(part in claim for claim in claims), part
    assert claims["every call of the server is answered"]["holds"]
    assert len(check.findings(4)["used_mib"]) == TINY_ROUNDS
    assert (check.out / "server.log").exists()


def test_outputs_are_the_same_in_every_company(check: Check) -> None:
    claims = check.claims(5)
    assert claims["decoder-fp32: share of seeded texts that are the same among 16"]["figure"] == 1
    assert len(claims) == 9
    assert all(claim["holds"] for claim in claims.values())


def test_the_report_says_what_was_run_and_that_it_was_not_on_a_gpu(check: Check) -> None:
    text = (check.out / "report.md").read_text()
    assert "Nothing here says anything about CUDA" in text
    assert re.search(r"No section failed, and all \d\d+ checks hold\.", text)
    assert "| recurrent | fp32 |" in text
    assert len(json.loads((check.out / "report.json").read_text())["sections"]) == 5


@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="there is a GPU")
def test_without_a_gpu_each_section_fails_at_once_with_the_reason(
    check: Check, tmp_path: Path
) -> None:
    """Nothing is exported, and what was found on the CPU is kept apart."""
    done = Check(check.python, tmp_path).run("--sections", SECTIONS, device="cuda")
    assert done.returncode == 1
    text = (tmp_path / "report.md").read_text()
    failures = text[text.index("## Failures") : text.index("## 1.")]
    assert "ONNX Runtime is a build with CUDA" in failures
    for section in (2, 3, 4, 5):
        assert re.search(rf"Section {section} .* failed: .*LoadError: device cuda", failures)
    assert not list(tmp_path.glob("work/models-*/*-fp*"))


def test_a_second_run_skips_what_is_done_and_a_planted_fault_is_found(check: Check) -> None:
    """One weight is moved, of a classifier's last layer but one."""
    again = check.run("--sections", SECTIONS)
    assert again.returncode == 0, again.stderr
    assert again.stderr.count("is done already") == 5
    (graph,) = check.out.glob("work/models-*/classification-fp32/1/model.onnx")
    kept = graph.read_bytes()
    _plant_fault(graph)
    try:
        done = check.run("--sections", "2", "--again")
    finally:
        graph.write_bytes(kept)
    assert done.returncode == 1
    failed = [claim for claim, each in check.claims(2).items() if not each["holds"]]
    assert failed == ["classification in fp32 is as PyTorch"]
    report = (check.out / "report.md").read_text()
    failures = report[report.index("## Failures") : report.index("## 1.")]
    assert failures.count("classification in fp32 is as PyTorch: largest difference") == 1


def _plant_fault(path: Path) -> None:
    model = onnx.load(path)
    (weights,) = (each for each in model.graph.initializer if each.name == "head.dense.weight")
    values = numpy_helper.to_array(weights).copy()
    values[0, 0] += 1.0
    weights.CopyFrom(numpy_helper.from_array(values, weights.name))
    onnx.save(model, path)
