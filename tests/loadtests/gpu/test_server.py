"""What is kept of a server that fails in the middle."""

from pathlib import Path

from loadtests.gpu.context import Findings
from loadtests.gpu.server import answered, errors_with, growth_of


def test_what_was_found_before_a_failure_is_kept_with_the_end_of_the_log(tmp_path: Path) -> None:
    findings: Findings = {"claims": []}
    log = tmp_path / "server.log"
    with answered(findings), errors_with(log):
        log.write_text("line 1\nthe device is lost\n")
        findings["claims"].append("before")
        raise ConnectionError("the server is gone")
    first, claim = findings["claims"]
    assert first == "before"
    assert not claim["holds"]
    assert "the server is gone" in claim["found"]
    assert "the device is lost" in claim["found"]


def test_a_server_without_a_failure_has_answered_everything() -> None:
    findings: Findings = {"claims": []}
    with answered(findings):
        pass
    assert [claim["holds"] for claim in findings["claims"]] == [True]


def test_growth_is_the_slope_after_the_first_fifth() -> None:
    """Ten rounds, of which the first two fill pools: 2 MiB a round from then on."""
    assert abs(growth_of([0.0, 90.0, *(100.0 + 2 * number for number in range(8))]) - 2) < 1e-9
