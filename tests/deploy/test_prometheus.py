"""Rules: their unit tests, and a real Prometheus that scrapes a real server.

Needs Debian's `prometheus` package, which `.ci/run` installs (`make prometheus`). Skipped without.
"""

import json
import math
import re
import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import yaml
from tritonclient import grpc as triton

from commands.ask.client.access import Access
from commands.ask.client.client import Client
from deploy.generate import queries
from service.calls.generation import Generate
from service.calls.sampling import Sampling
from service.calls.texts import Classify
from tests.deploy import promql
from tests.deploy.dockerfile import ROOT
from tests.e2e.calls import text_inputs
from tests.e2e.server import ServerProcess, eventually, free_ports
from tests.fakes.certificates import Authority

UNIT_TESTS = sorted((ROOT / "deploy/prometheus/tests").glob("*.yml"))
ALERTS = [rule for rule in queries.rules() if "alert" in rule]
READY_LIMIT_S = 20.0
VALUES_LIMIT_S = 40.0  # until every query has one: two scrapes, then rules upon rules
PROMPT = "The import statement combines two operations; it searches for the named module, then it"


def promtool(*arguments: str | Path) -> str:
    command = [promql.program("promtool"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_finds_nothing_wrong() -> None:
    promtool("check", "rules", queries.RULES)
    promtool("check", "config", ROOT / "deploy/prometheus/prometheus.yml")


def test_alerts_fire_where_they_must_and_nowhere_else() -> None:
    promtool("test", "rules", *UNIT_TESTS)


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_every_alert_is_tested_and_has_a_page_to_read(rule: dict[str, Any]) -> None:
    name = rule["alert"]
    cases = [
        case
        for path in UNIT_TESTS
        for test in yaml.safe_load(path.read_text())["tests"]
        for case in test.get("alert_rule_test", [])
        if case["alertname"] == name
    ]
    assert {bool(case["exp_alerts"]) for case in cases} == {True, False}
    page, _, heading = rule["annotations"]["runbook"].partition("#")
    headings = re.findall("^#+ (.*)$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
    assert name in headings
    assert heading == name.lower()
    assert rule["labels"]["severity"] in ("critical", "warning")


def test_every_page_is_about_an_alert_that_exists() -> None:
    text = (ROOT / "docs/how-to/alerts.md").read_text(encoding="utf-8")
    assert set(re.findall("^### (Attendant.*)$", text, re.MULTILINE)) == {
        rule["alert"] for rule in ALERTS
    }


def test_every_recorded_metric_is_read() -> None:
    asked = queries.dashboard_queries() + queries.rule_queries()
    assert queries.recorded() - {"model:attendant_requests_in_flight:sum"} <= {
        name for query in asked for name in query.names
    }


# --- A real Prometheus.


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    if not shutil.which("openssl"):
        pytest.skip("openssl is missing: it makes the certificates")
    return Authority(tmp_path_factory.mktemp("certificates"), "authority")


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority
) -> Iterator[ServerProcess]:
    """The default models `gpt`, and `spam` with a response cache, over TLS."""
    repository = tmp_path_factory.mktemp("repository")
    for name in ("gpt", "spam"):
        model = ROOT / "model_repository" / name
        if not (model / "1").is_dir():
            pytest.fail(f"{model} is missing: run `make models`")
        shutil.copytree(model, repository / name)
    with (repository / "spam/config.pbtxt").open("a", encoding="utf-8") as config:
        config.write("response_cache { enable: true }\n")
    pair = authority.sign("server", days=90)
    flags = "--tls-cert", str(pair.cert), "--tls-key", str(pair.key), "--http-port", "0"
    with ServerProcess(repository, "--response-cache-bytes", str(2**20), *flags) as process:
        yield process


class Prometheus:
    """A process on loopback, and its HTTP API."""

    def __init__(self, folder: Path, target: str) -> None:
        (port,) = free_ports(1)
        config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["rule_files"] = [str(queries.RULES)]
        config["scrape_configs"][0]["static_configs"][0]["targets"] = [target]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._url = f"http://127.0.0.1:{port}"
        command = [
            str(promql.program("prometheus")),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=error",
        ]
        self.process = subprocess.Popen(command)  # noqa: S603

    def is_ready(self) -> bool:
        with suppress(OSError), urlopen(f"{self._url}/-/ready", timeout=5) as page:  # noqa: S310
            return bool(page.status == 200)
        return False

    def get(self, path: str, **parameters: str) -> Any:
        url = f"{self._url}/api/v1/{path}?{urlencode(parameters)}"
        with urlopen(url, timeout=10) as page:  # noqa: S310 - http, our own
            return json.load(page)["data"]

    def has_value(self, query: str) -> bool:
        """Whether there is a series with a number, as NaN is not."""
        found = self.get("query", query=query)["result"]
        return any(math.isfinite(float(series["value"][1])) for series in found)


@pytest.fixture(scope="module")
def prometheus(
    server: ServerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    target = server.metrics_url.removeprefix("http://").removesuffix("/metrics")
    running = Prometheus(tmp_path_factory.mktemp("prometheus"), target)
    try:
        eventually(running.is_ready, "Prometheus is ready", READY_LIMIT_S)
        yield running
    finally:
        running.process.kill()
        running.process.wait()


def filled_in(expression: str) -> str:
    """With the variables of a dashboard replaced, as Grafana does."""
    expression = expression.replace("$__rate_interval", "5m")
    return re.sub(r"\$(namespace|job|instance|model)\b", ".*", expression)


def ask_a_little(server: ServerProcess, authority: Authority) -> None:
    """Texts of different lengths at once, a repeated one, and prompts that begin alike."""
    sampling = Sampling(temperature=0, max_tokens=8)
    call = Generate(model="gpt", prompt=PROMPT, sampling_params=sampling)
    address, access = server.address, Access(authority.cert.read_bytes())
    trusted = ssl.create_default_context(cafile=str(authority.cert))
    with urlopen(f"https://{server.http_address}/ping", timeout=10, context=trusted):
        pass
    with (
        Client(address, 20.0, access) as typed,
        triton.InferenceServerClient(
            address, ssl=True, root_certificates=str(authority.cert)
        ) as client,
        ThreadPoolExecutor() as pool,
    ):
        calls = [
            pool.submit(typed.ask, Classify(model="spam", texts=[text]))
            for text in (f"{time.monotonic()}" + " free" * length for length in (1, 5, 20))
        ]
        client.infer("spam", text_inputs(["the same"]), client_timeout=20.0)
        for each in calls:
            each.result()
        typed.generate(call)


def test_promtool_finds_nothing_wrong_with_the_page_but_the_names_that_are_triton_s(
    server: ServerProcess,
) -> None:
    with urlopen(server.metrics_url, timeout=10) as page:  # noqa: S310 - http, our own
        command = [str(promql.program("promtool")), "check", "metrics"]
        done = subprocess.run(command, input=page.read(), capture_output=True, check=False)  # noqa: S603
    complaints = (done.stdout + done.stderr).decode().splitlines()
    assert all(line.startswith("nv_") for line in complaints if line), complaints


def test_no_query_of_a_dashboard_or_rule_is_empty(
    server: ServerProcess, prometheus: Prometheus, authority: Authority
) -> None:
    """Every one has a number within seconds of traffic; alerts are looked at below."""
    panels = queries.dashboard_queries()
    asked = {query.where: filled_in(query.expression) for query in panels}
    for query in panels + queries.rule_queries():
        asked |= {name: name for name in query.names - {"ALERTS"}}
    asked |= {name: name for name in queries.recorded()}
    until_s = time.monotonic() + VALUES_LIMIT_S
    while asked and time.monotonic() < until_s:
        ask_a_little(server, authority)
        asked = {where: query for where, query in asked.items() if not prometheus.has_value(query)}
    assert not asked


def test_no_rule_fails_and_no_alert_is_raised_for_a_healthy_server(
    server: ServerProcess, prometheus: Prometheus
) -> None:
    """Every rule is evaluated after the server was seen: before that, one is right to say so."""
    eventually(lambda: prometheus.has_value("up == 1"), "the server is scraped")
    seen_s = float(prometheus.get("query", query="time()")["result"][1])

    def evaluated() -> list[dict[str, Any]]:
        found = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
        return [
            rule
            for rule in found
            if rule["health"] != "unknown"
            and datetime.fromisoformat(rule["lastEvaluation"]).timestamp() > seen_s
        ]

    eventually(lambda: len(evaluated()) == len(queries.rules()), "every rule is evaluated")
    for rule in evaluated():
        assert rule["health"] == "ok", rule
        assert rule.get("state", "inactive") == "inactive", rule


def test_an_alert_is_raised_when_the_server_is_gone(
    server: ServerProcess, prometheus: Prometheus
) -> None:
    """Last, as it ends the server."""
    server.process.terminate()
    assert server.exit_code() == 0
    pending = 'ALERTS{alertname="AttendantDown",alertstate="pending"}'
    eventually(lambda: prometheus.has_value(pending), "AttendantDown is pending")
